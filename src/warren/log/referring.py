"""Referring streams: key-values whose large values stay in the log, while the snapshot store holds where they are.

    in the log     PUT key → value, however large                     one write, one sync
    to the store   PUT key → pointer, if the value is over a limit    a few bytes a row, however much is in it
                   PUT key → value, otherwise

A pointer names the block and the entry in it. Whoever reads a row of such a storage resolves what begins with the
pointer's first byte (`pointed`), so no value of a referring stream may begin with it itself; a session looks at that.
Records of the stream (history) say nothing about keys: they do not go to the store.

Always true: what is made of a block depends on the block alone, so every reader of the log makes the same of it. A file
that a row points into stays until whoever owns the rows lets go of it (`Streams.release`).
Bytes: docs/formats/pointers.md.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from warren.base.errors import Damage
from warren.base.ids import FileNumber, Lsn, file_of_lsn, position_of_lsn
from warren.log.entries import EntryKind
from warren.log.pool import Pool
from warren.records.columns import EntryColumns, Texts

POINTER_MARK = 0xFF
VALUE_BYTES_MAX = 256  # a value up to this goes into the store itself: a pointer and a read would cost more
ROW_BYTES = VALUE_BYTES_MAX + 64  # what a row of a referring stream costs on its way to the store, at most

#   | mark u8 | block LSN u64 | entry u32 | value bytes u32 | block bytes u32 |
POINTER = struct.Struct("<BQIII")
assert POINTER.size == 21


class Pointer(NamedTuple):
    block: Lsn  # of the block's first entry: file and offset
    entry: int  # which one of the block's
    size_bytes: int  # of the value
    block_bytes: int

    @property
    def file(self) -> FileNumber:
        return file_of_lsn(self.block)

    @property
    def offset(self) -> int:
        return position_of_lsn(self.block)

    def encode(self) -> bytes:
        return POINTER.pack(POINTER_MARK, *self)

    @classmethod
    def decode(cls, raw: bytes) -> Pointer:
        if len(raw) != POINTER.size or raw[0] != POINTER_MARK:
            raise Damage(f"this is no pointer into the log: {raw[:24].hex()}")
        _, block, entry, size_bytes, block_bytes = POINTER.unpack(raw)
        return cls(Lsn(block), entry, size_bytes, block_bytes)


def is_pointer(value: bytes) -> bool:
    return value[:1] == b"\xff"


def by_reference(columns: EntryColumns, block: Lsn, block_bytes: int) -> EntryColumns:
    """What of a block of a referring stream goes to the store: its key-values, the large ones as pointers."""
    if block_bytes <= VALUE_BYTES_MAX and columns.kinds.is_constant and columns.kinds.base != EntryKind.RECORD:
        return columns
    rows = np.flatnonzero(columns.kinds.array() != EntryKind.RECORD)
    _, sizes = columns.values.bounds()
    is_large = sizes[rows] > VALUE_BYTES_MAX
    if len(rows) == columns.count and not is_large.any():
        return columns
    values = [
        Pointer(block, row, size, block_bytes).encode() if large else columns.values.at(row)
        for row, size, large in zip(rows.tolist(), sizes[rows].tolist(), is_large.tolist(), strict=True)
    ]
    slim = replace(columns, values=Texts.empty(columns.count))
    kept = slim if len(rows) == columns.count else Pool.of([slim]).take(rows)
    return replace(kept, values=Texts.of_list(values))
