"""Rows of a pool as a pool, and several pools as one: nothing of keys and values is copied, only where they lie.

A bucket's share of a dozen files is some rows of each. Taking them out as columns would copy every version of every
value, of which the merge then throws most away; here a row stays eight bytes for its key and eight for its value. Pools
of one mapped file name the same heap, which is why heaps are told apart by their place in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warren.log.gather import Positions
from warren.log.heaps import HEAP_BITS
from warren.log.pool import Pool, joined, no_entries, taken
from warren.log.strings import Strings
from warren.records.columns import Heap

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
