"""Lists of rows become the very bytes that the columns' way makes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.log.session import EntryRows
from warren.records.entries import Versions, draft_entries
from warren.records.small_blocks import body_of_rows

NUMBER = st.integers(0, 2**64 - 1)
ROW = st.tuples(
    st.integers(0, 255), NUMBER | st.just(7), st.binary(max_size=300), st.binary(max_size=300), NUMBER, NUMBER
)


def rows_of(items: list[tuple[int, int, bytes, bytes, int, int]]) -> EntryRows:
    rows = EntryRows()
    for item in items:
        rows.add(*item)
    return rows


def body(rows: EntryRows, minors: list[int] | None) -> bytes:
    pieces = body_of_rows(rows.kinds, rows.storages, rows.keys, rows.values, rows.undo_prev, rows.undo_next, minors)
    joined = b"".join(pieces)
    return joined + bytes(-len(joined) % 8)


@given(st.lists(ROW, min_size=1, max_size=40))
def test_rows_and_columns_make_the_same_bytes(items: list[tuple[int, int, bytes, bytes, int, int]]) -> None:
    rows = rows_of(items)
    by_columns = b"".join(draft_entries(rows.columns(), versions=Versions.FROM_HEADER).pieces)
    assert body(rows, None) == by_columns


@given(st.lists(st.tuples(ROW, NUMBER), min_size=1, max_size=40))
def test_rows_with_minors_make_the_same_bytes(items: list[tuple[tuple[int, int, bytes, bytes, int, int], int]]) -> None:
    rows, minors = rows_of([item for item, _ in items]), [minor for _, minor in items]
    by_columns = b"".join(draft_entries(rows.columns(minors), versions=Versions.MINOR_ONLY).pieces)
    assert body(rows, minors) == by_columns


def test_a_thousand_empty_rows_still_make_a_block_as_long_as_it_has_rows() -> None:
    rows = rows_of([(3, 1, b"", b"", 0, 0)] * 1000)
    assert len(body(rows, None)) >= 1000
