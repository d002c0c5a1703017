from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.ids import FileNumber, Lsn, lsn_of
from warren.base.messages import Sizes
from warren.message_store.body_format import UNIT_MESSAGES_MAX, Body, BodyPlace, every
from warren.message_store.read import BodyPart, cut, edges_of, flags, pieces_of, shares

PLACES = (BodyPlace(lsn_of(FileNumber(1), 0), 0),)


def sizes_of(reported: list[int]) -> Sizes:
    return reported[0] if len(set(reported)) == 1 else np.array(reported, dtype=np.uint32)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 100))
def test_units_follow_one_another_and_only_a_large_content_is_over_the_limit(reported: list[int], limit: int) -> None:
    parts = cut(sizes_of(reported), len(reported), limit)
    assert [at for part in parts for at in range(part.first, part.first + part.messages)] == list(range(len(reported)))
    for part in parts:
        own = reported[part.first : part.first + part.messages]
        assert part.size_bytes == sum(own)
        assert part.size_bytes <= limit or part.messages == 1
    for part, behind in pairwise(parts):
        assert part.size_bytes + reported[behind.first] > limit, "joined as far as they fit"


def test_contents_without_bytes_are_cut_by_their_number() -> None:
    parts = cut(0, UNIT_MESSAGES_MAX + 1)
    assert parts == [BodyPart(0, UNIT_MESSAGES_MAX, 0), BodyPart(UNIT_MESSAGES_MAX, 1, 0)]


@given(st.lists(st.integers(0, 9), min_size=4, max_size=30), st.data())
def test_a_message_that_is_not_kept_has_no_bytes(reported: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(reported) - 1))
    messages = len(reported) - first
    alive = data.draw(st.integers(0, every(messages)))
    edges = edges_of(Body(Lsn(1), 0, first, messages, PLACES, alive), sizes_of(reported)).tolist()
    own = [size if alive >> at & 1 else 0 for at, size in enumerate(reported[first:])]
    assert edges == [sum(own[:at]) for at in range(messages + 1)]
    assert flags(alive, messages).tolist() == [bool(alive >> at & 1) for at in range(messages)]


@pytest.mark.parametrize(
    ("size", "pieces"),
    [(0, [(0, 0)]), (1, [(0, 1)]), (10, [(0, 10)]), (11, [(0, 10), (10, 11)]), (20, [(0, 10), (10, 20)])],
)
def test_a_large_content_is_cut_into_chunks(size: int, pieces: list[tuple[int, int]]) -> None:
    assert pieces_of(size, 10) == pieces


@given(st.integers(0, 10**9), st.lists(st.integers(0, 1000), min_size=1, max_size=9).filter(any))
def test_nothing_is_lost_when_a_number_is_dealt_out(total: int, weights: list[int]) -> None:
    dealt = shares(total, weights)
    assert sum(dealt) == total
    assert all(abs(each - total * weight / sum(weights)) <= 1 for each, weight in zip(dealt, weights, strict=True))
