"""Key ranges: what lies below a bound, and that ranges between bounds are everything, once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from warren.log.merge.external import KeyRange, is_below, ranges_between
from warren.log.merge.pool import Pool
from warren.records.columns import EntryColumns, NumberColumn, Texts

KEYS = st.tuples(
    st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]),
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"", b"\0", b"a", b"a\0", b"a\0\0\0\0\0\0\0\0", b"prefix-0", b"prefix-0\0", b"prefix-01"]),
    ),
)


def pool_of(keys: list[tuple[int, bytes]]) -> Pool:
    count = len(keys)
    storages = NumberColumn.of_array(np.array([storage for storage, _ in keys], dtype=np.uint64))
    one, none = NumberColumn.constant(count, 1), NumberColumn.constant(count, 0)
    texts = Texts.of_list([key for _, key in keys])
    return Pool.of([EntryColumns(one, storages, one, one, texts, Texts.empty(count), none, none, one)])


@given(st.lists(KEYS, min_size=1, max_size=40), KEYS)
def test_a_row_is_below_a_bound_as_python_compares(keys: list[tuple[int, bytes]], bound: tuple[int, bytes]) -> None:
    assert is_below(pool_of(keys), bound).tolist() == [key < bound for key in keys]


@given(st.lists(KEYS, min_size=1, max_size=40), st.sets(KEYS, max_size=5))
def test_every_row_lies_in_one_range(keys: list[tuple[int, bytes]], bounds: set[tuple[int, bytes]]) -> None:
    ranges = ranges_between(sorted(bounds))
    assert len(ranges) == len(bounds) + 1
    pool = pool_of(keys)
    found = [keys[row] for each in ranges for row in each.rows(pool).tolist()]
    assert sorted(found) == sorted(keys)
    assert [KeyRange.from_json(each.to_json()) for each in ranges] == ranges
