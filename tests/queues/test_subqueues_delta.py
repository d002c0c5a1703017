"""Delta: what is on disk only, read back in order without what is gone or pending."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queues.backing_stage import contents_of, numbered, one, tags_of
from tests.queues.variable_stage import TINY, VariableStage
from warren.queue_index.history_format import DequeueReason
from warren.queues import index_counters
from warren.queues.invariants import check
from warren.queues.subqueues import ones_of


@given(st.integers(0, (1 << 70) - 1), st.integers(0, 80))
def test_bits_as_ranges(bits: int, width: int) -> None:
    found = [at for start, stop in ones_of(bits, width) for at in range(start, stop)]
    assert found == [at for at in range(width) if bits >> at & 1]


def test_all_bits_may_be_set_however_many_there_are() -> None:
    assert list(ones_of(-1, 5)) == [(0, 5)]


def paged(stage: VariableStage) -> None:
    stage.queue.subqueues.push_alphas_to_betas(1000, 1000)
    stage.queue.subqueues.push_betas_to_deltas(1000)


def test_both_kinds_are_merged_by_sequence_id() -> None:
    stage = VariableStage(TINY)
    for number in range(20):
        stage.backing.put(*numbered(number, number + 1), is_persistent=number % 3 != 1)
    paged(stage)
    delta = stage.queue.subqueues.delta
    assert (delta.start, delta.end, delta.count, delta.size_bytes) == (1, 20, 19, 76)
    check(stage.queue, is_deep=True)
    assert contents_of(stage.backing.get(20)) == numbered(0, 20)


@pytest.mark.parametrize("is_persistent", [True, False])
def test_removed_and_pending_messages_are_skipped(is_persistent: bool) -> None:
    """The range was fetched once: some of it is acknowledged, some pending, the rest came back and went to disk."""
    stage = VariableStage(TINY)
    for first in range(0, 18, 6):
        stage.backing.put(*numbered(first, first + 6), is_persistent=is_persistent)
    tags = tags_of(stage.backing.get(18))
    stage.backing.ack(*(one(tag) for tag in tags[1::3]))
    stage.backing.requeue(*(one(tag) for tag in tags[2::3]))
    paged(stage)
    assert stage.subqueues() == {"q3": [3], "delta": [6, 9, 12, 15, 18]}
    check(stage.queue, is_deep=True)
    assert contents_of(stage.backing.get(18)) == [content for content in numbered(2, 18) if int(content) % 3 == 2]
    stage.backing.ack(*(one(tag) for tag in [*tags[0::3], *tags[2::3]]))
    assert (len(stage.queue), stage.queue.index_counters.count, stage.transient.units) == (0, 0, {})


def test_a_transient_piece_that_is_read_in_part_keeps_its_rest() -> None:
    """Many transient ones in one piece, a few persistent ones between: reading stops in the midst of the piece."""
    stage = VariableStage(TINY)
    for number in range(40):
        stage.backing.put(*numbered(number, number + 1), is_persistent=number % 2 == 0)
    paged(stage)
    contents = []
    while len(stage.queue):
        contents += contents_of(stage.backing.get(1))
        check(stage.queue)
    assert contents == numbered(0, 40)
    stage.backing.ack((0, 40))
    assert stage.transient.units == {}


def test_pieces_may_lie_within_one_another() -> None:
    """What is requeued to delta is a piece of its own, in the midst of another."""
    stage = VariableStage(TINY)
    for number in range(30):
        stage.backing.put(*numbered(number, number + 1), is_persistent=False)
    tags = tags_of(stage.backing.get(30))
    for start in (0, 1, 2):
        stage.backing.requeue(*(one(tag) for tag in tags[start::3]))
        paged(stage)
        check(stage.queue, is_deep=True)
    assert contents_of(stage.backing.get(30)) == numbered(0, 30)
    stage.backing.ack((0, 30))
    assert stage.transient.units == {}


def test_memory_for_delta_does_not_grow_with_it() -> None:
    stage = VariableStage()
    for first in range(0, 5000, 500):
        stage.backing.put(*numbered(first, first + 500))
        paged(stage)
    subqueues = stage.queue.subqueues
    assert (subqueues.delta.count, len(subqueues.q3.slices), len(subqueues.q2.slices), len(subqueues.q1.slices)) == (
        4999,
        1,
        0,
        0,
    )


def test_what_leaves_in_changes_that_have_not_ended_does_not_come_back() -> None:
    """A run that is wholly gone is still in the index when its range is read again."""
    stage = VariableStage(TINY)
    for first in range(0, 12, 4):
        stage.backing.put(*numbered(first, first + 4))
    tags = tags_of(stage.backing.get(8))
    batch = stage.begin()
    stage.queue.ack([(tags[4], tags[7] + 1)], DequeueReason.ACKED, batch)
    stage.queue.requeue([(tags[0], tags[3] + 1)], batch)
    paged(stage)
    check(stage.queue, is_deep=True)
    batch.end()
    check(stage.queue, is_deep=True)
    assert contents_of(stage.backing.get(12)) == [*numbered(0, 4), *numbered(8, 12)]


def test_a_removal_that_is_not_durable_does_not_reappear_either() -> None:
    """Reading delta waits for no sync, so it may see a run whose removal is on its way to the disk."""
    stage = VariableStage(TINY, is_prompt=False)
    for first in range(0, 12, 4):
        stage.backing.put(*numbered(first, first + 4))
    stage.index.settle()
    durable = stage.index.durable_epoch
    tags = tags_of(stage.backing.get(8))
    stage.backing.ack((tags[4], tags[7] + 1))
    stage.backing.requeue((tags[0], tags[3] + 1))
    paged(stage)
    check(stage.queue, is_deep=True)
    assert stage.index.durable_epoch == durable
    assert contents_of(stage.backing.get(12)) == [*numbered(0, 4), *numbered(8, 12)]


# -- an index that is behind the log ---------------------------------------------------------------------------------


def lagging(applied: int, unapplied: int) -> VariableStage:
    """Messages in runs of their own, of which scans of the index see the first ones only."""
    stage = VariableStage(TINY, lags=True)
    stage.backing.put(*numbered(0, 1))
    for number in range(1, applied):
        stage.backing.put(*numbered(number, number + 1))
    stage.index.apply()
    for number in range(applied, applied + unapplied):
        stage.backing.put(*numbered(number, number + 1))
    return stage


def test_a_position_stays_in_memory_until_a_scan_finds_it() -> None:
    stage = lagging(applied=4, unapplied=4)
    paged(stage)
    assert stage.subqueues() == {"q3": [1], "delta": [2, 3, 4], "q2": [5, 6, 7, 8]}
    stage.index.apply()
    paged(stage)
    assert stage.subqueues() == {"q3": [1], "delta": [2, 3, 4, 5, 6, 7, 8]}
    assert contents_of(stage.backing.get(8)) == numbered(0, 8)


def test_if_nothing_may_leave_everything_stays_where_it_was() -> None:
    stage = lagging(applied=1, unapplied=5)
    paged(stage)
    assert stage.subqueues() == {"q3": [1, 2, 3, 4, 5, 6]}
    assert contents_of(stage.backing.get(6)) == numbered(0, 6)


def test_a_message_that_is_put_back_behind_delta_stays_in_memory_until_a_scan_finds_it() -> None:
    stage = lagging(applied=6, unapplied=1)
    tags = tags_of(stage.backing.get(7))
    stage.backing.requeue(*map(one, tags[:6]))
    paged(stage)
    assert stage.subqueues()["delta"] == [2, 3, 4, 5, 6]
    stage.backing.requeue(one(tags[6]))
    assert contents_of(stage.backing.get(7)) == numbered(0, 7)
    assert stage.queue.subqueues.delta.missing == 0


def test_an_acknowledged_run_that_a_scan_still_sees_does_not_come_back() -> None:
    stage = lagging(applied=8, unapplied=0)
    tags = tags_of(stage.backing.get(8))
    stage.backing.ack(one(tags[3]))
    stage.backing.put(*numbered(8, 9))  # another session ends: the removal is durable, and not applied
    stage.backing.requeue(*map(one, tags[:3] + tags[4:]))
    paged(stage)
    assert contents_of(stage.backing.get(9)) == [*numbered(0, 3), *numbered(4, 9)]


def test_removals_are_remembered_up_to_a_limit_then_scans_must_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the index stands still, what is kept of messages that are gone stays bounded."""
    monkeypatch.setattr(index_counters, "ENDED_MAX", 3)
    stage = lagging(applied=12, unapplied=0)
    tags = tags_of(stage.backing.get(12))
    for tag in tags[2:11]:
        stage.backing.ack(one(tag))
    assert len(list(stage.queue.index_counters)) <= 4
    stage.backing.requeue(*map(one, [*tags[:2], tags[11]]))
    paged(stage)
    assert contents_of(stage.backing.get(12)) == [*numbered(0, 2), *numbered(11, 12)]
