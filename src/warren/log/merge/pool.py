"""Pool: the entries of many batches under one row number, and rows of them as columns.

Numbers are concatenated to one column each, in the narrowest width that holds them all; keys and values stay where they
are (`Strings`). Columns that are constant stay so, and cost nothing: a storage, a kind, unused undo numbers, and an
epoch that is the write version's major part. Rows of a pool are a pool again, and several pools can be one: keys and
values are not copied, only their positions. A bucket's share of a dozen files is some rows of each; as columns that
would copy every version of every value, of which the merge then drops most.

Strings. A merge reads its keys and values in hundreds of blocks of a dozen mapped files. They stay there, in the page
cache, until they are gathered into the output, once. Each row has the position of its string in eight bytes:

    | heap 12 bits | start in it 31 bits | length 21 bits |

so that a string behaves like a number: a lookup costs one cache miss, not three. Blocks of one mapped file share one
heap, the file (or a window of it, if it is large). If there are more heaps than can be numbered nevertheless, they are
copied into one.

Heaps. numpy records for every view what it is a view of; following that to its end finds the file's mapping (or the
array the bytes were made in), and the difference of two addresses is the position in it. Heaps are distinguished by
their address in memory.

Gather: strings from anywhere in several heaps, laid one behind the other, the hot loop of every merge. A loop over five
million values costs seconds, an index per byte as well. Here a *window* is a view of a heap with one item of `width`
bytes at every byte, so that numpy's own take copies whole items. A string of 50 bytes is then two items of 32, its
first 32 bytes and its last 32:

    string         |oooooooooooooooooooooooooooooooooo|
    first          |<------ width ------>|
    last                         |<------ width ----->|

They overlap inside the string and nowhere else, so nothing is read or written beyond it, in whatever order strings are
copied, from however many threads (numpy releases the interpreter lock while it copies). Thirteen widths, 1 … 4096,
serve every length up to 8191; longer strings are worth a slice each. Rows are grouped by (heap, width) with one radix
sort. Measured, values of 50–150 bytes at random places of 500 MB in ten mapped files, lookup included: 150 ns each on
one core (on a busy machine 200, where a slice each took 600). An index per 8-byte word took 540.

Invariant: callers pass starts and lengths inside the heaps (`Texts` read from disk were checked when they were read);
numpy checks each window against the heap's end once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warren.base.errors import Misuse
from warren.records.columns import (
    EMPTY_HEAP,
    U64,
    WIDTHS,
    AnyUnsigned,
    EntryColumns,
    Heap,
    NumberColumn,
    Texts,
    narrowest,
)
from warren.records.format import ENTRY_BYTES_MAX

HEAP_BITS = 12
START_BITS = 31
_WINDOW_BYTES = 1 << (START_BITS - 1)


def heaps_of(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    """The heaps, and for each part the number of its heap and where in it the part's own heap begins."""
    roots: dict[int, _Root] = {}
    found: dict[tuple[int, int], int] = {}
    heaps: list[Heap] = [EMPTY_HEAP]
    origins: list[tuple[int, int]] = []
    for part in parts:
        if len(part.heap) == 0:
            origins.append((0, 0))
            continue
        buffer = _buffer_of(part.heap)
        root = roots.get(id(buffer)) or roots.setdefault(id(buffer), _Root(buffer))
        window, origin = divmod(_address(part.heap) - root.address, _WINDOW_BYTES)
        number = found.setdefault((root.address, window), len(heaps))
        if number == len(heaps):
            heaps.append(root.whole[window * _WINDOW_BYTES : (window + 2) * _WINDOW_BYTES])
        origins.append((number, origin))
    return (heaps, origins) if len(heaps) <= 1 << HEAP_BITS else _copied_into_one(parts)


class _Root:
    """What views are views of, as bytes."""

    __slots__ = ("address", "buffer", "whole")

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.whole: Heap = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, dtype=np.uint8)
        self.address = _address(self.whole)


