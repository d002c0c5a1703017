"""Hash buckets: a merge dealt to several workers who know nothing of each other.

    bucket(storage, key) = hash mod count         every version of a key falls into one bucket, wherever it was written

A worker reads all inputs, keeps the rows of its own bucket and merges those: what the workers give together is what one
merge gives, in another order. Entries about a storage as a whole (clears, additions) fall into every bucket, since each
must know what they drop.

The hash is a function of storage, length and the first 256 bytes of the key: it spreads, it does not name. It never
reaches the disk, so it may change from one version to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from warren.log.entries import EntryKind
from warren.log.gather import Flags, Positions, numbers_at
from warren.log.merge import survivors
from warren.log.plans import Input, memory_bytes_of, update_to_max
from warren.log.pool import Pool
from warren.log.pool_parts import joined_pools, part_of
from warren.log.storage_entries import ABOUT_STORAGES, Clears, rows_of_kinds
from warren.log.strings import WORD_BYTES, Strings
from warren.records.columns import EntryColumns, Texts
from warren.records.numbers import U64, NumberColumn

_HASHED_BYTES_MAX = 256
_ROWS_AT_ONCE = 1 << 16
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_HALF = np.uint64(32)


def bucket_of(storages: NumberColumn, keys: Strings, count: int) -> Positions:
    """The bucket of each (storage, key)."""
    rows = np.arange(keys.count, dtype=np.int64)
    if count == 1 or not len(rows):
        return np.zeros(len(rows), dtype=np.int64)
    lengths = keys.lengths(rows)
    hashes = _mixed(numbers_at(storages, rows) ^ (lengths.view(np.uint64) << _HALF))
    shortest, longest = int(lengths.min()), min(int(lengths.max()), _HASHED_BYTES_MAX)
    for depth in range(0, longest, WORD_BYTES):
        if depth < shortest:
            hashes = _mixed(hashes ^ keys.words(depth, rows))
        else:
            some = np.flatnonzero(lengths > depth)
            hashes[some] = _mixed(hashes[some] ^ keys.words(depth, some))
    return (((hashes >> _HALF) * np.uint64(count)) >> _HALF).view(np.int64)


def _mixed(values: U64) -> U64:
    """Every bit of the input moves about half of the output's."""
    mixed = values * _FACTORS[0]
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FACTORS[1]
    mixed ^= mixed >> np.uint64(27)
    mixed *= _FACTORS[2]
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket's share of an input, as an input of a merge."""

    source: Input
    number: int
    count: int
    with_values: bool = True  # False: values are not wanted, so they are left out

    @property
    def entries(self) -> int:
        return self.source.entries // self.count + 1

    @property
    def size_bytes(self) -> int:
        return self.source.size_bytes // self.count + 1

    @property
    def is_mapped(self) -> bool:
        return self.source.is_mapped

    def batches(self) -> Iterator[EntryColumns]:
        """The share, copied."""
        return (pool.take(np.arange(pool.count, dtype=np.int64)) for pool in self.pools())

    def pools(self) -> Iterator[Pool]:
        """The share, where it lies."""
        gathered, rows = list[EntryColumns](), 0
        for batch in self.source.batches():
            gathered.append(batch if self.with_values else replace(batch, values=Texts.empty(batch.count)))
            rows += batch.count
            if rows >= _ROWS_AT_ONCE:
                yield self._share(Pool.of(gathered))
                gathered, rows = [], 0
        if gathered:
            yield self._share(Pool.of(gathered))

    def _share(self, pool: Pool) -> Pool:
        if self.count == 1:
            return pool
        mine: Flags = bucket_of(pool.storages, pool.keys, self.count) == self.number
        mine[rows_of_kinds(pool, ABOUT_STORAGES)] = True
        return part_of(pool, np.flatnonzero(mine))


def newest_values(buckets: Sequence[Bucket], memory_bytes_max: int) -> Iterator[EntryColumns]:
    """The keys that have a value when all is merged, in key order. The inputs hold all there is of their keys."""
    if memory_bytes_of(buckets) > memory_bytes_max:
        pools = [Pool.of([batch]) for batch in update_to_max(buckets, True)]
    else:
        pools = [joined_pools([pool for bucket in buckets for pool in bucket.pools()])]
    for pool in pools:
        rows = survivors(pool, Clears.of(pool), True)
        if not pool.kinds.is_constant:
            rows = rows[numbers_at(pool.kinds, rows) == EntryKind.PUT]
        elif pool.kinds.base != EntryKind.PUT:
            rows = rows[:0]
        yield from (pool.take(piece) for piece in pool.pieces(rows))
