"""Entries side by side: strings in a heap, parts without copying, pieces that fit a block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.samples import Row, columns_of, rows, rows_of
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.records.entries import draft_entries
from warren.records.format import BLOCK_BYTES_MAX, BLOCK_HEAP_BYTES_MAX, BLOCK_ROWS_MAX

strings = st.lists(st.binary(max_size=30), max_size=40)


@settings(deadline=None)
@given(strings)
def test_strings_come_back_as_they_were(items: list[bytes]) -> None:
    texts = Texts.of_list(items)
    assert texts.count == len(items)
    assert texts.to_list() == items
    assert [texts.at(i) for i in range(len(items))] == items
    assert texts.size_bytes == sum(map(len, items))


@settings(deadline=None)
@given(strings, st.data())
def test_a_part_of_strings_is_a_view_of_the_same_heap(items: list[bytes], data: st.DataObject) -> None:
    texts = Texts.of_list(items)
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.integers(start, len(items)))
    part = texts.part(start, stop)
    assert part.to_list() == items[start:stop]
    assert part.heap is texts.heap
    starts, lengths = part.bounds()
    assert lengths.tolist() == [len(item) for item in items[start:stop]]
    assert part.size_bytes == lengths.sum()
    assert [texts.heap[a : a + n].tobytes() for a, n in zip(starts, lengths, strict=True)] == items[start:stop]


def test_strings_of_one_length_have_offsets_that_cost_nothing() -> None:
    texts = Texts.of_list([b"0123456789abcdef"] * 100)
    assert texts.offsets.deltas is None
    assert (texts.offsets.base, texts.offsets.step) == (0, 16)


def test_no_strings_and_empty_strings_differ_in_count_only() -> None:
    assert Texts.of_list([]).to_list() == []
    assert Texts.of_list([b""] * 3).to_list() == Texts.empty(3).to_list() == [b""] * 3
    assert Texts.empty(3).size_bytes == 0


@settings(deadline=None)
@given(rows, st.integers(0, 200))
def test_a_split_loses_nothing_and_keeps_to_its_limit(items: list[Row], bytes_max: int) -> None:
    pieces = list(columns_of(items).split(bytes_max))
    assert [row for piece in pieces for row in rows_of(piece)] == items
    for piece in pieces:
        assert piece.count == 1 or piece.keys.size_bytes + piece.values.size_bytes <= bytes_max


@settings(deadline=None)
@given(rows, st.data())
def test_a_part_of_entries_can_be_split_and_parted_again(items: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(items) - 1))
    part = columns_of(items).part(start, len(items))
    assert rows_of(part) == items[start:]
    assert [row for piece in part.split(50) for row in rows_of(piece)] == items[start:]


def wide_columns(count: int, key_bytes: int) -> EntryColumns:
    """Entries as small as they come, in columns as wide as they get."""
    wide = NumberColumn(count, 0, 0, np.random.default_rng(1).integers(0, 1 << 63, count, dtype=np.uint64))
    lengths = np.full(count, key_bytes, dtype=np.int64)
    lengths[-1] += 1  # so that the offsets are written out as well
    keys = Texts.of_lengths(np.zeros(int(lengths.sum()), dtype=np.uint8), lengths)
    return EntryColumns(
        NumberColumn(count, 1), wide, wide, wide, keys, keys, wide, wide, NumberColumn(count, 0, 0, wide.array())
    )


@pytest.mark.parametrize("key_bytes", [0, 1, 16])
def test_pieces_fit_a_block_however_small_their_entries_and_wide_their_columns(key_bytes: int) -> None:
    """What is split to be written can be read again: a block over the limit would pass every check but the reader's."""
    columns = wide_columns(3 * BLOCK_ROWS_MAX + 5, key_bytes)
    pieces = list(columns.split(1 << 30))
    assert sum(piece.count for piece in pieces) == columns.count
    assert max(draft_entries(piece).body_bytes for piece in pieces) <= BLOCK_BYTES_MAX


def test_a_split_never_takes_more_bytes_than_a_block_has_room_for() -> None:
    columns = columns_of([Row(value=bytes(1 << 20))] * 9)
    assert [piece.count for piece in columns.split(1 << 30)] == [BLOCK_HEAP_BYTES_MAX >> 20] * 2 + [1]
