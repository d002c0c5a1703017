"""Tags as ranges, against a plain set of numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.errors import Misuse
from warren.queues.pending_acks import BITS, TagRanges

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 6)), max_size=40)


def tags_in(ranges: TagRanges) -> set[int]:
    return {tag for first, stop in ranges for tag in range(first, stop)}


@given(STEPS, st.sampled_from([2, 10]))
def test_ranges_hold_what_a_plain_set_would(steps: list[tuple[bool, int, int]], bits: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.queues.pending_acks.BITS", bits)
        compare_with_a_set(steps)


def compare_with_a_set(steps: list[tuple[bool, int, int]]) -> None:
    ranges, plain = TagRanges(), set[int]()
    for is_adding, first, size in steps:
        named = set(range(first, first + size))
        if is_adding and not named & plain:
            ranges.add(first, first + size)
            plain |= named
        elif not is_adding and named <= plain:
            ranges.take([(first, first + size)])
            plain -= named
        elif not is_adding:
            with pytest.raises(Misuse):
                ranges.take([(first, first + size)])
        assert tags_in(ranges) == plain
        assert ranges.count == len(plain)
        remaining = list(ranges)
        assert all(left[1] < right[0] for left, right in pairwise(remaining)), "they do not touch"


def test_a_refusal_names_the_tag_and_changes_nothing() -> None:
    ranges = TagRanges()
    ranges.add(3, 8)
    with pytest.raises(Misuse, match="tag 8 is not pending"):
        ranges.take([(3, 4), (6, 9)])
    with pytest.raises(Misuse, match="tag 5 is named twice"):
        ranges.take([(5, 7), (4, 6)])
    assert list(ranges) == [(3, 8)]


def test_the_first_are_taken_piece_by_piece() -> None:
    ranges = TagRanges()
    ranges.add(3, 8)
    ranges.add(10, 12)
    assert [ranges.take_first(3), ranges.take_first(9), ranges.take_first(9)] == [(3, 6), (6, 8), (10, 12)]
    assert not ranges


def test_the_first_are_taken_from_bucket_to_bucket() -> None:
    ranges, edge = TagRanges(), 1 << BITS
    ranges.add(edge - 2, edge + 3)
    ranges.add(5, 6)
    assert list(ranges) == [(5, 6), (edge - 2, edge + 3)]
    taken = [ranges.take_first(9) for _ in range(3)]
    assert taken == [(5, 6), (edge - 2, edge), (edge, edge + 3)]
    assert not ranges
