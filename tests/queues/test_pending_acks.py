"""Pending messages are ranges: cut by what is acknowledged, joined by what is fetched."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queues.backing_stage import numbered
from warren.base.errors import Misuse
from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice
from warren.queues.pending_acks import BITS, PendingAcks

BUCKET = 1 << BITS


def pending_of(*runs: tuple[int, int]) -> PendingAcks:
    pending = PendingAcks()
    for first, count in runs:
        pending.add(Slice(Run(SequenceId(first), count, 4), 0, count, numbered(first, first + count)))
    return pending


def edges(slices: Iterable[Slice]) -> list[tuple[int, int]]:
    return [(slice_.first, slice_.end) for slice_ in slices]


def test_what_is_fetched_singly_becomes_one_again() -> None:
    pending, run = PendingAcks(), Run(SequenceId(0), 50, 4)
    for at in range(50):
        pending.add(Slice(run, at, at + 1, numbered(at, at + 1)))
    assert edges(pending) == [(0, 50)]
    assert pending.take([(0, 50)])[0].contents == numbered(0, 50)


def test_taking_from_front_rear_and_middle() -> None:
    pending = pending_of((0, 10))
    assert [slice_.contents for slice_ in pending.take([(0, 2)])] == [numbered(0, 2)]
    assert [slice_.contents for slice_ in pending.take([(8, 10)])] == [numbered(8, 10)]
    assert [slice_.contents for slice_ in pending.take([(4, 5)])] == [numbered(4, 5)]
    assert edges(pending) == [(2, 4), (5, 8)]
    assert [slice_.contents for slice_ in pending] == [numbered(2, 4), numbered(5, 8)]
    assert (pending.count, pending.size_bytes, pending.ram_count, pending.ram_bytes) == (5, 20, 5, 20)


def test_a_range_may_span_runs_and_buckets() -> None:
    pending = pending_of((BUCKET - 5, 10), (BUCKET + 5, 3000))
    taken = pending.take([(BUCKET - 2, BUCKET + 2500)])
    assert sum(map(len, taken)) == 2502
    left = [tag for slice_ in pending for tag in range(slice_.first, slice_.end)]
    assert left == [*range(BUCKET - 5, BUCKET - 2), *range(BUCKET + 2500, BUCKET + 3005)]
    assert pending.count == len(left)


@pytest.mark.parametrize(
    "ranges", [[(3, 4)], [(0, 4)], [(0, 1), (0, 1)], [(1, 3), (2, 3)], [(4, 9)], [(-3, -1)], [(99999, 100000)]]
)
def test_a_wrong_tag_changes_nothing(ranges: list[tuple[int, int]]) -> None:
    pending = pending_of((0, 3), (4, 4))
    with pytest.raises(Misuse):
        pending.take(ranges)
    assert edges(pending) == [(0, 3), (4, 8)]
    assert pending.count == 7


def test_the_first_one_is_known() -> None:
    pending = pending_of((5000, 2), (10, 2))
    heads = [pending.head]
    for first in (10, 5000):
        pending.take([(first, first + 2)])
        heads.append(pending.head)
    assert [None if head is None else head.first for head in heads] == [10, 5000, None]


def test_which_messages_of_a_run_are_pending() -> None:
    pending = pending_of((0, 4), (4, 2 * BUCKET))
    pending.take([(5, 7), (BUCKET, BUCKET + 1)])
    bits = pending.bits_of(Run(SequenceId(4), 2 * BUCKET, 4))
    gone = {1, 2, BUCKET - 4}
    assert bits == sum(1 << at for at in range(2 * BUCKET) if at not in gone)
    assert PendingAcks().bits_of(Run(SequenceId(4), 9, 4)) == 0


def test_contents_are_released_and_only_those_that_are_written() -> None:
    pending = pending_of((0, 4), (BUCKET, 4))

    def page(slices: list[Slice]) -> list[Slice]:
        return [Slice(slice_.run, slice_.start, slice_.stop, None) for slice_ in slices]

    assert pending.release(100, lambda run: run.first == 0, page) == 4
    assert (pending.ram_count, pending.ram_bytes, pending.count) == (4, 16, 8)
    assert pending.release(100, lambda run: True, page) == 4
    assert (pending.ram_count, pending.ram_bytes, pending.count, pending.size_bytes) == (0, 0, 8, 32)
    assert pending.release(100, lambda run: True, page) == 0


def test_a_slice_stays_its_owners() -> None:
    pending, slice_ = PendingAcks(), Slice(Run(SequenceId(0), 4, 4), 0, 4, numbered(0, 4))
    pending.add(slice_)
    pending.take([(0, 1)])
    pending.select([(1, 2)])[0].contents = None
    assert (slice_.start, slice_.contents) == (0, numbered(0, 4))
    assert [each.contents for each in pending] == [numbered(1, 4)]


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 900), st.booleans()), max_size=30))
def test_it_is_a_set_of_tags(steps: list[tuple[int, int, bool]]) -> None:
    pending, model = PendingAcks(), set[int]()
    for first, count, is_added in steps:
        tags = set(range(first, first + count))
        if is_added and not tags & model:
            pending.add(Slice(Run(SequenceId(first), count, 4), 0, count, None))
            model |= tags
        elif not is_added and tags <= model:
            assert sum(map(len, pending.take([(first, first + count)]))) == count
            model -= tags
        elif not is_added:
            with pytest.raises(Misuse):
                pending.take([(first, first + count)])
        assert pending.count == len(model)
        assert [tag for slice_ in pending for tag in range(slice_.first, slice_.end)] == sorted(model)
        assert (pending.head.first if pending.head else None) == min(model, default=None)
