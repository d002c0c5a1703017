"""Entries of the version buffer: their columns with channel and record number, their order, and the merge of runs.

    entries     as they were added, copied
    channels    which channel each came from
    records     its number there

Write versions are shared by many entries (a session has one), so version, channel and record together identify an
entry: no two are equal, and none overwrites another. Entries are copied because a batch from the log is a view of a
mapped file or of a reused buffer. A view would keep the whole file mapped for an entry that waits long, would change if
the file were recycled, and would make the estimate of memory a guess about the page cache. A copy costs some 10 ns per
entry.

    | major | minor | channel | record |      the order: most significant first; no two entries agree in all four

Most bits of these columns never vary. The others are packed, from the front, above the entry's own position into 64
bits, and the numbers are sorted directly (numpy sorts plain numbers several times faster than an index by four
columns). Columns that do not fit decide only among entries that agree in all that did: usually none. Entries that came
in order are recognized, and not sorted.

Runs in memory and in files are merged in pieces, lowest version first:

    run 1    | a c f | h k |            each run in order, block by block
    run 2    | b d | e g z |
    step 1   bound d: a b c d           everything up to the least last entry of the current blocks …
    step 2   bound f: e f               … precedes all later blocks

A step joins the entries of the current blocks up to the bound and orders them as columns. Runs that begin after the
bound are skipped, so files that follow one another cost as much as one. Memory: one block of each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from warren.base.ids import ChannelId
from warren.log.merge.key_order import number_bits
from warren.log.merge.pool import Flags, Pool, Positions, are_same, joined, taken
from warren.records.columns import U64, AnyUnsigned, EntryColumns, NumberColumn, Texts
from warren.snapshot.store import Version

OrderKey = tuple[int, int, int, int]  # major, minor, channel, record


class _Column(NamedTuple):
    above: AnyUnsigned  # difference of each value to a common base
    bits: int


def version_order(columns: Sequence[NumberColumn], count: int) -> Positions:
    """Positions in the order of these columns, most significant first."""
    varying = [_varying(column) for column in columns if not column.is_constant]
    packed, fitted = _packed(varying, 64 - number_bits(count), count)
    if _is_rising(packed, fitted == len(varying)):
        return np.arange(count, dtype=np.int64)
    if fitted == 0:
        return np.lexsort([column.above for column in reversed(varying)])
    bits = np.uint64(number_bits(count))
    packed = (packed << bits) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    if fitted < len(varying):
        _settle_ties(packed >> bits, order, varying[fitted:])
    return order


def is_in_order(columns: Sequence[NumberColumn], count: int) -> bool:
    """Whether entries are in the order of these columns; may be False although they are."""
    varying = [_varying(column) for column in columns if not column.is_constant]
    packed, fitted = _packed(varying, 64, count)
    return _is_rising(packed, fitted == len(varying))


def rows_up_to(majors: NumberColumn, minors: NumberColumn, up_to: Version) -> Flags | bool:
    """Which rows have a version not above `up_to`; True or False if that is all or none of them."""
    major, minor = up_to
    if majors.is_constant and majors.base != major:
        return majors.base < major
    if majors.is_constant:
        is_inside: Flags = minors.array() <= np.uint64(minor)
    else:
        mine = majors.array()
        is_inside = (mine < np.uint64(major)) | ((mine == np.uint64(major)) & (minors.array() <= np.uint64(minor)))
    inside = int(np.count_nonzero(is_inside))
    return is_inside if 0 < inside < len(is_inside) else inside > 0


def rows_not_above(columns: Sequence[U64], key: Sequence[int]) -> int:
    """Number of rows of ordered columns up to the key; up to all keys with this prefix, if it has fewer parts."""
    start, stop = 0, len(columns[0])
    for column, value in zip(columns, key, strict=False):
        part = column[start:stop]
        low, high = np.searchsorted(part, np.uint64(value), "left"), np.searchsorted(part, np.uint64(value), "right")
        start, stop = start + int(low), start + int(high)
    return stop


def _varying(column: NumberColumn) -> _Column:
    if column.deltas is not None:
        return _Column(column.deltas, int(column.deltas.max()).bit_length())
    values = column.array()
    low = min(column.base, column.at(column.count - 1))
    return _Column(values - np.uint64(low), (abs(column.step) * (column.count - 1)).bit_length())


def _packed(columns: Sequence[_Column], room_bits: int, count: int) -> tuple[U64, int]:
    """As many whole columns as fit, packed into one number, and how many those are."""
    packed = np.zeros(count, dtype=np.uint64)
    for number, column in enumerate(columns):
        room_bits -= column.bits
        if room_bits < 0:
            return packed, number
        packed <<= np.uint64(column.bits)
        packed |= column.above.astype(np.uint64, copy=False)
    return packed, len(columns)


def _is_rising(packed: U64, is_all: bool) -> bool:
    before, behind = packed[:-1], packed[1:]
    return bool((before <= behind).all() if is_all else (before < behind).all())


def _settle_ties(values: U64, order: Positions, columns: Sequence[_Column]) -> None:
    """Sort adjacent entries with equal values by the other columns."""
    same = values[1:] == values[:-1]
    is_tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    places = np.flatnonzero(is_tied)
    if len(places):
        members = order[places]
        rest = [column.above[members] for column in reversed(columns)]
        order[places] = members[np.lexsort([*rest, values[places]])]


def key_at(columns: Sequence[NumberColumn], row: int) -> OrderKey:
    major, minor, channel, record = (column.at(row) for column in columns)
    return major, minor, channel, record


_OBJECT_BYTES = 2048  # about what the Python objects of one batch take, beside its arrays
_PIECE_ROWS = 1 << 15


@dataclass(frozen=True, slots=True)
class BufferedEntries:
    entries: EntryColumns
    channels: NumberColumn
    records: NumberColumn

    @classmethod
    def of_batch(cls, channel: ChannelId, first_record: int, batch: EntryColumns) -> BufferedEntries:
        return cls.of_views(channel, first_record, owned(batch))

    @classmethod
    def of_views(cls, channel: ChannelId, first_record: int, batch: EntryColumns) -> BufferedEntries:
        """Without a copy, for a caller that is done with it before the batch is freed."""
        count = batch.count
        return cls(batch, NumberColumn.constant(count, channel), NumberColumn.sequence(count, first_record))

    @property
    def count(self) -> int:
        return self.entries.count

    @property
    def columns(self) -> tuple[NumberColumn, NumberColumn, NumberColumn, NumberColumn]:
        """The columns of their order."""
        return self.entries.majors, self.entries.minors, self.channels, self.records

    def key(self, row: int) -> OrderKey:
        return key_at(self.columns, row)

    def part(self, start: int, stop: int) -> BufferedEntries:
        return BufferedEntries(
            self.entries.part(start, stop), self.channels.part(start, stop), self.records.part(start, stop)
        )

    def split(self, bytes_max: int) -> Iterator[BufferedEntries]:
        """Pieces of at most this size (a single larger entry stands alone), each of which fits a block."""
        at = 0
        for entries in self.entries.split(bytes_max):
            end = at + entries.count
            yield BufferedEntries(entries, self.channels.part(at, end), self.records.part(at, end))
            at = end

    def owned(self) -> BufferedEntries:
        return BufferedEntries(owned(self.entries), _owned_numbers(self.channels), _owned_numbers(self.records))

    def memory_bytes(self) -> int:
        """Estimated memory use."""
        mine = self.entries
        size = _OBJECT_BYTES + mine.keys.size_bytes + mine.values.size_bytes
        epochs = () if mine.epochs is None or mine.epochs is mine.majors else (mine.epochs,)
        numbers = (mine.kinds, mine.storages, mine.undo_prev, mine.undo_next, mine.keys.offsets, mine.values.offsets)
        for column in (*numbers, *self.columns, *epochs):
            if column.deltas is not None:
                size += column.deltas.nbytes
        return size


class BufferedPool:
    """Several `BufferedEntries`, with rows numbered through."""

    def __init__(self, parts: Sequence[BufferedEntries]) -> None:
        self._pool = Pool.of([part.entries for part in parts])
        self._channels = joined(part.channels for part in parts)
        self._records = joined(part.records for part in parts)

    @property
    def count(self) -> int:
        return self._pool.count

    def order(self) -> Positions:
        columns = (self._pool.majors, self._pool.minors, self._channels, self._records)
        return version_order(columns, self._pool.count)

    def take(self, rows: Positions) -> BufferedEntries:
        """These rows, in this order, copied."""
        return BufferedEntries(self._pool.take(rows), taken(self._channels, rows), taken(self._records, rows))

    def in_order(self, bytes_max: int) -> Iterator[BufferedEntries]:
        """All of them in order, copied, in pieces of about this size (a single larger entry stands alone)."""
        for rows in self._cut(self.order(), bytes_max):
            yield self.take(rows)

    def _cut(self, rows: Positions, bytes_max: int) -> list[Positions]:
        pieces = [rows[at : at + _PIECE_ROWS] for at in range(0, len(rows), _PIECE_ROWS)]
        keys, values = self._pool.keys, self._pool.values
        if min(_PIECE_ROWS, len(rows)) * (keys.longest() + values.longest()) <= bytes_max:
            return pieces
        cut: list[Positions] = []
        for piece in pieces:
            edges = np.concatenate(([0], np.cumsum(keys.lengths(piece) + values.lengths(piece))))
            start = 0
            while start < len(piece):
                stop = int(np.searchsorted(edges, edges[start] + bytes_max, side="right")) - 1
                stop = max(stop, start + 1)
                cut.append(piece[start:stop])
                start = stop
        return cut


def ordered(batches: Sequence[BufferedEntries], bytes_max: int) -> Iterator[BufferedEntries]:
    """All of them in order, in pieces of about this size. Batches that are in order and do not overlap, as those of
    one channel are, are not copied."""
    by_first = sorted(batches, key=lambda batch: batch.key(0))
    follows = (before.key(before.count - 1) < behind.key(0) for before, behind in pairwise(by_first))
    if not all(follows) or not all(is_in_order(batch.columns, batch.count) for batch in by_first):
        return BufferedPool(batches).in_order(bytes_max)
    return (piece for batch in by_first for piece in batch.split(bytes_max))


def concatenate(parts: Sequence[BufferedEntries]) -> BufferedEntries:
    """Many small batches as one, copied."""
    all_of = [part.entries for part in parts]
    majors, epochs = joined(e.majors for e in all_of), joined(e.epochs for e in all_of if e.epochs is not None)
    entries = EntryColumns(
        joined(e.kinds for e in all_of),
        joined(e.storages for e in all_of),
        majors,
        joined(e.minors for e in all_of),
        _joined_texts([e.keys for e in all_of]),
        _joined_texts([e.values for e in all_of]),
        joined(e.undo_prev for e in all_of),
        joined(e.undo_next for e in all_of),
        majors if are_same(majors, epochs) else epochs,
    )
    return BufferedEntries(entries, joined(part.channels for part in parts), joined(part.records for part in parts))


def owned(batch: EntryColumns) -> EntryColumns:
    """A copy of these entries."""
    majors = _owned_numbers(batch.majors)
    epochs = batch.epochs
    return EntryColumns(
        _owned_numbers(batch.kinds),
        _owned_numbers(batch.storages),
        majors,
        _owned_numbers(batch.minors),
        _owned_texts(batch.keys),
        _owned_texts(batch.values),
        _owned_numbers(batch.undo_prev),
        _owned_numbers(batch.undo_next),
        majors if epochs is batch.majors else None if epochs is None else _owned_numbers(epochs),
    )


def _owned_numbers(numbers: NumberColumn) -> NumberColumn:
    if numbers.deltas is None:
        return numbers
    return NumberColumn(numbers.count, numbers.base, numbers.step, numbers.deltas.copy())


def _owned_texts(texts: Texts) -> Texts:
    offsets = texts.offsets
    heap = texts.heap[texts.start : texts.end].copy()
    if offsets.deltas is None:
        return Texts(heap, NumberColumn(offsets.count, 0, offsets.step))
    return Texts(heap, NumberColumn(offsets.count, 0, 0, offsets.deltas - offsets.deltas[0]))


def _joined_texts(parts: Sequence[Texts]) -> Texts:
    heap = np.concatenate([part.heap[part.start : part.end] for part in parts])
    return Texts.of_lengths(heap, np.concatenate([part.bounds()[1] for part in parts]))


def merged(runs: Sequence[Iterator[BufferedEntries]], bytes_max: int) -> Iterator[EntryColumns]:
    """The entries of all runs in order, in batches of about this size at most."""
    heads = [head for head in map(_Head, runs) if head.is_there]
    while len(heads) > 1:
        bound = min(head.last for head in heads)
        parts = [head.up_to(bound) for head in heads if head.first <= bound]
        heads = [head for head in heads if head.is_there]
        for piece in parts if len(parts) == 1 else BufferedPool(parts).in_order(bytes_max):
            yield from piece.entries.split(bytes_max)
    for head in heads:
        for piece in head.rest():
            yield from piece.entries.split(bytes_max)


class _Head:
    """The current block of a run, from its first entry that was not merged yet."""

    def __init__(self, run: Iterator[BufferedEntries]) -> None:
        self._run = run
        self._block: BufferedEntries
        self.first: OrderKey
        self.last: OrderKey
        self.is_there = self._advance()

    def up_to(self, bound: OrderKey) -> BufferedEntries:
        """Remove and return the entries up to the bound."""
        columns: list[U64] = [column.array() for column in self._block.columns]
        stop = rows_not_above(columns, bound)
        part = self._block.part(0, stop)
        if stop == self._block.count:
            self.is_there = self._advance()
        else:
            self._block = self._block.part(stop, self._block.count)
            self.first = self._block.key(0)
        return part

    def rest(self) -> Iterator[BufferedEntries]:
        yield self._block
        yield from self._run

    def _advance(self) -> bool:
        """To the next block; whether there is one."""
        block = next((block for block in self._run if block.count), None)
        if block is not None:
            self._block = block
            self.first, self.last = block.key(0), block.key(block.count - 1)
        return block is not None
