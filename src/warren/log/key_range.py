"""Key ranges: a merge dealt to several workers, each of whom writes one file of the result.

    low <= (storage, key) < high          None: from the first key on, to the last

Every version of a key lies in one range, and so do the entries about a storage as a whole, at its empty key. But what a
clear drops may lie in any range behind it: whoever merges a range must know the clears of all. So a range reads all
inputs, keeps its own rows, and notes every clear it comes by.

Rows are compared with a bound eight bytes at a time, all at once; only those that agree so far are looked at further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from warren.log.gather import Flags, Positions, numbers_at
from warren.log.plans import Input
from warren.log.pool import Pool
from warren.log.pool_parts import part_of
from warren.log.storage_entries import KEYED, NO_CLEARS, Clears
from warren.log.strings import WORD_BYTES
from warren.records.columns import EntryColumns

ROWS_AT_ONCE = 1 << 16

Bound = tuple[int, bytes]  # storage, key


def is_below(pool: Pool, bound: Bound) -> Flags:
    """Which rows come before the bound."""
    storage, key = bound
    storages = numbers_at(pool.storages, np.arange(pool.count, dtype=np.int64))
    below: Flags = storages < np.uint64(storage)
    open_rows = np.flatnonzero(storages == np.uint64(storage))
    for depth in range(0, len(key), WORD_BYTES):
        words = pool.keys.words(depth, open_rows)
        mine = np.uint64(int.from_bytes(key[depth : depth + WORD_BYTES].ljust(WORD_BYTES, b"\0"), "big"))
        below[open_rows[words < mine]] = True
        open_rows = open_rows[words == mine]
        if not len(open_rows):
            return below
    below[open_rows[pool.keys.lengths(open_rows) < len(key)]] = True  # equal but for zeros: the shorter comes first
    return below


@dataclass(frozen=True, slots=True)
class KeyRange:
    low: Bound | None = None
    high: Bound | None = None

    def rows(self, pool: Pool) -> Positions:
        if self.low is None and self.high is None:
            return np.arange(pool.count, dtype=np.int64)
        within: Flags = np.ones(pool.count, dtype=np.bool_) if self.high is None else is_below(pool, self.high)
        if self.low is not None:
            within &= ~is_below(pool, self.low)
        return np.flatnonzero(within)

    def to_json(self) -> list[Any]:
        return [None if bound is None else [bound[0], bound[1].hex()] for bound in (self.low, self.high)]

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> KeyRange:
        return cls(*(None if bound is None else (int(bound[0]), bytes.fromhex(bound[1])) for bound in raw))


def ranges_between(bounds: Sequence[Bound]) -> list[KeyRange]:
    """One range more than there are bounds; together they are everything."""
    edges = [None, *bounds, None]
    return [KeyRange(low, high) for low, high in pairwise(edges)]


class RangeInput:
    """One range's share of an input, as an input of a merge. What was read has noted its clears."""

    def __init__(self, source: Input, key_range: KeyRange, share: float) -> None:
        self._source = source
        self._range = key_range
        self._share = share  # about how much of the source is in the range
        self.clears = NO_CLEARS

    @property
    def entries(self) -> int:
        return int(self._source.entries * self._share) + 1

    @property
    def size_bytes(self) -> int:
        return int(self._source.size_bytes * self._share) + 1

    @property
    def is_mapped(self) -> bool:
        return self._source.is_mapped

    def batches(self) -> Iterator[EntryColumns]:
        """The share, copied."""
        return (pool.take(np.arange(pool.count, dtype=np.int64)) for pool in self.pools())

    def pools(self) -> Iterator[Pool]:
        """The share, where it lies."""
        gathered, rows = list[EntryColumns](), 0
        for batch in self._source.batches():
            gathered.append(batch)
            rows += batch.count
            if rows >= ROWS_AT_ONCE:
                yield self._own(Pool.of(gathered))
                gathered, rows = [], 0
        if gathered:
            yield self._own(Pool.of(gathered))

    def _own(self, pool: Pool) -> Pool:
        if not pool.kinds.is_constant or pool.kinds.base not in KEYED:
            self.clears = self.clears.and_also(Clears.of(pool))
        return part_of(pool, self._range.rows(pool))
