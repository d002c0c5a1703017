"""A queue as an actor: time, limits, dead letters and getters, over the plain backing queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.broker.stage import BrokerStage, Waiter, bodies, settling
from warren.broker.errors import NotYours, QueueFull
from warren.broker.queue_arguments import Overflow
from warren.broker.storage import BackingRequest
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import BackingQueue
from warren.queues.kinds.memory_queue import MemoryQueue


@pytest.fixture(params=["memory", "variable"])
def stage(request: pytest.FixtureRequest) -> Iterator[BrokerStage]:
    stage = BrokerStage(default=request.param, settle_ms=1).up()
    yield stage
    stage.down()


def test_messages_are_fetched_in_order_and_settled_once(stage: BrokerStage) -> None:
    orders = stage.queue("orders")
    stage.put(b"1", b"2", b"3", to="orders")
    first, second = stage.take("orders"), stage.take("orders", 2)
    assert (bodies(first), bodies(second)) == ([b"1"], [b"2", b"3"])
    assert stage.queue_api.requeue(orders, settling(second)) == 2
    assert stage.queue_api.ack(orders, settling(first)) == 1
    with pytest.raises(NotYours, match="orders"):
        stage.queue_api.ack(orders, settling(first))
    again = stage.take("orders", 5)
    assert (bodies(again), {each.is_redelivered for each in again.fetched}) == ([b"2", b"3"], {True})
    assert stage.queue_api.reject(orders, settling(again)) == 2
    assert stage.length("orders") == 0


def test_operations_on_one_queue_come_one_after_another_and_queues_run_independently(stage: BrokerStage) -> None:
    """QP-01: while one queue is busy others serve, and it takes the next call when it has finished."""
    entered, may_go, overlaps = threading.Event(), threading.Event(), []

    class Slow(MemoryQueue):
        inside = 0

        def fetch(self, count: int, bytes_max: int | None = None) -> list:  # type: ignore[type-arg]
            Slow.inside += 1
            overlaps.append(Slow.inside)
            entered.set()
            assert may_go.wait(10)
            Slow.inside -= 1
            return super().fetch(count, bytes_max)

    stage.vhost.storage.kinds._kinds["slow"] = lambda request: Slow()
    stage.queue("slow", backing="slow")
    stage.queue("quick")
    stage.put(b"1", b"2", to="slow")
    threads = [threading.Thread(target=stage.get, args=("slow", 1)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    stage.put(b"x", to="quick")
    assert stage.get("quick") == [b"x"]
    may_go.set()
    for thread in threads:
        thread.join()
    assert overlaps == [1, 1]
    assert stage.length("slow") == 0


# -- time ------------------------------------------------------------------------------------------------------------


def test_messages_expire_at_the_head_by_the_queues_time(stage: BrokerStage) -> None:
    """In terms of head and drop, with the reason."""
    stage.queue("news", message_ttl_ms=1000)
    stage.put(b"old", to="news")
    stage.clock.advance_ns(600_000_000)
    stage.put(b"new", to="news")
    stage.clock.advance_ns(400_000_000)
    assert stage.get("news") == [b"new"]


class RecordedQueue:
    """A backing queue that notes which methods are called on it, with their arguments."""

    def __init__(self, inner: BackingQueue, calls: list[tuple[str, tuple[Any, ...]]]) -> None:
        self._inner, self._calls = inner, calls

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def noted(*arguments: Any) -> Any:
            self._calls.append((name, arguments))
            return found(*arguments)

        return noted


def test_qp_07_message_ttl_is_head_and_drop_of_the_backing_queue() -> None:
    """QP-07: TTL needs no method of its own below: whatever kind of queue is behind it, the head is compared with the
    clock and exactly what has expired is dropped, with that reason."""
    calls: list[tuple[str, tuple[Any, ...]]] = []

    def recorded(wanted: BackingRequest) -> BackingQueue:
        return cast(BackingQueue, RecordedQueue(MemoryQueue(wanted.is_durable), calls))

    stage = BrokerStage(kinds={"recorded": recorded}, default="recorded").up()
    stage.queue("news", message_ttl_ms=1000)
    stage.put(b"1", b"2", to="news")
    stage.clock.advance_ns(600_000_000)
    stage.put(b"3", to="news")
    calls.clear()
    stage.pass_ms(399)
    assert not [name for name, _ in calls if name not in ("head", "status", "facts")]
    stage.pass_ms(1)
    dropped = [arguments for name, arguments in calls if name == "drop"]
    assert sum(count for count, *_ in dropped) == 2
    assert {reason for _, reason, *_ in dropped} == {DequeueReason.EXPIRED}
    assert {"fetch", "ack", "browse", "purge"}.isdisjoint(name for name, _ in calls)
    assert stage.get("news") == [b"3"]
    stage.down()


def test_of_two_times_the_earlier_one_counts(stage: BrokerStage) -> None:
    stage.queue("news", message_ttl_ms=1000)
    now_ms = stage.clock.wall_ns() // 1_000_000
    stage.put(b"short", to="news", expires_ms=now_ms + 10)
    stage.put(b"long", to="news", expires_ms=now_ms + 5000)
    stage.clock.advance_ns(10_000_000)
    assert stage.get("news") == [b"long"]
    stage.put(b"long", to="news", expires_ms=now_ms + 5000)
    stage.clock.advance_ns(1000_000_000)
    assert stage.get("news") == []


def test_messages_behind_the_head_wait(stage: BrokerStage) -> None:
    """Judged at the head only (DESIGN rule 11)."""
    stage.queue("news")
    now_ms = stage.clock.wall_ns() // 1_000_000
    stage.put(b"stays", to="news")
    stage.put(b"expires", to="news", expires_ms=now_ms + 10)
    stage.pass_ms(20)
    assert stage.length("news") == 2
    assert stage.get("news", 1) == [b"stays"]
    assert stage.get("news", 1) == []


def test_expired_messages_are_removed_with_and_without_a_request(stage: BrokerStage) -> None:
    stage.queue("news", message_ttl_ms=50)
    stage.put(*(b"%d" % number for number in range(25_000)), to="news")
    stage.pass_ms(49)
    assert stage.length("news") == 25_000
    stage.pass_ms(1)
    assert stage.length("news") == 0


def test_the_log_has_the_reason_of_each_dequeue(stage: BrokerStage) -> None:
    reasons: list[DequeueReason] = []

    class RecordingQueue(MemoryQueue):
        def drop(self, count: int, reason: DequeueReason, changes: IndexBatch) -> int:
            reasons.append(reason)
            return super().drop(count, reason, changes)

    stage.vhost.storage.kinds._kinds["recording"] = lambda request: RecordingQueue()
    stage.queue("news", message_ttl_ms=50, max_length=1, backing="recording")
    stage.put(b"1", b"2", to="news")
    stage.pass_ms(50)
    assert reasons == [DequeueReason.OVER_LIMIT, DequeueReason.EXPIRED]


def test_an_unused_queue_is_deleted(stage: BrokerStage) -> None:
    stage.queue("passing", expires_ms=1000)
    stage.put(b"x", to="passing")
    stage.pass_ms(999)
    stage.get("passing")  # a get is a use
    stage.pass_ms(999)
    stage.queue("passing", expires_ms=1000)  # and so is a declaration
    stage.pass_ms(999)
    assert stage.vhost.queue_names() == ["passing"]
    stage.pass_ms(1)
    assert stage.vhost.queue_names() == []


def test_a_queue_with_a_waiting_getter_is_used(stage: BrokerStage) -> None:
    passing = stage.queue("passing", expires_ms=1000)
    waiter = Waiter()
    stage.queue_api.wait(passing, waiter)
    stage.pass_ms(5000)
    assert stage.vhost.queue_names() == ["passing"]
    stage.queue_api.stop_waiting(passing, waiter)
    stage.pass_ms(999)
    assert stage.vhost.queue_names() == ["passing"]
    stage.pass_ms(1)
    assert stage.vhost.queue_names() == []


# -- limits ----------------------------------------------------------------------------------------------------------


def test_over_the_limit_the_oldest_go(stage: BrokerStage) -> None:
    """QP-08: in terms of drop."""
    stage.queue("short", max_length=3)
    stage.put(b"1", b"2", to="short")
    stage.put(b"3", b"4", b"5", to="short")
    assert stage.get("short") == [b"3", b"4", b"5"]


def test_bytes_are_bounded_too(stage: BrokerStage) -> None:
    stage.queue("small", max_length_bytes=10)
    stage.put(b"aaaa", b"bbbb", to="small")
    stage.put(b"ccc", to="small")
    assert stage.get("small") == [b"bbbb", b"ccc"]
    stage.put(b"x" * 11, to="small")
    assert stage.length("small") == 0


def test_pending_messages_do_not_count(stage: BrokerStage) -> None:
    stage.queue("short", max_length=1)
    stage.put(b"1", to="short")
    taken = stage.take("short")
    stage.put(b"2", to="short")
    assert stage.length("short") == 1
    stage.queue_api.requeue(stage.vhost.find_queue("short"), settling(taken))
    assert stage.length("short") == 2  # as RabbitMQ: what is requeued was accepted before


def test_a_queue_that_rejects_takes_all_of_a_put_or_nothing(stage: BrokerStage) -> None:
    """QP-08: nothing is dropped, and the publisher gets an error."""
    stage.queue("short", max_length=3, overflow=Overflow.REJECT_PUBLISH)
    stage.queue("other")
    stage.put(b"1", b"2", to="short")
    with pytest.raises(QueueFull, match="3 messages"):
        stage.put(b"3", b"4", to=["other", "short"])
    assert (stage.length("short"), stage.length("other")) == (2, 0)
    stage.put(b"3", to="short")
    assert stage.get("short") == [b"1", b"2", b"3"]


# -- waiting getters -------------------------------------------------------------------------------------------------


def test_waiting_getters_are_served_in_order(stage: BrokerStage) -> None:
    """QP-06: consumers on top of an abstract queue."""
    jobs = stage.queue("jobs")
    waiters = [Waiter(1), Waiter(2), Waiter(5)]
    for waiter in waiters:
        stage.queue_api.wait(jobs, waiter)
    stage.put(b"1", b"2", b"3", b"4", to="jobs")
    assert [each.handed for each in waiters] == [[[b"1"]], [[b"2", b"3"]], [[b"4"]]]
    stage.put(b"5", to="jobs")
    assert stage.get("jobs") == [b"5"]


def test_a_later_getter_does_not_overtake(stage: BrokerStage) -> None:
    jobs = stage.queue("jobs", message_ttl_ms=10)
    stage.put(b"expired", to="jobs")
    stage.clock.advance_ns(10_000_000)
    waiter = Waiter()
    stage.queue_api.wait(jobs, waiter)
    assert not waiter.handed  # never what has expired
    stage.put(b"fresh", to="jobs")
    stage.pass_ms(0)
    assert waiter.handed == [[b"fresh"]]


def test_a_requeued_message_goes_to_the_waiting_getter(stage: BrokerStage) -> None:
    jobs = stage.queue("jobs")
    stage.put(b"1", to="jobs")
    taken = stage.take("jobs")
    waiter = Waiter()
    stage.queue_api.wait(jobs, waiter)
    stage.queue_api.requeue(jobs, settling(taken))
    assert waiter.handed == [[b"1"]]


def test_what_a_departed_getter_does_not_take_is_ready_for_the_next(stage: BrokerStage) -> None:
    jobs = stage.queue("jobs")
    gone, there = Waiter(has_gone=True), Waiter()
    stage.queue_api.wait(jobs, gone)
    stage.queue_api.wait(jobs, there)
    stage.put(b"1", to="jobs")
    assert (gone.handed, there.handed) == ([], [[b"1"]])


def test_a_thread_waits_until_something_comes(stage: BrokerStage) -> None:
    jobs = stage.queue("jobs")
    received: list[list[bytes]] = []

    def work() -> None:
        delivery = stage.queue_api.get(jobs, 2, seconds=10)
        assert delivery is not None
        received.append(bodies(delivery))

    thread = threading.Thread(target=work)
    thread.start()
    while not len(jobs.serving().getters):
        threading.Event().wait(0.001)
    stage.put(b"1", b"2", b"3", to="jobs")
    thread.join()
    assert received == [[b"1", b"2"]]
    assert stage.queue_api.get(stage.queue("empty"), 1, seconds=0.01) is None
    assert len(stage.vhost.find_queue("empty").serving().getters) == 0
