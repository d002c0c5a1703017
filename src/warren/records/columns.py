"""A batch of entries as columns: what a block holds, what a scan yields, what the merge works on.

Keys and values are `Texts`: one heap of bytes and count + 1 offsets, the layout of numpy, Arrow and the block itself,
so that none of the three needs a loop over rows to look at another's data. Fixed-length keys have `NumberColumn.sequence`
offsets and cost no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from warren.records.format import BLOCK_HEAP_BYTES_MAX, BLOCK_ROWS_MAX
from warren.records.numbers import WIDTHS, NumberColumn, narrowest

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
        """Where each string starts, and how long it is."""
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
    """Entries side by side. All columns have the same count."""

    kinds: NumberColumn
    storages: NumberColumn
    majors: NumberColumn
    minors: NumberColumn
    keys: Texts
    values: Texts
    undo_prev: NumberColumn
    undo_next: NumberColumn
    epochs: NumberColumn | None = None  # None: the epoch of the block they stand in

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

    def with_versions(self, majors: NumberColumn, minors: NumberColumn) -> EntryColumns:
        return replace(self, majors=majors, minors=minors)

    def split(self, bytes_max: int) -> Iterator[EntryColumns]:
        """Pieces whose keys and values come to at most `bytes_max` (a single larger entry stands alone), each of which
        fits a block, however small its entries and wide its columns are."""
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
