"""Cutting a publication into runs that fit a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.ids import QueueId, SequenceId
from warren.base.messages import QueuePlace, Run, sizes_of
from warren.queue_index.row_format import check_run, cuts


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(0, 12) | st.none(), st.integers(1, 30), st.integers(1, 9))
def test_cuts_are_everything_in_order_and_as_long_as_they_may_be(
    given_sizes: list[int], embed_below: int | None, bytes_max: int, count_max: int
) -> None:
    sizes = sizes_of([bytes(size) for size in given_sizes])
    found = cuts(sizes, len(given_sizes), embed_below, bytes_max, count_max)
    assert [at for start, stop in found for at in range(start, stop)] == list(range(len(given_sizes)))
    for index, (start, stop) in enumerate(found):
        part = given_sizes[start:stop]
        assert fits(part, embed_below, bytes_max, count_max)
        if index + 1 < len(found):
            assert not fits([*part, given_sizes[stop]], embed_below, bytes_max, count_max)


def fits(sizes: list[int], embed_below: int | None, bytes_max: int, count_max: int) -> bool:
    is_mixed = embed_below is not None and len({size >= embed_below for size in sizes}) > 1
    return len(sizes) <= count_max and not is_mixed and (sum(sizes) <= bytes_max or len(sizes) == 1)


@pytest.mark.parametrize("size", [0, 1, 100, 4095])
def test_runs_cut_by_the_limits_of_the_format_fit_its_rows(size: int) -> None:
    count = 40_000
    contents = [bytes(size)] * count
    contents[7] = bytes(max(0, size - 1))
    sizes = sizes_of(contents)
    for start, stop in cuts(sizes, count, 4096):
        part = sizes if isinstance(sizes, int) else sizes[start:stop]
        run = Run(SequenceId(start), stop - start, part)
        check_run(QueuePlace(QueueId(1)), run, contents[start:stop])
        assert run.size_of(0, run.count) <= 512 << 10


def test_the_limit_for_embedding_is_exact() -> None:
    """Sizes n - 1, n and n + 1."""
    assert cuts(np.array([4095, 4096, 4097, 4095], dtype=np.uint32), 4, 4096) == [(0, 1), (1, 3), (3, 4)]
