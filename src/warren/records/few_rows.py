# mypyc: compile
"""The entries of a small block as lists, without numpy: for a few rows its calls cost more than the work.

What it says is what `records.entries.read_entries` says of the same bytes; a test compares. It knows the columns of
plain key-values and refuses all else by None: then the other one reads it, which also knows how to complain.
"""

from __future__ import annotations

from array import array
from typing import final

from warren.records.format import BODY_HEAD, COLUMN, ColumnTag, Encoding, padded

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_KIND = int(ColumnTag.KIND)
_STORAGE = int(ColumnTag.STORAGE)
_MINOR = int(ColumnTag.MINOR)
_KEY_OFFSETS = int(ColumnTag.KEY_OFFSETS)
_VALUE_OFFSETS = int(ColumnTag.VALUE_OFFSETS)
_WANTED = (_KIND, _STORAGE, _KEY_OFFSETS, _VALUE_OFFSETS)
_CONSTANT = int(Encoding.CONSTANT)
_SEQUENCE = int(Encoding.SEQUENCE)
_OFFSET = int(Encoding.OFFSET)
_COLUMNS_MAX = 5


@final
class FewRows:
    """Columns side by side; edges are where each string begins, counted from the start of the body."""

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
        self.minors = minors  # None: they follow one another


def read_few(head: bytes, entries: int, body_bytes: int) -> FewRows | None:
    """Of a body that has so many entries and bytes, and begins like this; None if this is not enough of it, or there is
    more in it than plain key-values."""
    if len(head) < BODY_HEAD.size:
        return None
    count, _, heap_at = BODY_HEAD.unpack_from(head)
    at = BODY_HEAD.size + COLUMN.size * count
    if count > _COLUMNS_MAX or not at <= heap_at <= len(head):
        return None
    columns: dict[int, list[int]] = {}
    for index in range(count):
        tag, encoding, width, _, size, base = COLUMN.unpack_from(head, BODY_HEAD.size + COLUMN.size * index)
        if tag not in _WANTED and tag != _MINOR:
            return None
        rows = entries + 1 if tag in (_KEY_OFFSETS, _VALUE_OFFSETS) else entries
        numbers = _numbers(encoding, width, base, head[at : at + size], rows)
        if numbers is None or at + size > heap_at:
            return None
        columns[tag] = numbers
        at += padded(size)
    for tag in _WANTED:
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
    """Offsets start at 0 and never step back; none points behind the end."""
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
