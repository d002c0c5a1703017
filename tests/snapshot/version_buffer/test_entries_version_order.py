"""The order by columns is the order of the tuples, however wide they are."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.records.columns import NumberColumn
from warren.snapshot.version_buffer.entries import is_in_order, rows_not_above, rows_up_to, version_order

WIDE = st.one_of(st.integers(0, 2), st.integers(0, 1 << 20), st.integers(0, (1 << 64) - 1))
KEYS = st.lists(st.tuples(WIDE, WIDE, st.integers(0, 3), WIDE), min_size=1, max_size=40, unique=True)
Key = tuple[int, int, int, int]


def columns_of(keys: list[Key]) -> list[NumberColumn]:
    return [NumberColumn.of_array(np.array(column, dtype=np.uint64)) for column in zip(*keys, strict=True)]


@settings(deadline=None)
@given(KEYS, st.booleans())
def test_the_order_of_columns_is_that_of_tuples(keys: list[Key], is_sorted: bool) -> None:
    keys = sorted(keys) if is_sorted else keys
    order = version_order(columns_of(keys), len(keys))
    assert [keys[row] for row in order.tolist()] == sorted(keys)
    assert not is_in_order(columns_of(keys), len(keys)) or keys == sorted(keys)


def test_ties_in_what_fits_are_settled_by_what_does_not() -> None:
    wide = (1 << 64) - 1
    keys = [(1, 5, 0, wide), (1, 5, 0, 3), (0, 5, 1, 2), (1, 5, 0, 4), (0, 5, 0, wide - 1), (1, 5, 1, 0)]
    order = version_order(columns_of(keys), len(keys))
    assert [keys[row] for row in order.tolist()] == sorted(keys)


def test_steady_steps_are_ordered_without_being_written_out() -> None:
    falling = [NumberColumn(4, 1), NumberColumn.sequence(4, 9, -2), NumberColumn(4, 0), NumberColumn.sequence(4, 0)]
    assert version_order(falling, 4).tolist() == [3, 2, 1, 0]
    rising = [NumberColumn(4, 1), NumberColumn.sequence(4, 9), NumberColumn(4, 0), NumberColumn.sequence(4, 0)]
    assert is_in_order(rising, 4) and not is_in_order(falling, 4)


@settings(deadline=None)
@given(KEYS, st.tuples(WIDE, WIDE))
def test_rows_up_to_a_version_are_those_of_tuples(keys: list[Key], up_to: tuple[int, int]) -> None:
    majors, minors, *_ = columns_of(keys)
    wanted = [key[:2] <= up_to for key in keys]
    flags = rows_up_to(majors, minors, up_to)
    assert wanted == ([flags] * len(keys) if isinstance(flags, bool) else flags.tolist())
    ordered = columns_of(sorted(keys))
    assert rows_not_above([column.array() for column in ordered], up_to) == sum(wanted)
    for row, key in enumerate(sorted(keys)):
        assert rows_not_above([column.array() for column in ordered], key) == row + 1
