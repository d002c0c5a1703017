"""Strings spread over several heaps, under one row number, without copying them.

A merge meets its keys and values in hundreds of blocks of a dozen mapped files. They stay there, in the page cache,
until they are gathered into the output, once. Each row keeps the place of its string in eight bytes:

    | heap 12 bits | start in it 31 bits | length 21 bits |

so that a string behaves like a number: looking one up costs one miss of the cache, not three. Blocks of one mapped file
share one heap, the file (or a window of it, if it is large). If the heaps are more than can be numbered all the same
(batches from anywhere), they are copied into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from warren.base.errors import Misuse
from warren.log.gather import Flags, Positions, copy_strings, spans, windows
from warren.log.heaps import HEAP_BITS, START_BITS, heaps_of
from warren.records.columns import Heap, Texts
from warren.records.format import ENTRY_BYTES_MAX
from warren.records.numbers import U64, WIDTHS, NumberColumn, narrowest

WORD_BYTES = 8
_LENGTH_BITS = 21
assert _LENGTH_BITS + START_BITS + HEAP_BITS == 64 and ENTRY_BYTES_MAX < 1 << _LENGTH_BITS
_LENGTH, _START = (1 << _LENGTH_BITS) - 1, (1 << START_BITS) - 1
_ROWS_AT_ONCE = 1 << 16
_SMALL = 16  # strings; parts of so few are worked on together, since a log may consist of blocks with one entry each
_FIRST_BYTES_OF_WORD = np.array([(1 << 64) - (1 << (64 - 8 * n)) for n in range(WORD_BYTES + 1)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Strings:
    heaps: list[Heap]
    places: U64

    @classmethod
    def of(cls, parts: Sequence[Texts]) -> Strings:
        """The strings of all parts, in order."""
        heaps, origins = heaps_of(parts)
        places = np.empty(sum(part.count for part in parts), dtype=np.uint64)
        small: list[tuple[int, int, int, int]] = []
        at = 0
        for part, (heap, origin) in zip(parts, origins, strict=True):
            origin += heap << START_BITS
            if part.count <= _SMALL and part.offsets.deltas is None:
                small.append((at, part.count, origin + part.offsets.base, part.offsets.step))
            else:
                starts, lengths = part.bounds()
                places[at : at + part.count] = _places(starts + origin, lengths)
            at += part.count
        _fill_small(places, small)
        return cls(heaps, places)

    @property
    def count(self) -> int:
        return len(self.places)

    def lengths(self, rows: Positions) -> Positions:
        return (self.places[rows] & np.uint64(_LENGTH)).view(np.int64)

    def longest(self) -> int:
        return int((self.places & np.uint64(_LENGTH)).max()) if len(self.places) else 0

    def at(self, row: int) -> bytes:
        place = int(self.places[row])
        start = place >> _LENGTH_BITS & _START
        return self.heaps[place >> (_LENGTH_BITS + START_BITS)][start : start + (place & _LENGTH)].tobytes()

    def gather(self, rows: Positions) -> Texts:
        """The strings of these rows, packed in this order."""
        places = self.places[rows]
        lengths = (places & np.uint64(_LENGTH)).view(np.int64)
        starts = (places >> np.uint64(_LENGTH_BITS)).view(np.int64)
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        out = np.empty(int(offsets[-1]), dtype=np.uint8)
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(at, at + _ROWS_AT_ONCE)
            self._copy(starts[some], lengths[some], out, offsets[:-1][some])
        return Texts(out, _as_numbers(offsets))

    def words(self, depth: int, rows: Positions) -> U64:
        """Bytes depth … depth + 7 of each string as one number, first byte highest, zeros behind a string's end."""
        out = np.empty(len(rows), dtype=np.uint64)
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            places = self.places[rows[at : at + _ROWS_AT_ONCE]]
            part = out[at : at + _ROWS_AT_ONCE]
            left = np.clip((places & np.uint64(_LENGTH)).view(np.int64) - depth, 0, WORD_BYTES)
            for heap, members, starts in self._by_heap((places >> np.uint64(_LENGTH_BITS)).view(np.int64)):
                part[members] = _load(heap, starts + depth)
            part &= _FIRST_BYTES_OF_WORD[left]
        return out

    def are_equal(self, left: Positions, right: Positions) -> Flags:
        """Whether the strings of left[i] and right[i] are the same."""
        lengths = self.lengths(left)
        equal: Flags = lengths == self.lengths(right)
        worth = np.flatnonzero(equal & (lengths > 0))
        for at in range(0, len(worth), _ROWS_AT_ONCE):
            some = worth[at : at + _ROWS_AT_ONCE]
            mine, other = self.gather(left[some]), self.gather(right[some])
            if (differs := mine.heap != other.heap).any():
                firsts = mine.offsets.array()[:-1].astype(np.int64)
                equal[some] = ~np.logical_or.reduceat(differs, firsts)
        return equal

    def _copy(self, starts: Positions, lengths: Positions, out: Heap, places: Positions) -> None:
        follows = starts[1:] == starts[:-1] + lengths[:-1]
        if 2 * np.count_nonzero(follows) > len(starts):  # sorted before: neighbours are copied as one long string
            firsts = np.flatnonzero(np.concatenate(([True], ~follows)))
            starts, places, lengths = starts[firsts], places[firsts], np.add.reduceat(lengths, firsts)
        copy_strings(self.heaps, starts >> START_BITS, starts & _START, lengths, out, places)

    def _by_heap(self, starts: Positions) -> Iterator[tuple[Heap, slice | Positions, Positions]]:
        """Each heap that occurs, which of the starts lie in it, and where in it."""
        heaps = (starts >> START_BITS).astype(np.uint16)
        if (heaps == heaps[0]).all():
            yield self.heaps[heaps[0]], slice(None), starts & _START
            return
        for heap in np.flatnonzero(np.bincount(heaps)).tolist():
            members = np.flatnonzero(heaps == heap)
            yield self.heaps[heap], members, starts[members] & _START


def _places(starts: Positions, lengths: Positions) -> U64:
    if len(lengths) and int(lengths.max()) > _LENGTH:
        raise Misuse(f"a key or value of {lengths.max()} bytes is beyond the limit of {ENTRY_BYTES_MAX}")
    return (starts.view(np.uint64) << np.uint64(_LENGTH_BITS)) | lengths.view(np.uint64)


def _fill_small(places: U64, small: list[tuple[int, int, int, int]]) -> None:
    """Parts whose strings are equally long, each given by its first row, count, first start and length."""
    if not small:
        return
    first, counts, starts, lengths = np.array(small, dtype=np.int64).T
    rows = spans(first, counts)
    part = np.repeat(np.arange(len(small)), counts)
    places[rows] = _places(starts[part] + (rows - first[part]) * lengths[part], lengths[part])


def _as_numbers(offsets: Positions) -> NumberColumn:
    """Offsets as a column: strings of equal length need none written."""
    count = len(offsets)
    step = int(offsets[-1]) // (count - 1) if count > 1 else 0
    if count > 1 and int(offsets[1]) == step and (np.diff(offsets) == step).all():
        return NumberColumn.sequence(count, 0, step)
    return NumberColumn(count, 0, 0, offsets.astype(WIDTHS[narrowest(int(offsets[-1]))]))


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
