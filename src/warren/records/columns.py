"""Columns: a batch of entries as blocks store it, scans yield it and the merge works on it.

`NumberColumn` is a column of unsigned integers, in memory and on disk: one value for all, base + i × step, or
base + data[i] in the narrowest width. Constants and sequences take no bytes. `array()` returns the plain values for
numpy; a 64-bit column with base 0 is a view of the file itself.

`Texts` holds keys or values: one heap of bytes and count + 1 offsets, the layout of numpy, Arrow and the block, so that
none of the three needs a loop over rows to read another's data. Fixed-length keys have `NumberColumn.sequence` offsets
and take no bytes for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from warren.records.format import BLOCK_HEAP_BYTES_MAX, BLOCK_ROWS_MAX

U64 = npt.NDArray[np.uint64]
AnyUnsigned = npt.NDArray[Any]
WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


@dataclass(frozen=True, slots=True)
class NumberColumn:
    count: int
    base: int
    step: int = 0  # 0 with no deltas: constant
    deltas: AnyUnsigned | None = None

    @classmethod
    def constant(cls, count: int, value: int) -> NumberColumn:
        return cls(count, value)

    @classmethod
    def sequence(cls, count: int, start: int, step: int = 1) -> NumberColumn:
        return cls(count, start, step)

    @classmethod
    def of_array(cls, values: AnyUnsigned) -> NumberColumn:
        """The narrowest form that holds the values: constant if all are equal, else base and deltas."""
        count = len(values)
        if count == 0:
            return cls(0, 0)
        low, high = int(values.min()), int(values.max())
        if low == high:
            return cls(count, low)
        width = narrowest(high - low)
        deltas = values if low == 0 else values - np.asarray(low, dtype=values.dtype)
        return cls(count, low, 0, deltas.astype(WIDTHS[width], copy=False))

    @property
    def is_constant(self) -> bool:
        return self.deltas is None and (self.step == 0 or self.count <= 1)

    def array(self) -> U64:
        if self.deltas is not None:
            wide = self.deltas.astype(np.uint64, copy=False)
            return wide if self.base == 0 else wide + np.uint64(self.base)
        if self.step == 0:
            return np.full(self.count, self.base, dtype=np.uint64)
        steps = np.arange(self.count, dtype=np.int64) * self.step
        return steps.astype(np.uint64) + np.uint64(self.base)

    def at(self, index: int) -> int:
        if self.deltas is not None:
            return self.base + int(self.deltas[index])
        return self.base + index * self.step

    def part(self, start: int, stop: int) -> NumberColumn:
        if self.deltas is not None:
            return NumberColumn(stop - start, self.base, 0, self.deltas[start:stop])
        return NumberColumn(stop - start, self.base + start * self.step, self.step)


def narrowest(value: int) -> int:
    """Bytes needed for an unsigned value: 1, 2, 4 or 8."""
    if value < 1 << 8:
        return 1
    if value < 1 << 16:
        return 2
    return 4 if value < 1 << 32 else 8


Heap = npt.NDArray[np.uint8]
EMPTY_HEAP: Heap = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Texts:
    """`count` byte strings; string i is heap[offsets[i]:offsets[i + 1]]. Offsets have count + 1 values."""

    heap: Heap
    offsets: NumberColumn

    @classmethod
    def of_list(cls, items: Sequence[bytes]) -> Texts:
        lengths = np.fromiter(map(len, items), dtype=np.int64, count=len(items))
        return cls.of_lengths(np.frombuffer(b"".join(items), dtype=np.uint8), lengths)

    @classmethod
    def of_lengths(cls, heap: Heap, lengths: npt.NDArray[np.int64]) -> Texts:
        count = len(lengths)
        if count == 0:
            return cls(EMPTY_HEAP, NumberColumn.constant(1, 0))
        first = int(lengths[0])
        if (lengths == first).all():
            return cls(heap, NumberColumn.sequence(count + 1, 0, first))
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(heap, NumberColumn(count + 1, 0, 0, offsets.astype(WIDTHS[narrowest(int(offsets[-1]))])))

    @classmethod
    def empty(cls, count: int) -> Texts:
        return cls(EMPTY_HEAP, NumberColumn.constant(count + 1, 0))

    @property
    def count(self) -> int:
        return self.offsets.count - 1

    @property
    def start(self) -> int:
        return self.offsets.at(0)

    @property
    def end(self) -> int:
        return self.offsets.at(self.offsets.count - 1)

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Start and length of each string."""
        offsets = self.offsets.array().astype(np.int64)
        return offsets[:-1], np.diff(offsets)

    def at(self, index: int) -> bytes:
        return self.heap[self.offsets.at(index) : self.offsets.at(index + 1)].tobytes()

    def to_list(self) -> list[bytes]:
        data = self.heap.tobytes()
        edges = self.offsets.array().tolist()
        return [data[a:b] for a, b in pairwise(edges)]

    def part(self, start: int, stop: int) -> Texts:
        return Texts(self.heap, self.offsets.part(start, stop + 1))


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Entries as parallel columns, all of the same count."""

    kinds: NumberColumn
    storages: NumberColumn
    majors: NumberColumn
    minors: NumberColumn
    keys: Texts
    values: Texts
    undo_prev: NumberColumn
    undo_next: NumberColumn
    epochs: NumberColumn | None = None  # None: the epoch of their block

    @property
    def count(self) -> int:
        return self.kinds.count

    def part(self, start: int, stop: int) -> EntryColumns:
        return EntryColumns(
            self.kinds.part(start, stop),
            self.storages.part(start, stop),
            self.majors.part(start, stop),
            self.minors.part(start, stop),
            self.keys.part(start, stop),
            self.values.part(start, stop),
            self.undo_prev.part(start, stop),
            self.undo_next.part(start, stop),
            None if self.epochs is None else self.epochs.part(start, stop),
        )

    def split(self, bytes_max: int) -> Iterator[EntryColumns]:
        """Parts with at most `bytes_max` bytes of keys and values (a single larger entry is a part of its own). Each
        part fits a block, regardless of entry sizes and column widths."""
        bytes_max = min(bytes_max, BLOCK_HEAP_BYTES_MAX)
        if self.keys.size_bytes + self.values.size_bytes <= bytes_max and self.count <= BLOCK_ROWS_MAX:
            yield self
            return
        edges = self.keys.offsets.array() + self.values.offsets.array()
        start = 0
        while start < self.count:
            stop = int(np.searchsorted(edges, edges[start] + np.uint64(bytes_max), side="right")) - 1
            stop = min(max(stop, start + 1), start + BLOCK_ROWS_MAX, self.count)
            yield self.part(start, stop)
            start = stop
