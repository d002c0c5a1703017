"""One sub-queue: counts without iteration, slices that are cut on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tests.queues.backing_stage import numbered
from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice
from warren.queues.subqueues import CUT_MESSAGES, SubQueue


def slice_of(first: int, count: int, has_contents: bool = True) -> Slice:
    return Slice(Run(SequenceId(first), count, 4), 0, count, numbered(first, first + count) if has_contents else None)


class Unlooked(deque[Slice]):
    """Fails when it is counted or iterated."""

    def __iter__(self) -> Iterator[Slice]:
        raise AssertionError("every slice is read")

    def __len__(self) -> int:
        raise AssertionError("slices are counted")


def test_vq_08_its_length_is_known_at_once() -> None:
    """VQ-08: messages and bytes, without reading its contents; the counts of the queue as well."""
    subqueue = SubQueue()
    subqueue.extend([slice_of(0, 5), slice_of(5, 7, has_contents=False)])
    subqueue.slices = Unlooked(subqueue.slices)
    assert (len(subqueue), subqueue.count, subqueue.size_bytes, subqueue.ram_count, subqueue.ram_bytes) == (
        12,
        12,
        48,
        5,
        20,
    )


def test_taking_from_both_ends_splits_slices() -> None:
    subqueue = SubQueue()
    subqueue.extend([slice_of(0, 5), slice_of(5, 5, has_contents=False)])
    first, last = subqueue.take_first(2), subqueue.take_last(3)
    assert (first.first, first.end, first.contents) == (0, 2, numbered(0, 2))
    assert (last.first, last.end, last.contents) == (7, 10, None)
    assert [(slice_.first, slice_.end) for slice_ in subqueue] == [(2, 5), (5, 7)]
    assert subqueue.first.contents == numbered(2, 5)
    assert (subqueue.count, subqueue.size_bytes, subqueue.ram_count, subqueue.ram_bytes) == (5, 20, 3, 12)
    assert (len(subqueue.take_first(99)), len(subqueue.take_last(99)), subqueue.count) == (3, 2, 0)


def test_contents_with_another_reference_are_not_touched() -> None:
    subqueue, contents = SubQueue(), numbered(0, 4)
    subqueue.append(Slice(Run(SequenceId(0), 4, 4), 0, 4, contents))
    subqueue.take_first(1)
    subqueue.take_last(1)
    assert contents == numbered(0, 4)


def test_a_few_messages_of_a_long_slice_do_not_cost_a_copy_of_all_of_it() -> None:
    subqueue = SubQueue()
    subqueue.append(slice_of(0, 10 * CUT_MESSAGES))
    taken = [subqueue.take_first(1) for _ in range(CUT_MESSAGES + 1)]
    assert [each.contents for each in taken] == [[content] for content in numbered(0, CUT_MESSAGES + 1)]
    assert len(subqueue.slices) == 2
    assert subqueue.count == 9 * CUT_MESSAGES - 1


def test_inserting_keeps_the_order() -> None:
    subqueue = SubQueue()
    for first in (4, 8, 0, 6, 2, 9):
        subqueue.insert(slice_of(first, 1))
    assert [slice_.first for slice_ in subqueue] == [0, 2, 4, 6, 8, 9]
    assert subqueue.count == 6
