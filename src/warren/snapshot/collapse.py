"""What of a taken range reaches the store: for each key its newest entry, and nothing of what came and went.

    key of any storage          put 1 · put 2 · remove 3     →   remove 3          the store may hold an older value
    key of a write-once one     put 1 · remove 3             →   nothing           there is no older value to remove
                                remove 3                     →   remove 3          its put was applied before

A write-once storage is one whose keys are put once, and never again after they were removed (messages). So if the put
is in the range, the store below has nothing under that key, and neither entry needs to go there: whatever lives
shorter than it takes to be reflected costs no work below. With any other storage that would bring an old value back.

The rest is the merge rule (log/merge), never at the bottom: tombstones and clears stay, since what they are about may
lie in the store. Always true: applying the result gives what applying every entry in version order gives.
Memory: the whole of what is given; whoever takes a large range collapses it part by part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from warren.log.entries import EntryKind
from warren.log.gather import Flags, Positions, numbers_at
from warren.log.key_order import KeyRanges
from warren.log.key_words import KeyWords
from warren.log.merge import survivors
from warren.log.pool import Pool
from warren.log.pool_parts import part_of
from warren.log.storage_entries import KEYED, Clears, rows_of_kinds
from warren.records.columns import EntryColumns
from warren.records.numbers import U64

_RANGE_ROWS = 1 << 19  # what is ordered at once: it should fit into the processor's caches


def collapsed(batches: Iterable[EntryColumns], write_once: Collection[int] = ()) -> list[EntryColumns]:
    """One entry for each key that needs one, in key order; entries about storages in front of their keys."""
    given = [batch for batch in batches if batch.count]
    if not given:
        return []
    pool = Pool.of(given)
    clears = Clears.of(pool)
    if len(gone := _cancelled(pool, write_once)):
        stays = np.ones(pool.count, dtype=np.bool_)
        stays[gone] = False
        pool = part_of(pool, np.flatnonzero(stays))
    rows = survivors(pool, clears, is_bottom=False)
    return [pool.take(piece) for piece in pool.pieces(rows)]


def _cancelled(pool: Pool, write_once: Collection[int]) -> Positions:
    """Rows of write-once keys whose newest entry is a remove, and which were put in this range."""
    rows = _of_storages(pool, rows_of_kinds(pool, KEYED), write_once)
    if not (numbers_at(pool.kinds, rows) == EntryKind.REMOVE).any():
        return rows[:0]
    words = KeyWords(pool.storages, pool.keys, rows)
    ranges = KeyRanges(words, words.count // _RANGE_ROWS + 1)
    return np.concatenate([_cancelled_of(pool, ranges, number) for number in range(ranges.count)])


def _cancelled_of(pool: Pool, ranges: KeyRanges, number: int) -> Positions:
    order = ranges.order(number)
    if len(order.rows) == 0:
        return order.rows
    is_put = numbers_at(pool.kinds, order.rows) == EntryKind.PUT
    put, removed = _newest(pool, order.rows, order.starts, is_put), _newest(pool, order.rows, order.starts, ~is_put)
    is_gone = put.is_there & removed.is_there & removed.is_above(put)
    return order.rows[np.repeat(is_gone, np.diff(order.starts, append=len(order.rows)))]


class _Newest:
    """The newest version of each group among some of its rows."""

    def __init__(self, is_there: Flags, major: U64, minor: U64) -> None:
        self.is_there, self.major, self.minor = is_there, major, minor

    def is_above(self, other: _Newest) -> Flags:
        is_above: Flags = (self.major == other.major) & (self.minor > other.minor)
        is_above |= self.major > other.major
        return is_above


def _newest(pool: Pool, rows: Positions, starts: Positions, is_meant: Flags) -> _Newest:
    sizes = np.diff(starts, append=len(rows))
    major = np.where(is_meant, numbers_at(pool.majors, rows), np.uint64(0))
    highest = np.maximum.reduceat(major, starts)
    is_highest = is_meant & (major == np.repeat(highest, sizes))
    minor = np.where(is_highest, numbers_at(pool.minors, rows), np.uint64(0))
    return _Newest(np.logical_or.reduceat(is_meant, starts), highest, np.maximum.reduceat(minor, starts))


def _of_storages(pool: Pool, rows: Positions, storages: Collection[int]) -> Positions:
    if not storages:
        return rows[:0]
    if pool.storages.is_constant:
        return rows if pool.storages.base in storages else rows[:0]
    wanted = np.array(sorted(storages), dtype=np.uint64)
    return rows[np.isin(numbers_at(pool.storages, rows), wanted)]
