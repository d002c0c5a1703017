"""Entries that the buffer keeps: their columns, and the channel and record number under which each came.

    entries     as they were added, copied
    channels    which channel each came from
    records     its number there

Write versions are shared by many entries (a session has one), so version, channel and record together are an entry's
name here: no two are equal, and an entry never takes another's place.

Why copied: a batch that comes from the log is a view of a mapped file or of a buffer that is filled again. A view would
keep that whole file mapped, for an entry that waits long, and would change under us if the file were recycled; and the
estimate of memory would be a guess about the page cache. A copy costs some 10 ns per entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from warren.base.ids import ChannelId
from warren.log.gather import Positions
from warren.log.pool import Pool, are_same, joined, taken
from warren.records.columns import EntryColumns, Texts
from warren.records.numbers import NumberColumn
from warren.snapshot.version_order import OrderKey, is_in_order, key_at, version_order

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
        """For somebody who is done with it before the batch goes."""
        count = batch.count
        return cls(batch, NumberColumn.constant(count, channel), NumberColumn.sequence(count, first_record))

    @property
    def count(self) -> int:
        return self.entries.count

    @property
    def columns(self) -> tuple[NumberColumn, NumberColumn, NumberColumn, NumberColumn]:
        """What they are ordered by."""
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
        """About how much memory they take."""
        mine = self.entries
        told = _OBJECT_BYTES + mine.keys.size_bytes + mine.values.size_bytes
        epochs = () if mine.epochs is None or mine.epochs is mine.majors else (mine.epochs,)
        numbers = (mine.kinds, mine.storages, mine.undo_prev, mine.undo_next, mine.keys.offsets, mine.values.offsets)
        for column in (*numbers, *self.columns, *epochs):
            if column.deltas is not None:
                told += column.deltas.nbytes
        return told


class BufferedPool:
    """Several of them under one row number."""

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
    one channel are, come as they lie, uncopied."""
    by_first = sorted(batches, key=lambda batch: batch.key(0))
    follows = (before.key(before.count - 1) < behind.key(0) for before, behind in pairwise(by_first))
    if not all(follows) or not all(is_in_order(batch.columns, batch.count) for batch in by_first):
        return BufferedPool(batches).in_order(bytes_max)
    return (piece for batch in by_first for piece in batch.split(bytes_max))


def one_behind_the_other(parts: Sequence[BufferedEntries]) -> BufferedEntries:
    """Many small ones as one, copied."""
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
    """The same entries in memory of their own."""
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
