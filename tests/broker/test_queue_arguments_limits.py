"""Queue limits, against counting one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice
from warren.broker.queue_arguments import QueueArguments, count_fitting, count_over, is_over

LIMITS = st.one_of(st.none(), st.integers(0, 30))
SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def slice_of(sizes: list[int], start: int = 0) -> Slice:
    is_one = len(set(sizes)) == 1
    run = Run(SequenceId(0), len(sizes), sizes[0] if is_one else np.array(sizes, dtype=np.uint32))
    return Slice(run, start, len(sizes), None)


@given(SIZES, st.data(), st.integers(0, 10), st.integers(0, 40), LIMITS, LIMITS)
def test_as_many_of_the_head_go_as_must(
    sizes: list[int], data: st.DataObject, others: int, other_bytes: int, most: int | None, most_bytes: int | None
) -> None:
    head = slice_of(sizes, data.draw(st.integers(0, len(sizes) - 1)))
    arguments = QueueArguments(max_length=most, max_length_bytes=most_bytes)
    count, size_bytes, gone = others + len(head), other_bytes + head.size_bytes, 0
    left, left_bytes = count, size_bytes
    while gone < len(head) and is_over(arguments, left, left_bytes):
        left, left_bytes, gone = left - 1, left_bytes - sizes[head.start + gone], gone + 1
    assert count_over(arguments, count, size_bytes, head) == gone


@given(SIZES, st.integers(0, 10), st.integers(0, 40), LIMITS, LIMITS)
def test_as_many_fit_as_are_not_over(
    sizes: list[int], count: int, size_bytes: int, most: int | None, most_bytes: int | None
) -> None:
    arguments, coming, fits, fit_bytes = (
        QueueArguments(max_length=most, max_length_bytes=most_bytes),
        slice_of(sizes),
        0,
        0,
    )
    while fits < len(sizes) and not is_over(arguments, count + fits + 1, size_bytes + fit_bytes + sizes[fits]):
        fit_bytes, fits = fit_bytes + sizes[fits], fits + 1
    assert count_fitting(arguments, count, size_bytes, coming) == fits
