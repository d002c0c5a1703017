"""A queue whose code fails inside a batch affects its own clients only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.faulty_queue import Faults
from tests.broker.stage import BrokerStage
from tests.broker.test_request_batch import BatchStage, Reader, Sender
from warren.base.errors import WarrenError
from warren.base.ids import Epoch
from warren.broker.errors import QueueDown
from warren.broker.queue import BrokerQueue
from warren.broker.queue_arguments import Overflow
from warren.broker.request_batch import GetResult, Settlement
from warren.broker.unit_of_work import UnitOfWork
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.variable_queue import VariableQueue

CHAIN = 450


class FailingStage(BatchStage):
    """The backing queue of `weak` fails as `faults` asks."""

    def __init__(self) -> None:
        self.faults = Faults()
        kinds = {"faulty": lambda wanted: self.faults.over(self.broker.storage._variable(wanted))}
        self.broker = BrokerStage(kinds=kinds)
        super().__init__(self.broker)
        self.broker.queue("weak", backing="faulty")
        for name in ("acked", "requeued", "rejected", "published", "idle"):
            self.broker.queue(name)

    def counts(self, name: str) -> tuple[int, int]:
        """Ready and unacknowledged."""
        handle = self.broker.vhost.find_queue(name)
        handle.wait_started()
        backing = handle.serving().backing
        return len(backing), backing.pending_count

    def settle(self, name: str, settlement: Settlement) -> None:
        """A message that is delivered already."""
        self.broker.put(b"old", to=name)
        delivery = self.broker.take(name)
        self.batch.settle(
            self.broker.vhost.find_queue(name), settlement, delivery.incarnation, delivery.fetched[0].tags
        )


@pytest.fixture
def stage() -> Iterator[FailingStage]:
    stage = FailingStage()
    yield stage
    stage.faults.once.clear()
    stage.faults.always.clear()
    stage.broker.down()


def test_settlements_of_other_queues_survive_a_publish_that_fails(stage: FailingStage) -> None:
    """Issue 12, number 3: they were forgotten, and the messages were unacknowledged until a restart."""
    stage.settle("acked", Settlement.ACK)
    stage.settle("requeued", Settlement.REQUEUE)
    stage.settle("rejected", Settlement.REJECT)
    stage.broker.put(b"waits", to="idle")
    reader = Reader(10)
    stage.consume("idle", reader)
    stage.faults.always["publish"] = RuntimeError("a defect")
    unlucky, lucky, both = Sender(), Sender(), Sender()
    stage.publish(unlucky, 1, b"1", to=stage.route("weak"))
    stage.publish(lucky, 1, b"2", to=stage.route("published"))
    stage.publish(both, 7, b"3", b"4", to=stage.route("weak", "published"))
    done = stage.end()
    assert isinstance(done.error, QueueDown) and done.epoch
    assert (unlucky.nacks, lucky.nacks, both.nacks) == ([(1, 1)], [], [(7, 2)])
    assert [stage.counts(name) for name in ("acked", "requeued", "rejected")] == [(0, 0), (1, 0), (0, 0)]
    assert stage.runs("published") == [[b"2"], [b"3", b"4"]]
    assert reader.contents == [b"waits"]


@pytest.mark.parametrize("priorities", [None, 4])
def test_a_queue_that_was_reached_before_the_one_that_failed_loses_nothing(
    stage: FailingStage, priorities: int | None
) -> None:
    """What was published to it is undone, and published again; it is not restarted."""
    strong = stage.broker.queue("strong", max_priority=priorities)
    stage.broker.put(b"old", to="strong")
    delivery = stage.broker.take("strong")
    stage.batch.settle(strong, Settlement.ACK, delivery.incarnation, delivery.fetched[0].tags)
    stage.faults.always["publish"] = RuntimeError("a defect")
    early, late = Sender(), Sender()
    for persistent in (True, False):
        stage.publish(early, 1, b"%d" % persistent, to=stage.route("strong"), persistent=persistent)
    stage.publish(late, 1, b"1", to=stage.route("weak"))
    assert isinstance(stage.end().error, QueueDown)
    assert (early.nacks, late.nacks, strong.incarnation) == ([], [(1, 1)], 1)
    assert (stage.counts("strong"), stage.runs("strong")) == ((2, 0), [[b"1"], [b"0"]])


@pytest.mark.parametrize("priorities", [None, 4])
def test_acks_of_a_queue_that_was_reached_before_the_one_that_failed_are_kept(
    stage: FailingStage, priorities: int | None
) -> None:
    """They were lost with a restart of that queue, and the messages came again."""
    strong = stage.broker.queue("strong", max_priority=priorities)
    stage.broker.put(b"1", b"2", b"3", b"4", to="strong")
    delivery = stage.broker.take("strong", 4)
    [first, _] = delivery.fetched[0].tags
    for settlement, tags in (
        (Settlement.ACK, (first, first + 1)),
        (Settlement.ACK, (first + 2, first + 3)),
        (Settlement.REJECT, (first + 3, first + 4)),
    ):
        stage.batch.settle(strong, settlement, delivery.incarnation, tags)
    stage.settle("weak", Settlement.ACK)
    stage.faults.always["ack"] = RuntimeError("a defect")
    early = Sender()
    stage.publish(early, 1, b"5", to=stage.route("strong"))
    assert isinstance(stage.end().error, QueueDown)
    assert (early.nacks, strong.incarnation, stage.counts("strong")) == ([], 1, (1, 1))
    stage.batch.settle(strong, Settlement.ACK, delivery.incarnation, (first + 1, first + 2))
    assert stage.end().error is None
    assert (stage.counts("strong"), stage.runs("strong")) == ((1, 0), [[b"5"]])


def test_an_aborted_ack_leaves_the_counters_as_they_are_on_disk(stage: FailingStage) -> None:
    strong = stage.broker.queue("strong")
    stage.broker.put(b"1", b"2", b"3", to="strong")
    [first, stop] = stage.broker.take("strong", 3).fetched[0].tags
    backing = strong.serving().backing
    assert isinstance(backing, VariableQueue)
    before = (
        backing.index_counters.count,
        backing.index_counters.size_bytes,
        dict(backing.index_counters),
        backing.pending.size_bytes,
    )
    changes = stage.broker.storage.index.begin()
    backing.ack([(first, first + 1), (first + 2, stop)], DequeueReason.ACKED, changes)
    changes.abort()
    after = (
        backing.index_counters.count,
        backing.index_counters.size_bytes,
        dict(backing.index_counters),
        backing.pending.size_bytes,
    )
    assert (before, backing.has_diverged) == (after, False)
    changes = stage.broker.storage.index.begin()
    backing.ack([(first, stop)], DequeueReason.ACKED, changes)
    changes.end()
    assert (backing.index_counters.count, backing.pending_count) == (0, 0)


def test_what_was_fetched_before_a_queue_failed_is_fetched_again(stage: FailingStage) -> None:
    stage.broker.put(b"old", to="idle")
    stage.broker.put(b"old", to="weak")
    stage.faults.always["fetch"] = RuntimeError("a defect")
    results: list[GetResult | WarrenError] = []
    stage.batch.get(stage.broker.vhost.find_queue("idle"), False, results.append)
    stage.batch.get(stage.broker.vhost.find_queue("weak"), False, lambda outcome: None)
    stage.end()
    [found] = results
    assert isinstance(found, GetResult) and [each.slice.contents for each in found.fetched] == [[b"old"]]
    assert stage.counts("idle") == (0, 1)


def test_what_was_done_is_not_done_again_when_a_queue_fails_behind_it(
    stage: FailingStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session has ended when queues note their times."""
    attend = BrokerQueue.after_commit

    def failing(queue: BrokerQueue, work: UnitOfWork) -> None:
        if queue.name == "idle":
            raise RuntimeError("a defect")
        attend(queue, work)

    sender = Sender()
    stage.publish(sender, 1, b"1", to=stage.route("published", "idle"))
    with monkeypatch.context() as patch:
        patch.setattr(BrokerQueue, "after_commit", failing)
        done = stage.end()
    assert isinstance(done.error, QueueDown) and done.epoch
    assert (sender.nacks, stage.counts("published"), stage.counts("idle")) == ([], (1, 0), (1, 0))


