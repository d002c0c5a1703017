"""Strings spread over several heaps, under one row number, without copying them.

A merge meets its keys and values in hundreds of blocks of a dozen mapped files. Each row keeps where its string starts
and how long it is, in a numbering that runs through all heaps:

    heaps    |ooooo file 7 ooooo| |ooo file 8 ooo| |ooooooo file 9 ooooooo|
    edges    0                    5001             8002                    16003
    starts         ^ row 0            ^ row 1           ^ row 2

so that values stay in the page cache until they are gathered into the output, once. Blocks of one mapped file share one
heap: the file. If the heaps are many all the same (batches from anywhere), they are copied into one.

Always true: one number between two heaps belongs to neither, so strings of two heaps never look like neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warren.log.gather import Flags, Lengths, Positions, copy_strings, runs_joined, windows
from warren.records.columns import EMPTY_HEAP, Heap, Texts
from warren.records.numbers import U64

WORD_BYTES = 8
_HEAPS_MAX = 64
_ROWS_AT_ONCE = 1 << 16
_FIRST_BYTES_OF_WORD = np.array([(1 << 64) - (1 << (64 - 8 * n)) for n in range(WORD_BYTES + 1)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Strings:
    heaps: list[Heap]
    edges: Positions  # where each heap begins
    starts: Positions
    lengths: npt.NDArray[np.int32]

    @classmethod
    def of(cls, parts: Sequence[Texts]) -> Strings:
        """The strings of all parts, in order."""
        heaps, origins = _heaps_of(parts)
        edges = np.zeros(len(heaps) + 1, dtype=np.int64)
        np.cumsum([len(heap) + 1 for heap in heaps], out=edges[1:])
        count = sum(part.count for part in parts)
        starts, lengths = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int32)
        at = 0
        for part, (heap, origin) in zip(parts, origins, strict=True):
            here = slice(at, at + part.count)
            starts[here], lengths[here] = part.bounds()
            starts[here] += edges[heap] + origin
            at += part.count
        return cls(heaps, edges[:-1], starts, lengths)

    @property
    def count(self) -> int:
        return len(self.starts)

    def at(self, row: int) -> bytes:
        heap = int(np.searchsorted(self.edges, self.starts[row], side="right")) - 1
        start = int(self.starts[row] - self.edges[heap])
        return self.heaps[heap][start : start + int(self.lengths[row])].tobytes()

    def gather(self, rows: Positions) -> Texts:
        """The strings of these rows, packed in this order."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        out = np.empty(int(ends[-1]), dtype=np.uint8) if len(ends) else EMPTY_HEAP
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(at, at + _ROWS_AT_ONCE)
            self._copy(self.starts[rows[some]], lengths[some], out[int(ends[at]) - int(lengths[at]) :])
        return Texts.of_lengths(out, lengths.astype(np.int64))

    def words(self, depth: int, rows: Positions) -> U64:
        """Bytes depth … depth + 7 of each string as one number, first byte highest, zeros behind a string's end."""
        out = np.empty(len(rows), dtype=np.uint64)
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[at : at + _ROWS_AT_ONCE]
            left = np.clip(self.lengths[some] - depth, 0, WORD_BYTES)
            part = out[at : at + _ROWS_AT_ONCE]
            for heap, members, starts in self._by_heap(self.starts[some]):
                part[members] = _load(heap, starts + depth)
            part &= _FIRST_BYTES_OF_WORD[left]
        return out

    def are_equal(self, left: Positions, right: Positions) -> Flags:
        """Whether the strings of left[i] and right[i] are the same."""
        equal = self.lengths[left] == self.lengths[right]
        worth = np.flatnonzero(equal & (self.lengths[left] > 0))
        for at in range(0, len(worth), _ROWS_AT_ONCE):
            some = worth[at : at + _ROWS_AT_ONCE]
            mine, other = self.gather(left[some]), self.gather(right[some])
            if (differs := mine.heap != other.heap).any():
                firsts = mine.offsets.array()[:-1].astype(np.int64)
                equal[some] = ~np.logical_or.reduceat(differs, firsts)
        return equal

    def _copy(self, starts: Positions, lengths: Lengths, out: Heap) -> None:
        starts, lengths = runs_joined(starts, lengths)
        places = np.cumsum(lengths, dtype=np.int64) - lengths
        for heap, members, local in self._by_heap(starts):
            copy_strings(heap, local, out, places[members], lengths[members])

    def _by_heap(self, starts: Positions) -> Iterator[tuple[Heap, slice | Positions, Positions]]:
        """Each heap that occurs, which of the starts lie in it, and where in it."""
        first, last = (int(np.searchsorted(self.edges, edge, side="right")) - 1 for edge in (starts.min(), starts.max()))
        if first == last:
            yield self.heaps[first], slice(None), starts - self.edges[first]
            return
        heaps = (np.searchsorted(self.edges, starts, side="right") - 1).astype(np.uint8)
        order = np.argsort(heaps, kind="stable")
        bounds = np.searchsorted(heaps[order], np.arange(first, last + 2))
        for heap, low, high in zip(range(first, last + 1), bounds, bounds[1:], strict=False):
            if low < high:
                members = order[low:high]
                yield self.heaps[heap], members, starts[members] - self.edges[heap]


def _load(heap: Heap, starts: Positions) -> U64:
    """The eight bytes at each start; behind the heap's end anything."""
    if len(heap) < WORD_BYTES:
        heap = np.concatenate((heap, np.zeros(WORD_BYTES, dtype=np.uint8)))
    last = len(heap) - WORD_BYTES
    if int(starts.max()) <= last:
        return windows(heap, WORD_BYTES)[starts].view(">u8").astype(np.uint64)
    inside = np.minimum(starts, last)
    beyond = np.minimum(starts - inside, WORD_BYTES - 1).astype(np.uint64)
    return windows(heap, WORD_BYTES)[inside].view(">u8").astype(np.uint64) << (beyond * np.uint64(8))


def _heaps_of(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    """The heaps the parts lie in, and for each part the number of its heap and where in it the part's heap begins."""
    found: dict[int, int] = {}
    heaps: list[Heap] = []
    origins: list[tuple[int, int]] = []
    for part in parts:
        whole = _whole_of(part.heap)
        number = found.setdefault(_address(whole), len(heaps))
        if number == len(heaps):
            heaps.append(whole)
        origins.append((number, _address(part.heap) - _address(whole)))
    if len(heaps) <= _HEAPS_MAX:
        return heaps, origins
    return _copied_into_one(parts)


def _copied_into_one(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    ends = np.cumsum([part.size_bytes for part in parts])
    origins = [(0, int(end) - part.end) for part, end in zip(parts, ends, strict=True)]
    return [np.concatenate([part.heap[part.start : part.end] for part in parts])], origins


def _whole_of(heap: Heap) -> Heap:
    """The array or buffer that `heap` is a view of, whole: blocks of one mapped file have it in common."""
    if len(heap) == 0:
        return heap
    base: Any = heap
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    if isinstance(base, np.ndarray):
        return base if base.dtype == np.uint8 and base.ndim == 1 and base.flags.c_contiguous else heap
    return np.frombuffer(base.obj if isinstance(base, memoryview) else base, dtype=np.uint8)


def _address(heap: Heap) -> int:
    return int(heap.__array_interface__["data"][0])
