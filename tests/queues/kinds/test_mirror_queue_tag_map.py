"""Tags of one queue and those of another, against a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.queues.kinds.mirror_queue import TagMap

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 6), st.integers(0, 50)), max_size=40)


@given(STEPS, st.sampled_from([2, 10]))
def test_a_map_of_pieces_is_what_a_plain_dict_would_be(steps: list[tuple[bool, int, int, int]], bits: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.queues.pending_acks.BITS", bits)
        compare_with_a_dict(steps)


def compare_with_a_dict(steps: list[tuple[bool, int, int, int]]) -> None:
    tags, plain = TagMap(), dict[int, int]()
    for is_adding, first, size, theirs in steps:
        stop = first + size
        if is_adding and not any(tag in plain for tag in range(first, stop)):
            tags.add(first, stop, theirs)
            plain |= {first + number: theirs + number for number in range(size)}
        elif not is_adding:
            taken = [tag for left, right in tags.take([(first, stop)]) for tag in range(left, right)]
            assert taken == [plain.pop(tag) for tag in range(first, stop) if tag in plain]
        assert tags.count == len(plain)
    assert sorted(t for left, right in tags.take_all() for t in range(left, right)) == sorted(plain.values())
    assert tags.count == 0


def test_pieces_that_follow_one_another_on_both_sides_are_one() -> None:
    tags = TagMap()
    tags.add(3, 5, 0)
    tags.add(5, 9, 2)
    assert tags.take_all() == [(0, 6)]