def test_gets_of_other_queues_are_answered_once(stage: FailingStage) -> None:
    stage.broker.put(b"old", to="idle")
    stage.faults.always["publish"] = RuntimeError("a defect")
    results: list[GetResult | WarrenError] = []
    failed: list[GetResult | WarrenError] = []
    stage.publish(Sender(), 1, b"1", to=stage.route("weak"))
    stage.batch.get(stage.broker.vhost.find_queue("idle"), True, results.append)
    stage.batch.get(stage.broker.vhost.find_queue("weak"), True, failed.append)
    stage.end()
    [found], [error] = results, failed
    assert isinstance(found, GetResult) and [each.slice.contents for each in found.fetched] == [[b"old"]]
    assert isinstance(error, QueueDown)


def test_a_queue_that_has_failed_serves_the_next_batch(stage: FailingStage) -> None:
    stage.faults.once["publish"] = RuntimeError("a defect")
    sender = Sender()
    stage.publish(sender, 1, b"1", to=stage.route("weak"))
    stage.end()
    stage.broker.vhost.find_queue("weak").wait_started()
    stage.publish(sender, 2, b"2", to=stage.route("weak"))
    assert stage.end().error is None
    assert (sender.nacks, stage.runs("weak")) == ([(1, 1)], [[b"2"]])


