"""The entries of many batches under one row number, and rows of them taken out again as columns.

Numbers are joined to one column each, in the narrowest width that holds them all; keys and values stay where they are
(`Strings`). Columns that are the same for every entry stay so, and cost nothing: a storage, a kind, undo numbers that
nobody uses, and an epoch that is the write version's major part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from warren.log.gather import Positions, numbers_at
from warren.log.strings import Strings
from warren.records.columns import EntryColumns, Texts
from warren.records.numbers import WIDTHS, AnyUnsigned, NumberColumn, narrowest

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
    assert batch.epochs is not None, "whoever reads a block for a merge fills in its epoch"
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
