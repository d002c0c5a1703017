"""A small block read as lists says what the columns' way says of it, or nothing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.records.test_small_blocks_lists import NUMBER, body, rows_of
from warren.records.format import BODY_HEAD
from warren.records.small_blocks import read_few

ROW = st.tuples(
    st.integers(0, 255),
    NUMBER | st.just(7),
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.just(0),
    st.just(0),
)


def strings(raw: bytes, edges: list[int]) -> list[bytes]:
    return [raw[start:stop] for start, stop in pairwise(edges)]


@given(st.lists(st.tuples(ROW, NUMBER), min_size=1, max_size=40), st.booleans())
def test_what_was_written_is_read(
    items: list[tuple[tuple[int, int, bytes, bytes, int, int], int]], has_minors: bool
) -> None:
    rows, minors = rows_of([item for item, _ in items]), [minor for _, minor in items]
    raw = body(rows, minors if has_minors else None)
    found = read_few(raw, len(items), len(raw))
    assert found is not None
    assert (found.kinds, found.storages) == (rows.kinds, rows.storages)
    assert strings(raw, found.key_edges) == rows.keys
    assert strings(raw, found.value_edges) == rows.values
    assert found.minors == (minors if has_minors else None)


def test_links_between_records_are_left_to_the_other_reader() -> None:
    raw = body(rows_of([(3, 0, b"key", b"value", 5, 0)]), None)
    assert read_few(raw, 1, len(raw)) is None


@given(st.lists(ROW, min_size=1, max_size=10), st.data())
def test_bytes_that_were_changed_give_the_same_or_nothing_that_points_outside(
    items: list[tuple[int, int, bytes, bytes, int, int]], data: st.DataObject
) -> None:
    raw = bytearray(body(rows_of(items), None))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    found = read_few(bytes(raw), len(items), len(raw))
    if found is not None:
        assert len(found.kinds) == len(found.storages) == len(items)
        for edges in (found.key_edges, found.value_edges):
            assert edges == sorted(edges) and edges[-1] <= len(raw) and len(edges) == len(items) + 1


@given(st.lists(ROW, min_size=1, max_size=10), st.integers(0, 400))
def test_a_head_that_is_cut_off_gives_nothing_before_its_columns_are_whole(
    items: list[tuple[int, int, bytes, bytes, int, int]], cut: int
) -> None:
    raw = body(rows_of(items), None)
    heap_at = BODY_HEAD.unpack_from(raw)[2]
    found = read_few(raw[:cut], len(items), len(raw))
    assert (found is not None) == (min(cut, len(raw)) >= heap_at)
