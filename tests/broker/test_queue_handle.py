"""Queues that fail are restarted while the others serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.faulty_queue import Faults
from tests.broker.stage import BrokerStage, Waiter, bodies, settling
from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch
from warren.broker.errors import NotYours, QueueDown
from warren.broker.storage import BackingRequest
from warren.queue_index.batch import IndexBatch
from warren.queues.backing_queue import BackingQueue
from warren.queues.kinds.memory_queue import MemoryQueue


class FaultyStage(BrokerStage):
    def __init__(self) -> None:
        super().__init__(kinds={"faulty": self._made}, restarts_max=3, restarts_seconds=10.0)
        self.faults = Faults()

    def _made(self, wanted: BackingRequest) -> BackingQueue:
        self.faults.check("start")
        return self.faults.over(self.storage._variable(wanted))


@pytest.fixture
def stage() -> Iterator[FaultyStage]:
    stage = FaultyStage()
    stage.up()
    stage.queue("weak", backing="faulty")
    stage.queue("strong")
    yield stage
    stage.faults.once.clear()
    stage.faults.always.clear()
    stage.down()


def test_a_queue_that_fails_is_made_again_and_has_what_was_durable(stage: FaultyStage) -> None:
    """QP-05: the caller gets the error; then the queue serves again, pending messages ready and flagged."""
    stage.put(b"1", b"2", b"3", to="weak")
    taken = stage.take("weak")
    stage.faults.once["fetch"] = RuntimeError("a bug")
    with pytest.raises(QueueDown, match="a bug"):
        stage.take("weak")
    again = stage.take("weak", 5)
    assert bodies(again) == [b"1", b"2", b"3"]
    assert {each.is_redelivered for each in again.fetched} == {True}
    with pytest.raises(NotYours, match="was restarted"):  # a tag of the former incarnation
        stage.queue_api.ack(stage.vhost.find_queue("weak"), settling(taken))
    assert stage.queue_api.ack(stage.vhost.find_queue("weak"), settling(again)) == 3
    assert "a bug" in stage.vhost.problems[0]


def test_the_others_serve_all_along(stage: FaultyStage) -> None:
    """QP-05: also when the one that failed stays down."""
    stage.faults.always["fetch"] = RuntimeError("a bug")
    for batch in range(6):
        stage.put(b"%d" % batch, to="strong")
        with pytest.raises(QueueDown):
            stage.get("weak")
        assert stage.get("strong") == [b"%d" % batch]
    assert stage.faults.created_count == 1 + 3


def test_a_queue_that_fails_too_often_stays_down_and_reports_the_reason(stage: FaultyStage) -> None:
    stage.put(b"1", to="weak")
    for _ in range(4):
        stage.faults.once["fetch"] = RuntimeError("a bug")
        with pytest.raises(QueueDown, match="a bug"):
            stage.get("weak")
    with pytest.raises(QueueDown, match=r"failed 4 times in 10 s, the last time with RuntimeError\('a bug'\)"):
        stage.put(b"2", to="weak")
    with pytest.raises(QueueDown):
        stage.length("weak")
    stage.down()
    stage.up()
    assert stage.get("weak") == [b"1"]


def test_failures_long_ago_do_not_count(stage: FaultyStage) -> None:
    stage.put(b"1", to="weak")
    for _ in range(8):
        stage.faults.once["fetch"] = RuntimeError("a bug")
        with pytest.raises(QueueDown):
            stage.get("weak")
        stage.pass_ms(4000)
    assert stage.get("weak") == [b"1"]


def test_a_start_that_fails_is_tried_again(stage: FaultyStage) -> None:
    stage.put(b"1", to="weak")
    stage.faults.once["fetch"] = RuntimeError("a bug")
    stage.faults.once["start"] = RuntimeError("another one")
    with pytest.raises(QueueDown):
        stage.get("weak")
    assert stage.get("weak") == [b"1"]
    stage.faults.always["start"] = RuntimeError("for ever")
    stage.faults.once["fetch"] = RuntimeError("a bug")
    with pytest.raises(QueueDown):
        stage.get("weak")
    with pytest.raises(QueueDown, match="for ever"):
        stage.get("weak")


def test_a_waiting_getter_gets_the_error(stage: FaultyStage) -> None:
    weak, waiter = stage.vhost.find_queue("weak"), Waiter()
    stage.queue_api.wait(weak, waiter)
    stage.faults.once["publish"] = RuntimeError("a bug")
    with pytest.raises(QueueDown):
        stage.put(b"1", to="weak")
    [error] = waiter.errors
    assert isinstance(error, WarrenError)
    assert "a bug" in error.what
    assert stage.length("weak") == 0


def test_what_several_queues_were_to_get_is_in_none_of_them(stage: FaultyStage) -> None:
    """All queues involved are restarted: none may be ahead of the log. Only the failing queue counts a failure."""
    stage.put(b"before", to="strong")
    for _ in range(4):
        stage.faults.once["publish"] = RuntimeError("a bug")
        with pytest.raises(QueueDown, match="weak"):
            stage.put(b"1", to=["strong", "weak"])
    assert stage.get("strong") == [b"before"]
    with pytest.raises(QueueDown, match="4 times"):
        stage.get("weak")


def test_a_session_that_cannot_be_written_is_no_message(stage: FaultyStage) -> None:
    stage.put(b"1", to="weak")
    taken = stage.take("weak")
    write, left = IndexBatch._write, [RuntimeError("no way to the log")]

    def fail_once(changes: IndexBatch) -> Epoch:
        if left:
            raise left.pop()
        return write(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IndexBatch, "_write", fail_once)
        with pytest.raises(QueueDown, match="no way to the log"):
            stage.queue_api.ack(stage.vhost.find_queue("weak"), settling(taken))
    assert stage.get("weak") == [b"1"]


def test_a_refusal_is_no_failure(stage: FaultyStage) -> None:
    stage.put(b"1", to="weak")
    taken = stage.take("weak")
    stage.queue_api.ack(stage.vhost.find_queue("weak"), settling(taken))
    for _ in range(5):
        with pytest.raises(NotYours):
            stage.queue_api.ack(stage.vhost.find_queue("weak"), settling(taken))
    assert (stage.faults.created_count, stage.vhost.problems) == (1, [])


def test_an_unreadable_message_is_reported_and_the_queue_continues(stage: FaultyStage) -> None:
    """Out of the way of what stands behind it, kept as it is, and there again at the next start."""
    stage.put(b"1", b"2", to="weak")
    stage.faults.once["fetch"] = Damage("its block is torn", "file", 7)
    assert stage.get("weak") == [b"2"]
    assert (stage.faults.created_count, len(stage.vhost.problems)) == (1, 1)
    assert "message 0 is set aside" in stage.vhost.problems[0]
    assert "its block is torn (file at byte 7)" in stage.vhost.problems[0]
    stage.down()
    stage.up()
    assert stage.get("weak") == [b"1"]


def test_a_message_neither_readable_nor_set_aside_is_reported_to_the_getter(stage: FaultyStage) -> None:
    stage.kinds["plain"] = lambda wanted: stage.faults.over(MemoryQueue())
    stage.down()
    stage.up()
    plain, waiter = stage.queue("plain", backing="plain"), Waiter()
    stage.put(b"1", to="plain")
    stage.faults.once["fetch"] = Damage("its block is torn", "file", 7)
    with pytest.raises(Damage, match="torn"):
        stage.get("plain")
    assert stage.get("plain") == [b"1"]
    stage.queue_api.wait(plain, waiter)
    stage.faults.once["fetch"] = Damage("its block is torn", "file", 7)
    stage.put(b"2", to="plain")
    assert [type(error) for error in waiter.errors] == [Damage]
    assert stage.get("plain") == [b"2"]


def test_a_waiting_getter_gets_the_message_behind_an_unreadable_one(stage: FaultyStage) -> None:
    weak, waiter = stage.vhost.find_queue("weak"), Waiter()
    stage.queue_api.wait(weak, waiter)
    stage.faults.once["fetch"] = Damage("its block is torn", "file", 7)
    stage.put(b"1", to="weak")
    assert (waiter.handed, len(weak.serving().getters)) == ([], 1)
    stage.put(b"2", to="weak")
    assert waiter.handed == [[b"2"]]


def test_an_interrupt_in_the_middle_leaves_nothing_half_done(stage: FaultyStage) -> None:
    stage.put(b"1", to="weak")
    stage.faults.once["publish"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        stage.put(b"2", to="weak")
    assert stage.get("weak") == [b"1"]


def test_a_restart_that_raises_is_an_alarm_and_the_queue_is_down(stage: FaultyStage) -> None:
    """A restart for the loop runs on a thread of its own, which has no caller to raise to."""
    supervisor: Any = stage.vhost.supervisor
    handle = stage.vhost.find_queue("weak")
    queue = handle.serving()
    queue.fail(RuntimeError("a bug"))

    def fail(text: str) -> None:
        raise ValueError("a defect")

    supervisor._report_problem = fail
    supervisor._restart(handle, RuntimeError("a bug"), is_to_blame=False, is_patient=False)
    handle.wait_started()
    with pytest.raises(QueueDown, match="could not be restarted: ValueError"):
        handle.serving()
    while not (alarms := supervisor._task.alarms()):
        continue
    assert "a queue that failed is not restarted" in alarms[0]
