"""Entries to block body and back, column by column.

Encoding does not copy the heap: the pieces are views, joined by the gather write. Decoding copies nothing: every array
is a view of the block, checked once against the bounds of the body.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from warren.base.errors import Damage, Refused
from warren.base.ids import StreamId
from warren.records.block import BlockDraft, Buffer, Header, draft
from warren.records.columns import WIDTHS, EntryColumns, NumberColumn, Texts
from warren.records.format import (
    ALIGNMENT_BYTES,
    BODY_HEAD,
    COLUMN,
    COLUMNS_MAX,
    HEADER,
    BlockKind,
    ColumnTag,
    Encoding,
)

_IGNORABLE_FROM = 128


_REQUIRED = (ColumnTag.KIND, ColumnTag.STORAGE, ColumnTag.KEY_OFFSETS, ColumnTag.VALUE_OFFSETS)


class Versions(Enum):
    """Where the write versions of a block are stored."""

    WRITTEN = "in two columns"
    MINOR_ONLY = "major is the block's epoch; minors, not consecutive, are a column"
    FROM_HEADER = "(epoch, first + index)"


def draft_entries(
    entries: EntryColumns,
    stream: StreamId = StreamId(0),
    kind: BlockKind = BlockKind.ENTRIES,
    versions: Versions = Versions.WRITTEN,
) -> BlockDraft:
    """A draft of one block of these entries."""
    keys, values = entries.keys, entries.values
    columns = [
        (ColumnTag.KIND, entries.kinds),
        (ColumnTag.STORAGE, entries.storages),
        (ColumnTag.KEY_OFFSETS, _from_zero(keys)),
        (ColumnTag.VALUE_OFFSETS, _from_zero(values)),
    ]
    if versions is Versions.WRITTEN:
        columns.append((ColumnTag.MAJOR, entries.majors))
    if versions is not Versions.FROM_HEADER:
        columns.append((ColumnTag.MINOR, entries.minors))
    columns += [
        (tag, c)
        for tag, c in ((ColumnTag.UNDO_PREV, entries.undo_prev), (ColumnTag.UNDO_NEXT, entries.undo_next))
        if _is_written(c)
    ]
    if entries.epochs is not None:
        columns.append((ColumnTag.EPOCH, entries.epochs))
    head: list[bytes] = []
    data: list[Buffer] = []
    at = BODY_HEAD.size + COLUMN.size * len(columns)
    for tag, numbers in columns:
        descriptor, pieces, size = _encode(tag, numbers, entries)
        head.append(descriptor)
        data += pieces
        at += size
    head.insert(0, BODY_HEAD.pack(len(columns), 0, at))
    heap = [_slice(keys), _slice(values)]
    # A block has at least as many bytes as entries: LSNs depend on it.
    short = entries.count - (at + len(heap[0]) + len(heap[1]))
    slack: list[Buffer] = [bytes(short)] if short > 0 else []
    return draft(kind, [b"".join(head), *data, *heap, *slack], entries.count, stream)


def read_entries(view: memoryview, header: Header) -> EntryColumns:
    """The entries of a verified block, as views of it."""
    body = view[header.body_at : header.end]
    count, _, heap_at = BODY_HEAD.unpack_from(body) if len(body) >= BODY_HEAD.size else (0, 0, 0)
    at = BODY_HEAD.size + COLUMN.size * count
    if count > COLUMNS_MAX or not at <= heap_at <= len(body):
        raise Damage("a block's column directory does not fit its body", offset=header.offset)
    if header.entries > len(body):  # a constant column takes no bytes: the count alone would size an allocation
        raise Damage(f"a block of {len(body)} bytes claims {header.entries} entries", offset=header.offset)
    columns: dict[int, NumberColumn] = {}
    for index in range(count):
        tag, encoding, width, _, size, base = COLUMN.unpack_from(body, BODY_HEAD.size + COLUMN.size * index)
        if at + size > heap_at:
            raise Damage(f"column {tag} of a block does not fit its body", offset=header.offset)
        rows = header.entries + (tag in (ColumnTag.KEY_OFFSETS, ColumnTag.VALUE_OFFSETS))
        columns[tag] = _decode(body[at : at + size], encoding, width, base, rows, columns, header)
        at += size + -size % ALIGNMENT_BYTES
    return _assemble(columns, body[heap_at:], header)


def _is_written(numbers: NumberColumn) -> bool:
    return not (numbers.is_constant and numbers.base == 0)


def _from_zero(texts: Texts) -> NumberColumn:
    offsets = texts.offsets
    start = texts.start
    if offsets.deltas is not None and offsets.base != start:
        return NumberColumn.of_array(offsets.array() - np.uint64(start))
    return NumberColumn(offsets.count, 0, offsets.step, offsets.deltas)


def _slice(texts: Texts) -> memoryview:
    return np.ascontiguousarray(texts.heap[texts.start : texts.end]).data


def _encode(tag: int, numbers: NumberColumn, entries: EntryColumns) -> tuple[bytes, list[Buffer], int]:
    if tag == ColumnTag.EPOCH and numbers is entries.majors:
        return COLUMN.pack(tag, Encoding.SAME_AS, 0, 0, 0, ColumnTag.MAJOR), [], 0
    if numbers.deltas is not None:
        raw = np.ascontiguousarray(numbers.deltas)
        size = raw.nbytes
        descriptor = COLUMN.pack(tag, Encoding.OFFSET, raw.itemsize, 0, size, numbers.base)
        padding = -size % ALIGNMENT_BYTES
        return descriptor, [raw.data.cast("B"), bytes(padding)], size + padding
    if numbers.step:
        step = numbers.step.to_bytes(8, "little", signed=True)
        return COLUMN.pack(tag, Encoding.SEQUENCE, 0, 0, 8, numbers.base), [step], 8
    return COLUMN.pack(tag, Encoding.CONSTANT, 0, 0, 0, numbers.base), [], 0


def _decode(
    data: memoryview, encoding: int, width: int, base: int, rows: int, columns: dict[int, NumberColumn], header: Header
) -> NumberColumn:
    if encoding == Encoding.CONSTANT:
        return NumberColumn(rows, base)
    if encoding == Encoding.SEQUENCE and len(data) == 8:
        return NumberColumn(rows, base, int.from_bytes(data, "little", signed=True))
    if encoding == Encoding.OFFSET and width in WIDTHS and len(data) == rows * width:
        return NumberColumn(rows, base, 0, np.frombuffer(data, dtype=WIDTHS[width]))
    if encoding == Encoding.SAME_AS and base in columns and columns[base].count == rows:
        return columns[base]
    raise Damage("a block's column has an impossible encoding", offset=header.offset)


def _assemble(columns: dict[int, NumberColumn], heap: memoryview, header: Header) -> EntryColumns:
    unknown = [tag for tag in columns if tag < _IGNORABLE_FROM and tag not in ColumnTag._value2member_map_]
    if unknown:
        raise Refused(f"a block has column {unknown[0]}, which this version does not know", "use a newer warren")
    missing = [tag.name for tag in _REQUIRED if tag not in columns]
    if missing:
        raise Damage(f"a block lacks its {missing[0]} column", offset=header.offset)
    flat = np.frombuffer(heap, dtype=np.uint8)
    key_offsets, value_offsets = columns[ColumnTag.KEY_OFFSETS], columns[ColumnTag.VALUE_OFFSETS]
    keys_end = _checked_end(key_offsets, len(flat), header)
    values_end = _checked_end(value_offsets, len(flat) - keys_end, header)
    none = NumberColumn(header.entries, 0)
    return EntryColumns(
        columns[ColumnTag.KIND],
        columns[ColumnTag.STORAGE],
        columns.get(ColumnTag.MAJOR) or NumberColumn(header.entries, header.epoch),
        columns.get(ColumnTag.MINOR) or NumberColumn(header.entries, header.first, 1),
        Texts(flat[:keys_end], key_offsets),
        Texts(flat[keys_end : keys_end + values_end], value_offsets),
        columns.get(ColumnTag.UNDO_PREV, none),
        columns.get(ColumnTag.UNDO_NEXT, none),
        columns.get(ColumnTag.EPOCH),
    )


def _checked_end(offsets: NumberColumn, room: int, header: Header) -> int:
    """Check that offsets start at 0, never decrease and end inside the heap, before anything is sliced by them."""
    end = offsets.at(offsets.count - 1)
    steady = offsets.deltas is None or not bool((offsets.deltas[1:] < offsets.deltas[:-1]).any())
    if offsets.at(0) != 0 or offsets.step < 0 or not 0 <= end <= room or not steady:
        raise Damage("a block's offsets point outside its heap", offset=header.offset)
    return end


assert HEADER.size % 8 == 0 and BODY_HEAD.size % 8 == 0 and COLUMN.size % 8 == 0, "columns must fall on multiples of 8"
