"""Columns of whole numbers: what costs nothing costs nothing, and what comes back is what went in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.ids import UINT64_MAX
from warren.records.columns import WIDTHS, NumberColumn, narrowest

values = st.one_of(st.integers(0, 3), st.integers(0, 1 << 17), st.integers(0, UINT64_MAX))
lists = st.lists(values, max_size=50)


def numbers_of(items: list[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(items, dtype=np.uint64))


@settings(deadline=None)
@given(lists)
def test_an_array_comes_back_as_it_was(items: list[int]) -> None:
    numbers = numbers_of(items)
    assert numbers.count == len(items)
    assert numbers.array().tolist() == items
    assert numbers.array().dtype == np.uint64
    assert [numbers.at(i) for i in range(len(items))] == items


@settings(deadline=None)
@given(lists, st.data())
def test_a_part_holds_the_values_between(items: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.integers(start, len(items)))
    for numbers, whole in (
        (numbers_of(items), items),
        (NumberColumn.sequence(len(items), 7, 3), _steps(len(items), 7, 3)),
    ):
        part = numbers.part(start, stop)
        assert part.array().tolist() == whole[start:stop]
        assert [part.at(i) for i in range(stop - start)] == whole[start:stop]


def _steps(count: int, start: int, step: int) -> list[int]:
    return [start + i * step for i in range(count)]


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_a_sequence_is_its_start_and_its_step(count: int, start: int, step: int) -> None:
    numbers = NumberColumn.sequence(count, start, step)
    assert numbers.array().tolist() == _steps(count, start, step)
    assert numbers.deltas is None, "a steady step is not written out"


def test_a_falling_sequence_falls() -> None:
    assert NumberColumn.sequence(3, 10, -4).array().tolist() == [10, 6, 2]


def test_equal_values_are_one_value() -> None:
    numbers = numbers_of([UINT64_MAX] * 1000)
    assert numbers.is_constant
    assert (numbers.base, numbers.deltas) == (UINT64_MAX, None)
    assert numbers.array().tolist() == [UINT64_MAX] * 1000


@pytest.mark.parametrize(
    ("spread", "width"),
    [(1, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), ((1 << 32) - 1, 4), (1 << 32, 8), (UINT64_MAX, 8)],
)
def test_values_take_the_narrowest_width_that_holds_their_spread(spread: int, width: int) -> None:
    assert narrowest(spread) == width
    for low in {0, UINT64_MAX - spread}:
        numbers = numbers_of([low, low + spread, low])
        assert numbers.deltas is not None
        assert numbers.deltas.dtype == WIDTHS[width]
        assert numbers.array().tolist() == [low, low + spread, low]


def test_a_wide_column_from_zero_is_a_view_of_the_bytes() -> None:
    raw = np.arange(0, 1 << 40, 1 << 36, dtype=np.uint64)
    numbers = NumberColumn(len(raw), 0, 0, raw)
    assert np.shares_memory(numbers.array(), raw)
    assert np.shares_memory(numbers.part(3, 9).array(), raw)


def test_no_values_are_no_values() -> None:
    for numbers in (numbers_of([]), NumberColumn.constant(0, 9), NumberColumn.sequence(0, 9)):
        assert numbers.array().tolist() == []
        assert numbers.is_constant or numbers.count == 0