def test_a_session_that_cannot_end_refuses_publishes_and_keeps_settlements(
    stage: FailingStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No queue is the cause: nothing is tried again, and what was touched is ready again."""
    stage.settle("acked", Settlement.ACK)
    sender = Sender()
    stage.publish(sender, 1, b"1", to=stage.route("published"))
    write, failures = IndexBatch._write, [RuntimeError("a defect")]

    def failing_once(changes: IndexBatch) -> Epoch:
        if failures:
            raise failures.pop()
        return write(changes)

    monkeypatch.setattr(IndexBatch, "_write", failing_once)
    assert stage.end().error is not None
    assert sender.nacks == [(1, 1)]
    assert stage.end().error is None
    assert (stage.counts("acked"), stage.counts("published")) == ((1, 0), (0, 0))


def test_a_settlement_of_a_tag_that_is_not_pending_leaves_the_others_alone(stage: FailingStage) -> None:
    stage.broker.put(b"1", b"2", b"3", to="acked")
    delivery = stage.broker.take("acked", 3)
    handle, [first, stop] = stage.broker.vhost.find_queue("acked"), delivery.fetched[0].tags
    stage.batch.settle(handle, Settlement.ACK, delivery.incarnation, (stop + 5, stop + 6))
    stage.batch.settle(handle, Settlement.ACK, delivery.incarnation, (first, stop))
    assert stage.end().error is None
    assert stage.counts("acked") == (0, 0)


def test_a_long_chain_of_full_queues_passes_a_message_on_to_its_end(stage: FailingStage) -> None:
    """Issue 12, number 3: dead-lettering was a recursion, and a chain of 450 was too deep for it."""
    broker = stage.broker
    for number in range(CHAIN):
        broker.queue(f"q{number}", max_length=0, overflow=Overflow.REJECT_PUBLISH_DLX, dead_letter=f"q{number + 1}")
    broker.queue(f"q{CHAIN}")
    stage.settle("acked", Settlement.ACK)
    sender = Sender()
    stage.publish(sender, 1, b"1", to=stage.route("q0"))
    assert stage.end().error is None
    assert sender.nacks == [(1, 1)]
    assert stage.runs(f"q{CHAIN}") == [[b"1"]]
    assert stage.counts("acked") == (0, 0)
