# mypyc: compile
"""Lists of entries to the body of a block, without numpy: for the few rows of a small session its calls cost more than
the work.

The bytes are those `records.entries.draft_entries` makes of the same rows; a test compares. Compiled by mypyc where
there is a compiler; the same file runs uncompiled.
"""

from __future__ import annotations

from array import array

from warren.records.format import BODY_HEAD, COLUMN, ColumnTag, Encoding, padded

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
assert all(array(code).itemsize == width for width, code in _CODES.items()), "the widths of array are not as expected"

_KIND = int(ColumnTag.KIND)
_STORAGE = int(ColumnTag.STORAGE)
_MINOR = int(ColumnTag.MINOR)
_KEY_OFFSETS = int(ColumnTag.KEY_OFFSETS)
_VALUE_OFFSETS = int(ColumnTag.VALUE_OFFSETS)
_UNDO_PREV = int(ColumnTag.UNDO_PREV)
_UNDO_NEXT = int(ColumnTag.UNDO_NEXT)
_CONSTANT = int(Encoding.CONSTANT)
_SEQUENCE = int(Encoding.SEQUENCE)
_OFFSET = int(Encoding.OFFSET)


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
    """Descriptor and data of where each string begins; nothing is written for strings of one length."""
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
    return COLUMN.pack(tag, _OFFSET, width, 0, size, base), raw + bytes(padded(size) - size)
