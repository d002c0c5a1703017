# mypyc: compile
"""Small blocks: entries to a block body and back as lists, without numpy, whose calls cost more than the work for few
rows.

`read_few` returns what `records.entries.read_entries` returns for the same bytes, and `body_of_rows` writes the bytes
that `records.entries.draft_entries` writes for the same rows; tests compare both. `read_few` knows the columns of plain
key-values and returns None for everything else: then `read_entries` reads the block, and reports its errors.

Compiled by mypyc where there is a compiler; the same file runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import final

from warren.records.format import ALIGNMENT_BYTES, BODY_HEAD, COLUMN, ColumnTag, Encoding

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_KIND = int(ColumnTag.KIND)
_STORAGE = int(ColumnTag.STORAGE)
_MINOR = int(ColumnTag.MINOR)
_KEY_OFFSETS = int(ColumnTag.KEY_OFFSETS)
_VALUE_OFFSETS = int(ColumnTag.VALUE_OFFSETS)
_REQUIRED = (_KIND, _STORAGE, _KEY_OFFSETS, _VALUE_OFFSETS)
_CONSTANT = int(Encoding.CONSTANT)
_SEQUENCE = int(Encoding.SEQUENCE)
_OFFSET = int(Encoding.OFFSET)
_COLUMNS_MAX = 5


@final
class FewRows:
    """Parallel columns; edges are the start of each string, relative to the start of the body."""

    def __init__(
        self,
        kinds: list[int],
        storages: list[int],
        key_edges: list[int],
        value_edges: list[int],
        minors: list[int] | None,
    ) -> None:
        self.kinds = kinds
        self.storages = storages
        self.key_edges = key_edges
        self.value_edges = value_edges
        self.minors = minors  # None: consecutive


def read_few(head: bytes, entries: int, body_bytes: int) -> FewRows | None:
    """Read a body of `entries` entries and `body_bytes` bytes from its first bytes, `head`. None if `head` is too
    short, or if the body has more than plain key-values."""
    if len(head) < BODY_HEAD.size:
        return None
    count, _, heap_at = BODY_HEAD.unpack_from(head)
    at = BODY_HEAD.size + COLUMN.size * count
    if count > _COLUMNS_MAX or not at <= heap_at <= len(head):
        return None
    columns: dict[int, list[int]] = {}
    for index in range(count):
        tag, encoding, width, _, size, base = COLUMN.unpack_from(head, BODY_HEAD.size + COLUMN.size * index)
        if tag not in _REQUIRED and tag != _MINOR:
            return None
        rows = entries + 1 if tag in (_KEY_OFFSETS, _VALUE_OFFSETS) else entries
        numbers = _numbers(encoding, width, base, head[at : at + size], rows)
        if numbers is None or at + size > heap_at:
            return None
        columns[tag] = numbers
        at += size + -size % ALIGNMENT_BYTES
    for tag in _REQUIRED:
        if tag not in columns:
            return None
    key_edges = _edges(columns[_KEY_OFFSETS], heap_at, body_bytes)
    if key_edges is None:
        return None
    value_edges = _edges(columns[_VALUE_OFFSETS], key_edges[entries], body_bytes)
    if value_edges is None:
        return None
    return FewRows(columns[_KIND], columns[_STORAGE], key_edges, value_edges, columns.get(_MINOR))


def _numbers(encoding: int, width: int, base: int, data: bytes, rows: int) -> list[int] | None:
    if encoding == _CONSTANT:
        return [base] * rows
    if encoding == _SEQUENCE and len(data) == 8:
        step = int.from_bytes(data, "little", signed=True)
        return [base + step * index for index in range(rows)]
    if encoding == _OFFSET and width in _CODES and len(data) == rows * width:
        deltas = array(_CODES[width])
        deltas.frombytes(data)
        return [base + delta for delta in deltas.tolist()]
    return None


def _edges(offsets: list[int], start: int, end: int) -> list[int] | None:
    """Offsets must start at 0, never decrease, and not point behind the end; else None."""
    if offsets[0] != 0:
        return None
    edges = [start]
    last = 0
    for offset in offsets[1:]:
        if offset < last:
            return None
        last = offset
        edges.append(start + offset)
    return edges if start + last <= end else None


assert all(array(code).itemsize == width for width, code in _CODES.items()), "the widths of array are not as expected"

_UNDO_PREV = int(ColumnTag.UNDO_PREV)
_UNDO_NEXT = int(ColumnTag.UNDO_NEXT)


def body_of_rows(
    kinds: list[int],
    storages: list[int],
    keys: list[bytes],
    values: list[bytes],
    undo_prev: list[int],
    undo_next: list[int],
    minors: list[int] | None,
) -> list[bytes]:
    """The pieces of the body: head and columns, then the heap."""
    columns = [
        column(_KIND, kinds),
        column(_STORAGE, storages),
        offsets(_KEY_OFFSETS, keys),
        offsets(_VALUE_OFFSETS, values),
    ]
    if minors is not None:
        columns.append(column(_MINOR, minors))
    if any(undo_prev):
        columns.append(column(_UNDO_PREV, undo_prev))
    if any(undo_next):
        columns.append(column(_UNDO_NEXT, undo_next))
    heap_at = BODY_HEAD.size + COLUMN.size * len(columns) + sum([len(data) for _, data in columns])
    head = [BODY_HEAD.pack(len(columns), 0, heap_at)]
    head += [descriptor for descriptor, _ in columns]
    head += [data for _, data in columns]
    pieces = [b"".join(head), b"".join(keys), b"".join(values)]
    short = len(kinds) - (heap_at + len(pieces[1]) + len(pieces[2]))
    if short > 0:
        pieces.append(bytes(short))
    return pieces


def column(tag: int, numbers: list[int]) -> tuple[bytes, bytes]:
    """Descriptor and data of a column of numbers, in the narrowest form."""
    first = numbers[0]
    if numbers.count(first) == len(numbers):
        return COLUMN.pack(tag, _CONSTANT, 0, 0, 0, first), b""
    low = min(numbers)
    return _written(tag, low, [number - low for number in numbers], max(numbers) - low)


def offsets(tag: int, items: list[bytes]) -> tuple[bytes, bytes]:
    """Descriptor and data of the string offsets; strings of equal length take no data but the step."""
    sizes = [len(item) for item in items]
    first = sizes[0]
    if sizes.count(first) == len(sizes):
        if first == 0:
            return COLUMN.pack(tag, _CONSTANT, 0, 0, 0, 0), b""
        return COLUMN.pack(tag, _SEQUENCE, 0, 0, 8, 0), first.to_bytes(8, "little")
    edges = [0]
    end = 0
    for size in sizes:
        end += size
        edges.append(end)
    return _written(tag, 0, edges, end)


def _written(tag: int, base: int, deltas: list[int], largest: int) -> tuple[bytes, bytes]:
    width = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4 if largest < 1 << 32 else 8
    raw = array(_CODES[width], deltas).tobytes()
    size = len(raw)
    return COLUMN.pack(tag, _OFFSET, width, 0, size, base), raw + bytes(-size % ALIGNMENT_BYTES)
