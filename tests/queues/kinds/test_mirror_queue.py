"""The mirror queue: a second queue that follows the first, and can replace it (BQ-07, QP-04)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.queues.backing_stage import (
    BackingStage,
    changes_to_nowhere,
    contents_of,
    flags_of,
    numbered,
    one,
    tags_of,
)
from tests.queues.levels_machine import LevelsMachine
from tests.queues.proxy_kinds import TWO_QUEUES, VariableQueues, check_in_step
from warren.base.errors import DiskFailure, Misuse, Refused
from warren.base.messages import Publication
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.kinds.memory_queue import MemoryQueue
from warren.queues.kinds.mirror_queue import MirrorQueue


class Failing(MemoryQueue):
    """Its disk fails on request."""

    is_failing = False

    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        if self.is_failing:
            raise DiskFailure("the disk is gone")
        super().publish(publication, batch)


class Mirrored:
    """A mirror over two memory queues, with the words of a stage."""

    def __init__(self, master: MemoryQueue | None = None, second: MemoryQueue | None = None) -> None:
        self.master = MemoryQueue() if master is None else master
        self.second = MemoryQueue() if second is None else second
        self.mirror = MirrorQueue(self.master)
        self.stage = BackingStage(self.mirror)

    def synchronized(self) -> Mirrored:
        self.mirror.add(self.second)
        return self

    def promote(self, may_lose: bool = False) -> None:
        self.mirror.promote(changes_to_nowhere(), may_lose)


def test_bq_07_every_call_reaches_both_queues() -> None:
    """BQ-07, BQ-05: one proxy in front, two backing queues behind it that are always alike."""
    it = Mirrored().synchronized()
    it.stage.put(*numbered(0, 8))
    tags = tags_of(it.stage.get(5))
    it.stage.ack(one(tags[0]), one(tags[2]))
    it.stage.requeue(one(tags[3]))
    it.stage.drop(2)
    for queue in (it.master, it.second):
        ready = [content for slice_ in queue.browse() for content in slice_.contents or []]
        assert (ready, queue.pending_count) == (numbered(6, 8), 2)
    check_in_step(it.mirror)


def test_qp_04_the_second_queue_takes_the_place_of_the_first() -> None:
    """BQ-07, QP-04: what was a mirror comes back as the queue. Pending messages are ready again and flagged, in their
    old places, as after a crash; earlier tags are invalid."""
    it = Mirrored().synchronized()
    it.stage.put(*numbered(0, 6))
    tags = tags_of(it.stage.get(4))
    it.stage.ack(one(tags[1]))
    it.promote()
    assert not it.mirror.has_second
    with pytest.raises(Misuse):
        it.stage.ack(one(tags[0]))
    it.stage.put(b"new")
    fetched = it.stage.get(9)
    assert contents_of(fetched) == [b"0000", b"0002", b"0003", b"0004", b"0005", b"new"]
    assert flags_of(fetched) == [True] * 3 + [False] * 3
    assert len(it.master) == 2, "the old one is left alone"


def test_the_second_queue_has_tags_of_its_own() -> None:
    second = MemoryQueue()
    for number in range(3):  # its next sequence ids are others
        second.publish(Publication([b"%d" % number]), changes_to_nowhere())
    second.purge(changes_to_nowhere())
    it = Mirrored(second=second).synchronized()
    it.stage.put(*numbered(0, 6))
    tags = tags_of(it.stage.get(5))
    it.stage.ack(one(tags[1]), (tags[3], tags[4] + 1))
    it.stage.requeue(one(tags[2]))
    check_in_step(it.mirror)
    it.promote()
    assert it.stage.browsed() == [b"0000", b"0002", b"0005"]


# -- a second queue that comes late ----------------------------------------------------------------------------------


def test_a_late_second_queue_is_in_step_when_the_old_messages_have_gone() -> None:
    it = Mirrored()
    it.stage.put(*numbered(0, 6))
    tags = tags_of(it.stage.get(2))
    it.synchronized()
    it.stage.put(*numbered(6, 9))
    assert (it.mirror.lacking, it.mirror.is_in_step, len(it.second)) == (6, False, 3)
    with pytest.raises(Refused, match="it lacks 6 messages"):
        it.promote()
    it.stage.ack(one(tags[0]))
    it.stage.requeue(one(tags[1]))
    assert (it.mirror.lacking, it.stage.drop(1)) == (5, 1)
    more = tags_of(it.stage.get(5))
    assert (it.mirror.lacking, len(it.second), it.second.pending_count) == (4, 2, 1)
    it.stage.requeue(one(more[3]))
    it.stage.ack(*map(one, more[:3]))
    assert it.mirror.lacking == 1
    assert it.stage.drop(1) == 1
    check_in_step(it.mirror)
    it.promote()
    assert it.stage.browsed() == numbered(6, 9)


def test_purging_takes_what_the_second_queue_never_had_as_well() -> None:
    it = Mirrored()
    it.stage.put(*numbered(0, 3))
    it.synchronized()
    it.stage.put(*numbered(3, 5))
    assert it.stage.purge() == 5
    check_in_step(it.mirror)


def test_a_late_second_queue_is_synchronised_with_the_places_of_pending_messages() -> None:
    it = Mirrored()
    it.stage.put(*numbered(0, 4))
    it.stage.put(*numbered(4, 6), is_persistent=False, expires_ms=77)
    tags = tags_of(it.stage.get(4))
    it.stage.requeue(one(tags[2]))
    it.synchronized()
    assert it.mirror.synchronise(changes_to_nowhere()) == 6
    check_in_step(it.mirror)
    it.stage.requeue(one(tags[1]))
    it.stage.ack(one(tags[0]))
    check_in_step(it.mirror)
    it.promote()
    fetched = it.stage.get(9)
    assert contents_of(fetched) == numbered(1, 6)
    assert flags_of(fetched) == [True] * 5, "whatever was copied may have been delivered before"
    assert [each.slice.run.expires_ms for each in fetched] == [0, 0, 0, 77, 77]


def test_synchronising_again_repairs_a_second_queue_that_was_draining() -> None:
    it = Mirrored()
    it.stage.put(*numbered(0, 3))
    it.synchronized()
    it.stage.put(*numbered(3, 6))
    tags = tags_of(it.stage.get(5))
    it.mirror.synchronise(changes_to_nowhere())
    it.stage.ack(*map(one, tags))
    check_in_step(it.mirror)
    assert it.stage.browsed() == [b"0005"]


def test_two_queues_that_one_start_has_found_equal_stay_in_step() -> None:
    """Master and mirror recover each what they had; the proxy is put in front of both and finds them alike."""
    first, second = MemoryQueue(), MemoryQueue()
    for queue in (first, second):
        queue.publish(Publication(numbered(0, 4)), changes_to_nowhere())
    it = Mirrored(first, second).synchronized()
    check_in_step(it.mirror)
    it.stage.get(2)
    it.promote()
    assert it.stage.browsed() == numbered(0, 4)


# -- differences -----------------------------------------------------------------------------------------------------


def test_a_second_queue_that_begins_otherwise_is_not_in_step() -> None:
    second = MemoryQueue()
    second.publish(Publication([b"strange"]), changes_to_nowhere())
    it = Mirrored(second=second).synchronized()
    assert not it.mirror.is_in_step
    with pytest.raises(Refused, match="differed from the master"):
        it.promote()
    it.mirror.synchronise(changes_to_nowhere())
    check_in_step(it.mirror)


def test_a_difference_is_found_when_it_is_fetched_and_the_master_continues() -> None:
    it = Mirrored().synchronized()
    it.stage.put(*numbered(0, 4))
    it.second.drop(1, *_reason_and_batch())
    assert not it.mirror.is_in_step
    assert any("ready" in text for text in it.mirror.differences())
    assert contents_of(it.stage.get(1)) == [b"0000"]
    assert "differs in the second queue" in str(it.mirror.facts()["difference"])
    it.stage.put(b"more")
    assert contents_of(it.stage.get(9)) == [*numbered(1, 4), b"more"]
    with pytest.raises(Refused):
        it.promote()
    it.promote(may_lose=True)
    assert it.stage.browsed() == numbered(1, 4)


def test_contents_that_differ_are_found_by_browsing_both() -> None:
    it = Mirrored()
    for queue, content in ((it.master, b"one"), (it.second, b"two")):
        queue.publish(Publication([content]), changes_to_nowhere())
    it.synchronized()
    assert it.mirror.is_in_step, "counts and bytes are alike: that is all it can see at once"
    assert list(it.mirror.differences()) == ["ready message 0 differs in the second queue"]


@pytest.mark.parametrize("call", ["drop", "purge"])
def test_releasing_another_number_is_a_difference(call: str) -> None:
    it = Mirrored().synchronized()
    it.stage.put(*numbered(0, 4))
    it.second.drop(3, *_reason_and_batch())
    assert (it.stage.drop(2) if call == "drop" else it.stage.purge()) in (2, 4)
    assert "in the second queue 1" in str(it.mirror.facts()["difference"])


def test_a_second_queue_that_fails_does_not_disturb_the_master() -> None:
    second = Failing()
    it = Mirrored(second=second).synchronized()
    it.stage.put(b"a")
    second.is_failing = True
    it.stage.put(b"b")
    assert it.stage.browsed() == [b"a", b"b"]
    assert (it.mirror.is_in_step, it.mirror.facts()["difference"]) == (False, "the disk is gone")
    it.mirror.add(MemoryQueue())
    it.mirror.synchronise(changes_to_nowhere())
    check_in_step(it.mirror)


def test_qp_04_a_master_that_fails_is_replaced_and_nothing_that_was_taken_is_lost() -> None:
    """QP-04: the queue that started as the master is replaced by the other one."""
    master = Failing()
    it = Mirrored(master=master).synchronized()
    it.stage.put(*numbered(0, 3))
    master.is_failing = True
    with pytest.raises(DiskFailure):
        it.stage.put(b"lost, and reported")
    it.promote()
    it.stage.put(b"continues")
    assert it.stage.browsed() == [*numbered(0, 3), b"continues"]


def test_without_a_second_queue_there_is_nothing_to_promote_or_to_compare() -> None:
    it = Mirrored()
    assert (it.mirror.is_in_step, list(it.mirror.differences())) == (False, ["there is no second queue"])
    for call in (it.mirror.promote, it.mirror.synchronise):
        with pytest.raises(Misuse):
            call(changes_to_nowhere())
    it.synchronized()
    with pytest.raises(Misuse):
        it.mirror.add(MemoryQueue())


class MirrorMachine(LevelsMachine):
    """Every few steps the second queue becomes the queue, and another one follows it, by draining or copied."""

    promoted = 0

    def make(self) -> BackingStage:
        self.mirror = MirrorQueue(MemoryQueue(), MemoryQueue())
        return BackingStage(self.mirror)

    @rule(is_synchronised=st.booleans())
    def another_one_follows(self, is_synchronised: bool) -> None:
        if not self.mirror.has_second:
            self.mirror.add(MemoryQueue())
        if is_synchronised:
            self.mirror.synchronise(changes_to_nowhere())
            for entry in self.model.ready():
                entry.is_copied = True

    @precondition(lambda self: self.mirror.has_second and not self.mirror.lacking)
    @rule()
    def promote(self) -> None:
        check_in_step(self.mirror)
        self.mirror.promote(changes_to_nowhere())
        MirrorMachine.promoted += 1
        for entry in self.pending.values():
            entry.is_pending = False
        for entry in self.model.ready():
            entry.is_delivered |= entry.is_copied
        self.pending = {}


class MirrorOfVariableMachine(MirrorMachine):
    """Begins with two queues in one log, which are paged after each call."""

    def make(self) -> BackingStage:
        below = VariableQueues(TWO_QUEUES)
        self.mirror = MirrorQueue(*below.queues)
        self.mirror.set_ram_duration_target(0.0)
        return BackingStage(self.mirror, below.index.begin, below.after)


@pytest.mark.parametrize("machine", [MirrorMachine, MirrorOfVariableMachine])
def test_bq_07_a_mirror_equals_a_plain_list_for_either_master(machine: type[MirrorMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
    assert MirrorMachine.promoted > 10


def _reason_and_batch() -> tuple[DequeueReason, IndexBatch]:
    return DequeueReason.OVER_LIMIT, changes_to_nowhere()
