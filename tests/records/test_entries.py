"""Entries to a block and back: nothing lost, nothing copied, and no hostile byte believed."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.samples import Row, columns_of, entries_block, header_of, placed, rows, rows_of
from warren.base.errors import Damage, Refused
from warren.base.ids import UINT64_MAX
from warren.records.block import Header, draft
from warren.records.columns import EntryColumns, NumberColumn
from warren.records.entries import Versions, draft_entries, read_entries
from warren.records.format import BODY_HEAD, CHECKSUM_AT, COLUMN, HEADER, BlockKind, ColumnTag, Encoding

ROW = Row(key=b"key", value=b"value")
ENTRIES_AT = 16  # the count of entries in a header


def read(raw: bytes) -> EntryColumns:
    return read_entries(memoryview(raw), header_of(raw))


def resealed(raw: bytes | bytearray) -> bytes:
    """The same bytes with a correct checksum: from an attacker, or a defective program."""
    corrected = bytearray(raw)
    body = crc32(corrected[HEADER.size :])
    struct.pack_into("<I", corrected, CHECKSUM_AT, crc32(corrected[8 : HEADER.size], body))
    return bytes(corrected)


def tags_of(raw: bytes | bytearray) -> dict[int, int]:
    """Where each column's descriptor stands."""
    count, _, _ = BODY_HEAD.unpack_from(raw, HEADER.size)
    places = [HEADER.size + BODY_HEAD.size + COLUMN.size * i for i in range(count)]
    return {COLUMN.unpack_from(raw, at)[0]: at for at in places}


@settings(deadline=None)
@given(rows)
def test_entries_come_back_as_they_were(items: list[Row]) -> None:
    raw = entries_block(items)
    assert rows_of(read(raw)) == items
    assert len(raw) % 8 == 0
    assert len(raw) - HEADER.size >= len(items), "log sequence numbers count on a byte for each entry"


@settings(deadline=None)
@given(rows, st.integers(0, 1 << 40))
def test_versions_can_be_left_to_the_header(items: list[Row], first: int) -> None:
    found = read(entries_block(items, versions=Versions.FROM_HEADER, first=first))
    assert found.majors.array().tolist() == [9] * len(items), "the block's epoch"
    assert found.minors.array().tolist() == list(range(first, first + len(items)))


@settings(deadline=None)
@given(rows)
def test_minors_alone_can_be_a_column(items: list[Row]) -> None:
    found = read(entries_block(items, versions=Versions.MINOR_ONLY))
    assert found.majors.array().tolist() == [9] * len(items)
    assert found.minors.array().tolist() == [row.minor for row in items]


@settings(deadline=None)
@given(rows, st.data())
def test_a_part_of_entries_makes_a_block_of_its_own(items: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(items) - 1))
    stop = data.draw(st.integers(start + 1, len(items)))
    raw = placed(draft_entries(columns_of(items).part(start, stop)))
    assert rows_of(read(raw)) == items[start:stop]


def test_every_column_read_is_a_view_of_the_block() -> None:
    items = [Row(i % 3, i * 7, i << 40, i * 3, b"k" * i, b"v" * (i % 5), i << 33, i * 2) for i in range(1, 40)]
    raw = np.frombuffer(entries_block(items), dtype=np.uint8)
    found = read_entries(raw.data, header_of(raw.tobytes()))
    numbers = (found.kinds, found.storages, found.majors, found.minors, found.undo_prev, found.undo_next)
    arrays: list[npt.NDArray[np.generic] | None] = [column.deltas for column in numbers]
    arrays += [found.keys.offsets.deltas, found.values.offsets.deltas, found.keys.heap, found.values.heap]
    for array in arrays:
        assert array is not None
        assert np.shares_memory(array, raw)


def test_encoding_copies_no_heap() -> None:
    columns = columns_of([Row(key=b"k" * i, value=b"v" * 100) for i in range(50)])
    pieces = [np.frombuffer(piece, dtype=np.uint8) for piece in draft_entries(columns).pieces]
    assert any(np.shares_memory(piece, columns.keys.heap) for piece in pieces)
    assert any(np.shares_memory(piece, columns.values.heap) for piece in pieces)


def test_what_never_varies_is_not_written_out() -> None:
    """Fixed-length keys and values, one storage, unversioned, no links: the heap and a hundred bytes."""
    items = [Row(key=b"%016d" % i, value=b"%0100d" % i) for i in range(1000)]
    raw = entries_block(items, versions=Versions.FROM_HEADER)
    assert len(raw) - 116 * len(items) < 200


