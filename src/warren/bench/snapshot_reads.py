"""Rows about reading: one key, a hundred keys, a range, everything; from a view that is held, and as of now.

As of now is what a `kv` storage does: each call takes a view for itself and gives it back. The reference is
RocksDB without us: its bytes, with nothing made of them. For `get` and `get_many` these are of other keys, so that none
finds its block read already. The store is larger than RocksDB's block cache from half a million keys on; its files lie
in the page cache, as nothing here switches a machine off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np

from warren.base.errors import Damage
from warren.bench.databases import SESSION_KEYS, STORAGE, flush, keys_of, opened_database, puts, write
from warren.bench.measurement import Figure
from warren.bench.run import Figures, Run
from warren.bench.workload import SEED
from warren.snapshot.database import Database
from warren.snapshot.rocksdb_store import RocksDbStore
from warren.snapshot.row_format import behind_storage, row_prefix
from warren.snapshot.snapshot_store import View

LOOKUPS = 10_000
WARM_UP = 1_000
KEYS_AT_ONCE = 100
RANGES = 100


def reading_rows(run: Run) -> Figures:
    sessions = max(1, run.entries // SESSION_KEYS)
    with run.room() as room, opened_database(room) as database:
        run.began("get")
        write(database, puts(range(sessions)))
        flush(database)
        keys = _some_keys(sessions, SEED)
        _rocksdb(database).raw_values([row_prefix(STORAGE) + key for key in keys[:WARM_UP]])  # index and filter blocks
        others = [row_prefix(STORAGE) + key for key in _some_keys(sessions, SEED + 1)]
        yield from _gets(run, database, keys, others)
        yield from _many(run, database, keys, others)
        yield from _scans(run, database, sessions * SESSION_KEYS)


def _gets(run: Run, database: Database, keys: list[bytes], others: list[bytes]) -> Figures:
    raw = _rate(len(others), lambda: sum(_rocksdb(database).raw_value(key) is not None for key in others))
    with held(database.view()) as view:
        got = _rate(len(keys), lambda: sum(view.get(STORAGE, key) is not None for key in keys))
    yield Figure("get", got, "gets/s", raw)
    run.began("get_now")
    yield Figure("get_now", _rate(len(keys), lambda: sum(_get_now(database, key) for key in keys)), "gets/s", got)


def _many(run: Run, database: Database, keys: list[bytes], others: list[bytes]) -> Figures:
    run.began("get_many")
    groups, raw_groups = _groups(keys), _groups(others)
    raw = _rate(len(others), lambda: sum(_raw_found(database, group) for group in raw_groups))
    with held(database.view()) as view:
        many = _rate(len(keys), lambda: sum(_found(view, group) for group in groups))
    yield Figure("get_many", many, "gets/s", raw)
    run.began("get_many_now")
    yield Figure("get_many_now", _rate(len(keys), lambda: sum(_many_now(database, g) for g in groups)), "gets/s", many)


def _scans(run: Run, database: Database, rows: int) -> Figures:
    run.began("range")
    raw = _rate(rows, lambda: _raw_rows(database))
    with held(database.view()) as view:
        ranged = _rate(rows, lambda: sum(1 for _ in view.range(STORAGE)))
        yield Figure("range", ranged, "rows/s", raw)
        run.began("range_now")
        yield Figure("range_now", _rate(rows, lambda: _short_ranges_now(database)), "rows/s", ranged)
        run.began("batches")
        batches = _rate(rows, lambda: sum(batch.count for batch in view.batches(STORAGE)))
        yield Figure("batches", batches, "rows/s", raw)
        run.began("batches_now")
        yield Figure("batches_now", _rate(rows, lambda: _batches_now(database)), "rows/s", batches)


@contextmanager
def held(view: View) -> Iterator[View]:
    try:
        yield view
    finally:
        view.close()


def _get_now(database: Database, key: bytes) -> bool:
    with held(database.view_now()) as view:
        return view.get(STORAGE, key) is not None


def _found(view: View, keys: list[bytes]) -> int:
    return sum(found is not None for found in view.get_many(STORAGE, keys))


def _raw_found(database: Database, keys: list[bytes]) -> int:
    return sum(value is not None for value in _rocksdb(database).raw_values(keys))


def _groups(keys: list[bytes]) -> list[list[bytes]]:
    return [keys[first : first + KEYS_AT_ONCE] for first in range(0, len(keys), KEYS_AT_ONCE)]


def _many_now(database: Database, keys: list[bytes]) -> int:
    with held(database.view_now()) as view:
        return _found(view, keys)


def _short_ranges_now(database: Database) -> int:
    """Everything, in ranges that each take a view."""
    bounds = [(number * (1 << 16) // RANGES).to_bytes(2, "big") for number in range(RANGES)]
    rows = 0
    for low, high in zip(bounds, [*bounds[1:], None], strict=True):
        with held(database.view_now()) as view:
            rows += sum(1 for _ in view.range(STORAGE, low, high))
    return rows


def _batches_now(database: Database) -> int:
    with held(database.view_now()) as view:
        return sum(batch.count for batch in view.batches(STORAGE))


def _raw_rows(database: Database) -> int:
    pieces = _rocksdb(database).raw_pieces(row_prefix(STORAGE), behind_storage(STORAGE), False, 512)
    return sum(map(len, pieces))


def _rocksdb(database: Database) -> RocksDbStore:
    assert isinstance(database.store, RocksDbStore)
    return database.store


def _some_keys(sessions: int, seed: int) -> list[bytes]:
    """Random ones, all of which are there."""
    chance = np.random.default_rng(seed)
    from_sessions = [keys_of(number) for number in chance.integers(0, sessions, LOOKUPS // KEYS_AT_ONCE).tolist()]
    drawn = [keys[at] for keys in from_sessions for at in chance.integers(0, SESSION_KEYS, KEYS_AT_ONCE).tolist()]
    return [drawn[at] for at in chance.permutation(len(drawn)).tolist()]


def _rate(expected: int, read: Callable[[], int]) -> float:
    start = perf_counter()
    found = read()
    seconds = perf_counter() - start
    if found != expected:
        raise Damage(f"{expected} rows were written, {found} were read")
    return expected / seconds
