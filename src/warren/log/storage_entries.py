"""Entries about a storage as a whole: clears, additions and removals, and what they leave of everything else.

    CLEAR_STORAGE v     every key entry of the storage older than v is gone; the storage stays
    REMOVE_STORAGE v    the same, and every ADD_STORAGE older than v is gone too
    ADD_STORAGE v       the storage exists as of v

Of each kind the newest per storage counts. They are few, so they are handled one by one; the question they answer —
is this entry older than the last clear of its storage? — is asked of millions of rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warren.log.entries import CLEARING, EntryKind
from warren.log.gather import Flags, Positions, numbers_at
from warren.log.pool import Pool

Version = tuple[int, int]
KEYED = (EntryKind.PUT, EntryKind.REMOVE)
ABOUT_STORAGES = (EntryKind.CLEAR_STORAGE, EntryKind.ADD_STORAGE, EntryKind.REMOVE_STORAGE)


@dataclass(frozen=True, slots=True)
class Clears:
    """The version of each storage's newest clear or removal."""

    versions: dict[int, Version]

    @classmethod
    def of(cls, pool: Pool) -> Clears:
        found: dict[int, Version] = {}
        for row in rows_of_kinds(pool, CLEARING).tolist():
            storage = pool.storages.at(row)
            found[storage] = max(found.get(storage, (0, 0)), version_at(pool, row))
        return cls(found)

    def and_also(self, other: Clears) -> Clears:
        both = dict(self.versions)
        for storage, version in other.versions.items():
            both[storage] = max(both.get(storage, (0, 0)), version)
        return Clears(both)

    def uncovered(self, pool: Pool, rows: Positions) -> Positions:
        """Those of these rows which are not older than the clear of their storage."""
        storages = np.array(sorted(self.versions), dtype=np.uint64)
        majors, minors = (np.array([self.versions[int(s)][i] for s in storages], dtype=np.uint64) for i in (0, 1))
        mine = numbers_at(pool.storages, rows)
        clear = np.minimum(np.searchsorted(storages, mine), len(storages) - 1)
        major, minor = numbers_at(pool.majors, rows), numbers_at(pool.minors, rows)
        is_older: Flags = (major < majors[clear]) | ((major == majors[clear]) & (minor < minors[clear]))
        is_older &= storages[clear] == mine
        return rows[~is_older]


NO_CLEARS = Clears({})


def kinds_in(pool: Pool) -> set[int]:
    if pool.kinds.deltas is None:
        return {pool.kinds.base} if pool.count else set()
    return {pool.kinds.base + above for above in np.unique(pool.kinds.deltas).tolist()}


def rows_of_kinds(pool: Pool, kinds: Sequence[int]) -> Positions:
    deltas = pool.kinds.deltas
    if deltas is None:
        return np.arange(pool.count if pool.kinds.base in kinds else 0, dtype=np.int64)
    wanted = np.array([kind - pool.kinds.base for kind in kinds if kind >= pool.kinds.base], dtype=deltas.dtype)
    return np.flatnonzero(np.isin(deltas, wanted))


def version_at(pool: Pool, row: int) -> Version:
    return pool.majors.at(row), pool.minors.at(row)


def surviving(newest: dict[tuple[int, int], int], pool: Pool, is_bottom: bool) -> list[int]:
    """Of the newest row of each (storage, kind), those that stay, sorted by storage and kind."""
    kept: list[int] = []
    for (storage, kind), row in sorted(newest.items()):
        removal = newest.get((storage, EntryKind.REMOVE_STORAGE))
        is_removed = removal is not None and version_at(pool, row) < version_at(pool, removal)
        if not is_removed and not (is_bottom and kind in CLEARING):
            kept.append(row)
    return kept