def test_links_are_a_column_only_where_there_are_links() -> None:
    assert ColumnTag.UNDO_PREV not in tags_of(entries_block([ROW, ROW]))
    assert ColumnTag.UNDO_PREV in tags_of(entries_block([ROW, Row(undo_prev=1)]))
    assert ColumnTag.UNDO_NEXT in tags_of(entries_block([Row(undo_next=UINT64_MAX)]))


def test_epochs_that_equal_the_majors_are_written_once() -> None:
    columns = columns_of([Row(major=5), Row(major=8), Row(major=6)])
    raw = placed(draft_entries(replace(columns, epochs=columns.majors)))
    assert COLUMN.unpack_from(raw, tags_of(raw)[ColumnTag.EPOCH])[1] == Encoding.SAME_AS
    epochs = read(raw).epochs
    assert epochs is not None
    assert epochs.array().tolist() == [5, 8, 6]


def test_a_thousand_empty_entries_are_as_many_bytes() -> None:
    raw = entries_block([Row(kind=3)] * 1000, versions=Versions.FROM_HEADER)
    assert len(raw) - HEADER.size >= 1000
    assert read(raw).count == 1000


def test_a_column_of_a_newer_version_is_refused_unless_it_may_be_passed_over() -> None:
    raw = bytearray(entries_block([Row(undo_prev=9, key=b"a")]))
    at = tags_of(raw)[ColumnTag.UNDO_PREV]
    raw[at] = 127
    with pytest.raises(Refused, match="column 127"):
        read(resealed(raw))
    raw[at] = 128
    assert rows_of(read(resealed(raw))) == [Row(key=b"a")]


@pytest.mark.parametrize("tag", [ColumnTag.KIND, ColumnTag.STORAGE, ColumnTag.KEY_OFFSETS, ColumnTag.VALUE_OFFSETS])
def test_a_block_without_a_column_it_needs_is_damage(tag: ColumnTag) -> None:
    raw = bytearray(entries_block([ROW]))
    raw[tags_of(raw)[tag]] = 200
    with pytest.raises(Damage, match=tag.name):
        read(resealed(raw))


@pytest.mark.parametrize("entries", [6, 1 << 16, (1 << 32) - 1])
def test_the_count_of_entries_is_not_believed_beyond_the_bytes(entries: int) -> None:
    """Constant columns take no bytes, so that nothing but this keeps a reader from making four billion rows."""
    raw = bytearray(entries_block([Row(kind=3)]))
    struct.pack_into("<I", raw, ENTRIES_AT, entries)
    tracemalloc.start()
    try:
        if entries == 6:
            assert read(resealed(raw)).count == 6
        else:
            with pytest.raises(Damage, match=f"claims {entries} entries"):
                read(resealed(raw))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


offsets_that_lie = {
    "beyond the heap": NumberColumn.of_array(np.array([0, 3, 90], dtype=np.uint64)),
    "back": NumberColumn.of_array(np.array([0, 5, 3], dtype=np.uint64)),
    "not from zero": NumberColumn.of_array(np.array([1, 3, 4], dtype=np.uint64)),
    "constant and not zero": NumberColumn.constant(3, 1),
    "steps beyond the heap": NumberColumn.sequence(3, 0, 1 << 40),
    "steps back": NumberColumn.sequence(3, 0, -1),
    "around the end of 64 bits": NumberColumn(3, 0, 0, np.array([0, 1 << 63, UINT64_MAX], dtype=np.uint64)),
}


def handwritten(key_offsets: NumberColumn, value_offsets: NumberColumn, heap: bytes) -> bytes:
    """Two entries, their offsets written down as they are given."""
    columns = ((ColumnTag.KIND, NumberColumn(2, 1)), (ColumnTag.STORAGE, NumberColumn(2, 1)))
    head, data = [], b""
    for tag, numbers in (*columns, (ColumnTag.KEY_OFFSETS, key_offsets), (ColumnTag.VALUE_OFFSETS, value_offsets)):
        raw, encoding, width = b"", Encoding.CONSTANT, 0
        if numbers.deltas is not None:
            raw, encoding, width = numbers.deltas.tobytes(), Encoding.OFFSET, numbers.deltas.itemsize
        elif numbers.step:
            raw, encoding = numbers.step.to_bytes(8, "little", signed=True), Encoding.SEQUENCE
        head.append(COLUMN.pack(tag, encoding, width, 0, len(raw), numbers.base))
        data += raw + bytes(-len(raw) % 8)
    directory = BODY_HEAD.pack(len(head), 0, BODY_HEAD.size + COLUMN.size * len(head) + len(data)) + b"".join(head)
    return placed(draft(BlockKind.ENTRIES, [directory, data, heap], entries=2))


