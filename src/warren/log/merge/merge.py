"""Merge rule: what remains of entries from several inputs. Start-up snapshot, compaction and Spark tasks use it.

    per (storage, key)    the entry with the newest write version (major, minor) wins, whatever the order of the inputs
    clears                CLEAR_STORAGE and REMOVE_STORAGE at version v drop the storage's key entries older than v
    tombstones            REMOVE wins over what is older, and stays until nothing older can lie below
    storages              the newest ADD_STORAGE stays, unless a REMOVE_STORAGE is newer

*Bottom* means that the oldest input is among the inputs: only then are tombstones and clears dropped as well, since
only then nothing is left that they could have to drop. Clears must be known from all inputs before anything is dropped;
a caller that merges in pieces collects them first (`Clears.of` each piece, `and_also`).

Entries about a storage as a whole:

    CLEAR_STORAGE v     drops every key entry of the storage older than v; the storage stays
    REMOVE_STORAGE v    the same, and every ADD_STORAGE older than v
    ADD_STORAGE v       the storage exists as of v

Of each kind the newest per storage counts. They are few and handled one by one; whether an entry is older than the last
clear of its storage is computed for millions of rows at once.

Output: sorted by storage, then key. Entries about the storage itself (clear, add, remove) come first in their storage,
in the order of their kinds, with an empty key; an entry *of* the empty key follows them.

Invariants
* Merging in pieces, in any order and grouping, then once more at the bottom, gives what one merge gives.
* Equal version means equal kind and value, else it is `Damage`; that is checked for the newest version of each key
  (what is superseded anyway is not compared).
* RECORD entries have no key to be merged by: `Misuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from warren.base.errors import Damage, Misuse, Refused
from warren.log.merge.key_order import KeyOrder, KeyRanges, KeyWords
from warren.log.merge.pool import Flags, Pool, Positions, numbers_at, spans
from warren.log.settings import CLEARING, EntryKind
from warren.records.columns import U64, EntryColumns

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
    rows_left: list[int] = []
    for (storage, kind), row in sorted(newest.items()):
        removal = newest.get((storage, EntryKind.REMOVE_STORAGE))
        is_removed = removal is not None and version_at(pool, row) < version_at(pool, removal)
        if not is_removed and not (is_bottom and kind in CLEARING):
            rows_left.append(row)
    return rows_left


Jobs = Sequence[Callable[[], None]]
_KEY_SHOWN_BYTES = 32
_RANGE_ROWS = 1 << 19  # what a worker orders at once: it should fit into the processor's caches


def merge(inputs: Sequence[EntryColumns], is_bottom: bool, clears: Clears = NO_CLEARS) -> EntryColumns:
    """What is left of all inputs, sorted. `clears` are those known from elsewhere."""
    pool = Pool.of(inputs)
    return pool.take(survivors(pool, clears.and_also(Clears.of(pool)), is_bottom))


def one_after_another(jobs: Jobs) -> None:
    for job in jobs:
        job()


def survivors(
    pool: Pool,
    clears: Clears,
    is_bottom: bool,
    together: Callable[[Jobs], None] = one_after_another,
    worker_count: int = 1,
) -> Positions:
    """The rows that are left, in order. Key ranges are worked on by as many workers as there are, together."""
    _check_kinds(pool)
    words = KeyWords(pool.storages, pool.keys, _keyed_rows(pool, clears))
    ranges = KeyRanges(words, worker_count * (words.count // (worker_count * _RANGE_ROWS) + 1))
    found: dict[int, Positions] = {}

    def work(worker: int) -> None:
        for number in range(worker, ranges.count, worker_count):
            newest = _newest(pool, ranges.order(number))
            found[number] = _without_tombstones(pool, newest) if is_bottom else newest

    together([partial(work, worker) for worker in range(worker_count)])
    return _with_storage_rows(pool, np.concatenate([found[number] for number in sorted(found)]), is_bottom)


def _check_kinds(pool: Pool) -> None:
    kinds = kinds_in(pool)
    if EntryKind.RECORD in kinds:
        raise Misuse("record entries take no part in a merge: they have no key", "read them with the stream's scan")
    if unknown := kinds - set(KEYED) - set(ABOUT_STORAGES):
        raise Refused(f"an entry is of kind {min(unknown)}, which this version does not know", "use a newer warren")


def _keyed_rows(pool: Pool, clears: Clears) -> Positions | None:
    """Rows of puts and removes which no clear covers; None if that is all of them."""
    if pool.kinds.is_constant and pool.kinds.base in KEYED and not clears.versions:
        return None
    rows = rows_of_kinds(pool, KEYED)
    return clears.uncovered(pool, rows) if clears.versions else rows


def _without_tombstones(pool: Pool, rows: Positions) -> Positions:
    if pool.kinds.is_constant and pool.kinds.base == EntryKind.PUT:
        return rows
    is_put: Flags = numbers_at(pool.kinds, rows) != EntryKind.REMOVE
    return rows[is_put]


def _newest(pool: Pool, order: KeyOrder) -> Positions:
    """For each key the row of its newest version."""
    sizes = np.diff(order.starts, append=len(order.rows))
    winners = order.rows[order.starts]
    several = np.flatnonzero(sizes > 1)
    if len(several) == 0:
        return winners
    sizes = sizes[several]
    rows = order.rows[spans(order.starts[several], sizes)]
    firsts = np.cumsum(sizes) - sizes
    is_newest = _has_greatest_version(pool, rows, firsts, sizes)
    chosen = np.maximum.reduceat(np.where(is_newest, np.arange(len(rows)), -1), firsts)
    winners[several] = rows[chosen]
    is_newest[chosen] = False
    rivals = np.flatnonzero(is_newest)
    if len(rivals):
        _check_same(pool, rows[rivals], winners[several][np.searchsorted(firsts, rivals, side="right") - 1])
    return winners


def _has_greatest_version(pool: Pool, rows: Positions, firsts: Positions, sizes: Positions) -> Flags:
    """Which rows have the greatest version of their group; groups lie one behind the other."""
    major = numbers_at(pool.majors, rows)
    is_greatest: Flags = major == np.repeat(np.maximum.reduceat(major, firsts), sizes)
    minor: U64 = np.where(is_greatest, numbers_at(pool.minors, rows), np.uint64(0))
    is_greatest &= minor == np.repeat(np.maximum.reduceat(minor, firsts), sizes)
    return is_greatest


def _check_same(pool: Pool, rows: Positions, winners: Positions) -> None:
    """Equal version, so it must be the same entry, read twice."""
    same = numbers_at(pool.kinds, rows) == numbers_at(pool.kinds, winners)
    same &= pool.values.are_equal(rows, winners)
    if not same.all():
        _raise_conflict(pool, int(rows[np.argmin(same)]))


def _raise_conflict(pool: Pool, row: int) -> None:
    key = pool.keys.at(row)
    shown = key[:_KEY_SHOWN_BYTES].hex() + ("…" if len(key) > _KEY_SHOWN_BYTES else "")
    where = f"storage {pool.storages.at(row)}, key {shown or 'of no bytes'}"
    major, minor = version_at(pool, row)
    raise Damage(f"{where}: two different entries have the write version {major}.{minor}")


def _with_storage_rows(pool: Pool, keyed: Positions, is_bottom: bool) -> Positions:
    """The rows about storages that stay, each in front of its storage's keys."""
    newest: dict[tuple[int, int], int] = {}
    for row in rows_of_kinds(pool, ABOUT_STORAGES).tolist():
        if pool.keys.at(row):
            raise Damage(f"an entry about storage {pool.storages.at(row)} as a whole has a key")
        name = (pool.storages.at(row), pool.kinds.at(row))
        known = newest.setdefault(name, row)
        if version_at(pool, row) > version_at(pool, known):
            newest[name] = row
        elif version_at(pool, row) == version_at(pool, known):
            _check_same(pool, np.array([row]), np.array([known]))
    if not newest:
        return keyed
    rows = np.array(surviving(newest, pool, is_bottom), dtype=np.int64)
    places = np.searchsorted(numbers_at(pool.storages, keyed), numbers_at(pool.storages, rows))
    return np.insert(keyed, places, rows)