def _copied_into_one(parts: Sequence[Texts]) -> tuple[list[Heap], list[tuple[int, int]]]:
    ends = np.cumsum([part.size_bytes for part in parts])
    origins = [(0, int(end) - part.end) for part, end in zip(parts, ends, strict=True)]
    return [np.concatenate([part.heap[part.start : part.end] for part in parts])], origins


def _buffer_of(heap: Heap) -> Any:
    """The array or buffer that `heap` is a view of; itself where that can not be seen as bytes."""
    base: Any = heap
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    if isinstance(base, np.ndarray):
        return base if base.dtype == np.uint8 and base.ndim == 1 and base.flags.c_contiguous else heap
    return base.obj if isinstance(base, memoryview) else base


def _address(heap: Heap) -> int:
    return int(heap.__array_interface__["data"][0])


Positions = npt.NDArray[np.int64]  # of bytes in a heap, or of rows
Flags = npt.NDArray[np.bool_]
Windows = npt.NDArray[np.void]

_WIDTH_BITS_MAX = 12
_LONG_FROM = 2 << _WIDTH_BITS_MAX
_LONG, _EMPTY = _WIDTH_BITS_MAX + 1, _WIDTH_BITS_MAX + 2
_CLASS_BITS = 4
_CLASS_OF = np.array([_EMPTY] + [n.bit_length() - 1 for n in range(1, _LONG_FROM + 1)], dtype=np.uint16)
_BYTES_AT_ONCE = 256 << 10  # what lies between take and put stays in the processor's own cache
assert _CLASS_OF[-1] == _LONG and _CLASS_OF.max() < 1 << _CLASS_BITS and HEAP_BITS + _CLASS_BITS <= 16


def copy_strings(
    heaps: Sequence[Heap], numbers: Positions, starts: Positions, lengths: Positions, target: Heap, places: Positions
) -> None:
    """Copy string i from starts[i] of heap numbers[i] to places[i] of the target. Places must not overlap."""
    classes = _CLASS_OF[np.minimum(lengths, _LONG_FROM)] | (numbers.astype(np.uint16) << np.uint16(_CLASS_BITS))
    for which, rows in _by_class(classes):
        bits = which & ((1 << _CLASS_BITS) - 1)
        if bits != _EMPTY:
            copy = _copy_long if bits == _LONG else _copy_windows
            copy(heaps[which >> _CLASS_BITS], starts[rows], target, places[rows], lengths[rows], 1 << bits)


def windows(heap: Heap, width: int) -> Windows:
    """One item of `width` bytes at every byte of the heap."""
    return np.ndarray(max(len(heap) - width + 1, 0), dtype=f"V{width}", buffer=heap, strides=(1,))