GOOD_OFFSETS = NumberColumn.sequence(3, 0, 3)


def test_a_block_made_by_hand_is_read() -> None:
    found = read(handwritten(GOOD_OFFSETS, NumberColumn.of_array(np.array([0, 1, 2], dtype=np.uint64)), b"abcdefXY"))
    assert (found.keys.to_list(), found.values.to_list()) == ([b"abc", b"def"], [b"X", b"Y"])


@pytest.mark.parametrize("lie", offsets_that_lie)
def test_offsets_that_lie_are_damage(lie: str) -> None:
    heap = bytes(16)
    for raw in (
        handwritten(offsets_that_lie[lie], GOOD_OFFSETS, heap),
        handwritten(GOOD_OFFSETS, offsets_that_lie[lie], heap),
    ):
        with pytest.raises(Damage, match="outside its heap"):
            read(raw)


def test_a_column_that_reaches_into_the_heap_is_damage() -> None:
    raw = bytearray(handwritten(GOOD_OFFSETS, GOOD_OFFSETS, bytes(16)))
    columns, _, heap_at = BODY_HEAD.unpack_from(raw, HEADER.size)
    BODY_HEAD.pack_into(raw, HEADER.size, columns, 0, heap_at - 8)
    with pytest.raises(Damage, match="does not fit its body"):
        read(resealed(raw))


def test_keys_and_values_have_no_byte_in_common() -> None:
    """Each fits the heap alone, both together do not."""
    ten = NumberColumn.sequence(3, 0, 5)
    with pytest.raises(Damage, match="outside its heap"):
        read(handwritten(ten, ten, bytes(16)))


def consume(columns: EntryColumns) -> None:
    """Read everything, as a merge would."""
    for numbers in (columns.kinds, columns.storages, columns.majors, columns.minors, columns.undo_prev):
        assert len(numbers.array()) == columns.count
    for texts in (columns.keys, columns.values):
        assert len(texts.to_list()) == columns.count
        _, lengths = texts.bounds()
        assert int(lengths.sum()) == texts.size_bytes <= len(texts.heap)
    if columns.epochs is not None:
        assert len(columns.epochs.array()) == columns.count


def check_hostile(raw: bytes) -> None:
    """A block whose checksum holds is read or is damage, and costs memory in proportion to its bytes."""
    header = Header(*HEADER.unpack_from(raw)[1:3], *HEADER.unpack_from(raw)[4:])
    tracemalloc.start()
    try:
        consume(read_entries(memoryview(raw), header._replace(offset=0, body_bytes=len(raw) - HEADER.size)))
    except (Damage, Refused):
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < 200 * len(raw) + (1 << 16)


@settings(max_examples=300, deadline=None)
@given(rows, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_mutated_blocks_are_read_or_are_damage(
    items: list[Row], changes: list[tuple[int, int]], is_in_directory: bool
) -> None:
    raw = bytearray(entries_block(items))
    for place, value in changes:
        start, stop = (HEADER.size, HEADER.size + COLUMN.size * 9) if is_in_directory else (ENTRIES_AT, len(raw))
        raw[start + place % (min(stop, len(raw)) - start)] = value
    check_hostile(bytes(raw))


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, (1 << 32) - 1))
def test_random_bodies_are_read_or_are_damage(body: bytes, entries: int) -> None:
    raw = bytearray(entries_block([ROW])[: HEADER.size] + body)
    struct.pack_into("<I", raw, ENTRIES_AT, entries)
    check_hostile(bytes(raw))


encodings = st.tuples(
    st.sampled_from([*ColumnTag, 100, 200]), st.integers(0, 4), st.sampled_from([0, 1, 2, 3, 4, 8]), st.integers(0, 100)
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(encodings, max_size=12),
    st.lists(st.sampled_from([0, 1, 8, UINT64_MAX, 1 << 63]), min_size=12, max_size=12),
    st.integers(0, 40),
    st.binary(min_size=0, max_size=300),
)
def test_any_column_directory_is_read_or_is_damage(
    columns: list[tuple[int, int, int, int]], bases: list[int], entries: int, data: bytes
) -> None:
    at = BODY_HEAD.size + COLUMN.size * len(columns)
    head = BODY_HEAD.pack(len(columns), 0, at + len(data) // 2)
    body = head + b"".join(COLUMN.pack(*c[:3], 0, c[3], base) for c, base in zip(columns, bases, strict=False)) + data
    raw = bytearray(entries_block([ROW])[: HEADER.size] + body)
    struct.pack_into("<I", raw, ENTRIES_AT, entries)
    check_hostile(bytes(raw))
