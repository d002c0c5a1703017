"""Dead letters: moved in one session, with death headers, and not endlessly in a cycle."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.broker.stage import BrokerStage, bodies, settling
from warren.base.ids import Epoch, QueueId
from warren.base.messages import Origin
from warren.broker.dead_letters import DeathCause, deaths_of, is_circle, with_death
from warren.broker.queue_arguments import Overflow
from warren.broker.unit_of_work import UnitOfWork
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason

A, B, C = QueueId(1), QueueId(2), QueueId(3)


@pytest.fixture(params=["memory", "variable"])
def stage(request: pytest.FixtureRequest) -> Iterator[BrokerStage]:
    stage = BrokerStage(default=request.param, settle_ms=1).up()
    yield stage
    stage.down()


def test_what_expires_is_over_the_limit_or_rejected_moves_to_the_target(stage: BrokerStage) -> None:
    """QP-08: both in terms of fetch, publish and ack."""
    dead = stage.queue("dead")
    work = stage.queue("work", message_ttl_ms=100, max_length=2, dead_letter="dead")
    stage.put(b"1", b"2", b"3", to="work")
    assert stage.length("dead") == 1
    stage.queue_api.reject(work, settling(stage.take("work")))
    stage.pass_ms(100)
    assert (stage.length("work"), stage.length("dead")) == (0, 3)
    taken = stage.take("dead", 10)
    assert bodies(taken) == [b"1", b"2", b"3"]
    assert [deaths_of(each.slice.run.origin) for each in taken.fetched] == [
        [DeathCause(work.id, reason, 1)]
        for reason in (DequeueReason.OVER_LIMIT, DequeueReason.REJECTED, DequeueReason.EXPIRED)
    ]
    assert dead.id != work.id


def test_a_move_is_one_session(stage: BrokerStage) -> None:
    ends: list[IndexBatch] = []
    end = IndexBatch.end

    def counted(changes: IndexBatch) -> Epoch:
        ends.append(changes)
        return end(changes)

    stage.queue("dead")
    stage.queue("work", message_ttl_ms=100, dead_letter="dead")
    stage.put(b"1", b"2", to="work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IndexBatch, "end", counted)
        stage.pass_ms(100)
    assert len(ends) == 1
    assert stage.get("dead") == [b"1", b"2"]


def test_a_chain_of_full_queues_moves_in_one_piece_of_work(stage: BrokerStage) -> None:
    stage.queue("c", max_length=1)
    stage.queue("b", max_length=1, dead_letter="c")
    stage.queue("a", max_length=1, dead_letter="b")
    for number in range(5):
        stage.put(b"%d" % number, to="a")
    assert [stage.get(name) for name in "abc"] == [[b"4"], [b"3"], [b"2"]]


def test_without_a_target_that_takes_it_a_message_is_gone(stage: BrokerStage) -> None:
    stage.queue("full", max_length=1, overflow=Overflow.REJECT_PUBLISH)
    stage.queue("work", max_length=1, dead_letter="full")
    stage.queue("astray", max_length=1, dead_letter="nowhere")
    stage.put(b"1", b"2", b"3", to="work")
    stage.put(b"1", b"2", to="astray")
    assert [stage.get(name) for name in ("work", "full", "astray")] == [[b"3"], [b"1"], [b"2"]]


def test_a_target_may_be_declared_later(stage: BrokerStage) -> None:
    stage.queue("work", message_ttl_ms=100, dead_letter="later")
    stage.put(b"1", to="work")
    stage.queue("later")
    stage.pass_ms(100)
    assert stage.get("later") == [b"1"]


def test_an_automatic_cycle_is_dropped(stage: BrokerStage) -> None:
    stage.queue("a", message_ttl_ms=10, dead_letter="b")
    stage.queue("b", message_ttl_ms=10, dead_letter="a")
    stage.put(b"1", to="a")
    stage.pass_ms(10)
    assert (stage.length("a"), stage.length("b")) == (0, 1)
    stage.pass_ms(10)
    assert (stage.length("a"), stage.length("b")) == (0, 0)


def test_a_cycle_with_a_rejection_is_allowed(stage: BrokerStage) -> None:
    """The usual retry: rejected to a queue where it waits, expired back."""
    work = stage.queue("work", dead_letter="later")
    stage.queue("later", message_ttl_ms=10, dead_letter="work")
    stage.put(b"1", to="work")
    for batch in range(5):
        taken = stage.take("work")
        deaths = deaths_of(taken.fetched[0].slice.run.origin)
        assert [each.times for each in deaths] == ([batch, batch] if batch else [])
        stage.queue_api.reject(work, settling(taken))
        stage.pass_ms(10)
    assert stage.length("work") == 1


def test_a_queue_may_be_its_own_target(stage: BrokerStage) -> None:
    work = stage.queue("work", max_length=2, dead_letter="work")
    stage.put(b"1", b"2", to="work")
    stage.queue_api.reject(work, settling(stage.take("work")))
    assert stage.length("work") == 2
    stage.put(b"3", to="work")
    assert stage.get("work") == [b"1", b"3"]


def test_moves_in_both_directions_never_wait_for_each_other(stage: BrokerStage) -> None:
    """Locks are taken in the order of ids."""
    for name, other in (("a", "b"), ("b", "a")):
        stage.queue(name, max_length=1, dead_letter=other)

    def fill(name: str) -> None:
        for number in range(200):
            stage.put(b"%d" % number, to=name)

    threads = [threading.Thread(target=fill, args=(name,)) for name in "abab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (stage.length("a"), stage.length("b")) == (1, 1)


@pytest.mark.parametrize("way", ["over the limit", "expired", "rejected"])
def test_a_large_move_takes_several_sessions_and_loses_nothing(stage: BrokerStage, way: str) -> None:
    """A session has a limit: what is moved in one is bounded in bytes."""
    large = [b"%03d " % number * 50 for number in range(100)]
    stage.queue("dead")
    work = stage.queue("work", message_ttl_ms=100, max_length=100, dead_letter="dead")
    sizes: list[int] = []
    end = UnitOfWork.end_batch

    def measured(own: UnitOfWork) -> None:
        end(own)
        sizes.append(own.moved_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.broker.unit_of_work.STEP_BYTES", 1000)
        patch.setattr("warren.broker.dead_letters.REJECT_STEP", 2)
        patch.setattr(UnitOfWork, "end_batch", measured)
        stage.put(*large, to="work")
        if way == "over the limit":
            stage.put(*(b"tiny" for _ in range(100)), to="work")
        elif way == "expired":
            stage.pass_ms(100)
        else:
            assert stage.queue_api.reject(work, settling(stage.take("work", 100))) == 100
    assert 1000 <= max(sizes) <= 1600
    assert stage.get("dead") == large
    assert stage.length("work") == (100 if way == "over the limit" else 0)


def test_a_circle_is_one_only_without_a_rejection_in_it() -> None:
    expired, rejected, over = DequeueReason.EXPIRED, DequeueReason.REJECTED, DequeueReason.OVER_LIMIT
    assert is_circle([DeathCause(A, expired, 1)], A)
    assert not is_circle([DeathCause(A, expired, 1)], B)
    assert is_circle([DeathCause(B, over, 1), DeathCause(A, expired, 1)], A)
    assert not is_circle([DeathCause(B, expired, 1), DeathCause(A, rejected, 1)], A)
    assert not is_circle([DeathCause(C, expired, 1), DeathCause(B, rejected, 1), DeathCause(A, expired, 1)], A)
    assert is_circle([DeathCause(B, expired, 1), DeathCause(A, expired, 1), DeathCause(C, rejected, 1)], A)
    assert not is_circle([DeathCause(A, rejected, 9)], A)


def test_deaths_are_counted_newest_first() -> None:
    deaths = with_death(
        with_death(with_death([], A, DequeueReason.EXPIRED), B, DequeueReason.REJECTED), A, DequeueReason.EXPIRED
    )
    assert deaths == [DeathCause(A, DequeueReason.EXPIRED, 2), DeathCause(B, DequeueReason.REJECTED, 1)]
    assert deaths_of(Origin("some exchange")) == []