def spans(starts: Positions, sizes: Positions) -> Positions:
    """starts[0], starts[0] + 1, … starts[0] + sizes[0] - 1, starts[1], …: the members of several ranges."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(total, dtype=np.int64)


def numbers_at(numbers: NumberColumn, rows: Positions) -> U64:
    """The values of these rows."""
    if numbers.deltas is not None:
        some: U64 = numbers.deltas[rows].astype(np.uint64, copy=False)
        return some if numbers.base == 0 else some + np.uint64(numbers.base)
    if numbers.step == 0:
        return np.full(len(rows), numbers.base, dtype=np.uint64)
    return (rows * numbers.step).astype(np.uint64) + np.uint64(numbers.base)


def _by_class(classes: npt.NDArray[np.uint16]) -> Iterator[tuple[int, Positions | slice]]:
    """Each class that occurs, with the rows in it."""
    if len(classes) == 0:
        return
    if (classes == classes[0]).all():
        yield int(classes[0]), slice(None)
        return
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        yield int(ordered[start]), order[start:end]


def _copy_windows(
    source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Positions, width: int
) -> None:
    taken, put = windows(source, width), windows(target, width)
    at_once = max(_BYTES_AT_ONCE // width, 1)
    has_last = bool((lengths > width).any())
    for at in range(0, len(starts), at_once):
        some = slice(at, at + at_once)
        start, place = starts[some], places[some]
        put[place] = taken[start]
        if has_last:
            last = lengths[some] - width
            put[place + last] = taken[start + last]


def _copy_long(source: Heap, starts: Positions, target: Heap, places: Positions, lengths: Positions, _: int) -> None:
    for start, place, length in zip(starts.tolist(), places.tolist(), lengths.tolist(), strict=True):
        target[place : place + length] = source[start : start + length]


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
        if 2 * np.count_nonzero(follows) > len(starts):  # sorted before: adjacent ones are copied as one long string
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


_PIECE_ROWS = 1 << 16
_PIECE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Pool:
    kinds: NumberColumn
    storages: NumberColumn
    majors: NumberColumn
    minors: NumberColumn
    epochs: NumberColumn
    undo_prev: NumberColumn
    undo_next: NumberColumn
    keys: Strings
    values: Strings

    @classmethod
    def of(cls, batches: Sequence[EntryColumns]) -> Pool:
        """All entries of the batches, in order. Every batch must know its epochs."""
        majors = joined(batch.majors for batch in batches)
        epochs = joined(_epochs_of(batch) for batch in batches)
        return cls(
            joined(batch.kinds for batch in batches),
            joined(batch.storages for batch in batches),
            majors,
            joined(batch.minors for batch in batches),
            majors if are_same(majors, epochs) else epochs,
            joined(batch.undo_prev for batch in batches),
            joined(batch.undo_next for batch in batches),
            Strings.of([batch.keys for batch in batches]),
            Strings.of([batch.values for batch in batches]),
        )

    @property
    def count(self) -> int:
        return self.kinds.count

    def pieces(self, rows: Positions) -> list[Positions]:
        """The rows cut into pieces of a size that is good to take and write at once."""
        pieces = [rows[at : at + _PIECE_ROWS] for at in range(0, len(rows), _PIECE_ROWS)]
        if _PIECE_ROWS * (self.keys.longest() + self.values.longest()) <= _PIECE_BYTES:
            return pieces
        return [part for piece in pieces for part in self._cut(piece)]

    def take(self, rows: Positions) -> EntryColumns:
        """These rows, in this order, copied."""
        majors = taken(self.majors, rows)
        return EntryColumns(
            taken(self.kinds, rows),
            taken(self.storages, rows),
            majors,
            taken(self.minors, rows),
            self.keys.gather(rows),
            self.values.gather(rows),
            taken(self.undo_prev, rows),
            taken(self.undo_next, rows),
            majors if self.epochs is self.majors else taken(self.epochs, rows),
        )

    def _cut(self, rows: Positions) -> list[Positions]:
        edges = np.cumsum(self.keys.lengths(rows) + self.values.lengths(rows))
        starts = np.searchsorted(edges, np.arange(_PIECE_BYTES, int(edges[-1]), _PIECE_BYTES))
        return np.split(rows, np.unique(starts[starts > 0]))


def concatenated(batches: Sequence[EntryColumns]) -> EntryColumns:
    """All entries of the batches as one batch, copied."""
    if len(batches) == 1:
        return batches[0]
    pool = Pool.of(batches)
    return pool.take(np.arange(pool.count, dtype=np.int64))


def joined(parts: Iterable[NumberColumn]) -> NumberColumn:
    """One column of all parts, one behind the other."""
    columns = [part for part in parts if part.count]
    if not columns:
        return NumberColumn(0, 0)
    count = sum(column.count for column in columns)
    if all(column.is_constant and column.base == columns[0].base for column in columns):
        return NumberColumn(count, columns[0].base)
    if all(column.is_constant for column in columns):
        bases = NumberColumn.of_array(np.array([column.base for column in columns], dtype=np.uint64))
        assert bases.deltas is not None, "they differ"
        return NumberColumn(count, bases.base, 0, np.repeat(bases.deltas, [column.count for column in columns]))
    low, high = min(map(_lowest, columns)), max(map(_highest, columns))
    deltas = np.empty(count, dtype=WIDTHS[narrowest(high - low)])
    at = 0
    for column in columns:
        deltas[at : at + column.count] = _above(column, low)
        at += column.count
    return NumberColumn(count, low, 0, deltas)


def taken(numbers: NumberColumn, rows: Positions) -> NumberColumn:
    if numbers.is_constant:
        return NumberColumn(len(rows), numbers.base)
    if numbers.deltas is None:
        return NumberColumn.of_array(numbers_at(numbers, rows))
    some = NumberColumn.of_array(numbers.deltas[rows])
    return NumberColumn(some.count, some.base + numbers.base, 0, some.deltas)


def are_same(left: NumberColumn, right: NumberColumn) -> bool:
    if left.is_constant and right.is_constant:
        return left.base == right.base
    if left.deltas is None or right.deltas is None or left.base != right.base:
        return False
    return bool(np.array_equal(left.deltas, right.deltas))


def no_entries() -> EntryColumns:
    none = NumberColumn(0, 0)
    return EntryColumns(none, none, none, none, Texts.empty(0), Texts.empty(0), none, none, none)


def _epochs_of(batch: EntryColumns) -> NumberColumn:
    assert batch.epochs is not None, "the reader of a block for a merge fills in its epoch"
    return batch.epochs


def _lowest(column: NumberColumn) -> int:
    if column.deltas is not None:
        return column.base + int(column.deltas.min())
    return min(column.base, column.at(column.count - 1))


def _highest(column: NumberColumn) -> int:
    if column.deltas is not None:
        return column.base + int(column.deltas.max())
    return max(column.base, column.at(column.count - 1))


def _above(column: NumberColumn, low: int) -> AnyUnsigned:
    """How far each value lies above `low`."""
    if column.deltas is None:
        return NumberColumn(column.count, column.base - low, column.step).array()
    return column.array() - np.uint64(low)


_HEAP_SHIFT = np.uint64(64 - HEAP_BITS)
_WITHIN_HEAP = np.uint64((1 << (64 - HEAP_BITS)) - 1)


def part_of(pool: Pool, rows: Positions) -> Pool:
    """These rows, in this order."""
    majors = taken(pool.majors, rows)
    return Pool(
        taken(pool.kinds, rows),
        taken(pool.storages, rows),
        majors,
        taken(pool.minors, rows),
        majors if pool.epochs is pool.majors else taken(pool.epochs, rows),
        taken(pool.undo_prev, rows),
        taken(pool.undo_next, rows),
        Strings(pool.keys.heaps, pool.keys.places[rows]),
        Strings(pool.values.heaps, pool.values.places[rows]),
    )


def joined_pools(pools: Sequence[Pool]) -> Pool:
    """All rows of the pools, one behind the other."""
    pools = [pool for pool in pools if pool.count]
    if not pools:
        return Pool.of([no_entries()])
    majors = joined(pool.majors for pool in pools)
    return Pool(
        joined(pool.kinds for pool in pools),
        joined(pool.storages for pool in pools),
        majors,
        joined(pool.minors for pool in pools),
        majors if all(pool.epochs is pool.majors for pool in pools) else joined(pool.epochs for pool in pools),
        joined(pool.undo_prev for pool in pools),
        joined(pool.undo_next for pool in pools),
        joined_strings([pool.keys for pool in pools]),
        joined_strings([pool.values for pool in pools]),
    )


def joined_strings(parts: Sequence[Strings]) -> Strings:
    """The strings of all parts under one numbering of their heaps; copied only if those are too many to be numbered."""
    numbers: dict[tuple[int, int], int] = {}
    heaps: list[Heap] = []
    places = []
    for part in parts:
        renumbered = np.zeros(len(part.heaps), dtype=np.uint64)
        for old, heap in enumerate(part.heaps):
            name = (int(heap.__array_interface__["data"][0]), len(heap))
            renumbered[old] = number = numbers.setdefault(name, len(heaps))
            if number == len(heaps):
                heaps.append(heap)
        new = renumbered[(part.places >> _HEAP_SHIFT).view(np.int64)]
        places.append((part.places & _WITHIN_HEAP) | (new << _HEAP_SHIFT))
    if len(heaps) > 1 << HEAP_BITS:
        return Strings.of([part.gather(np.arange(part.count, dtype=np.int64)) for part in parts])
    return Strings(heaps, np.concatenate(places))
