"""Rows about reading: one key, a hundred keys, a range, everything; from a view that is held, and as of now.

As of now is what a `kv` storage does: each call takes a view for itself and gives it back. Meanwhile reflection stands
still and ten thousand keys are in the log only, so that now is more than the store. The reference of the others is
RocksDB without us: its bytes, with nothing made of them; for `get` and `get_many` of other keys, so that none finds its
block read already. The store is larger than RocksDB's block cache from half a million keys on; its files lie in the
page cache, as nothing here switches a machine off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import numpy as np

from tools.bench.measurement import Figure
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.child import MORE_FROM
from tools.bench.snapshot.databases import SESSION_KEYS, STORAGE, flush, keys_of, opened_database, puts, write
from tools.bench.workload import SEED
from warren.base.errors import Damage
from warren.records.columns import EntryColumns
from warren.snapshot.database import Database
from warren.snapshot.rocksdb.row_format import behind_storage, row_prefix
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import ReadView

LOOKUPS = 10_000
WARM_UP = 1_000
KEYS_AT_ONCE = 100
RANGES = 100
BEHIND_SESSIONS = 10
RAW_ROWS_AT_ONCE = 512


def reading_rows(run: BenchRun) -> Figures:
    sessions = max(1, run.entries // SESSION_KEYS)
    with run.room() as room, opened_database(room) as database:
        run.began("get")
        write(database, puts(range(sessions)))
        flush(database)
        keys, others = _some_keys(sessions, SEED), _some_keys(sessions, SEED + 1)
        held_rates: list[float] = []
        for figure in _held_rows(run, database, keys, [row_prefix(STORAGE) + key for key in others]):
            held_rates.append(figure.value)
            yield figure
        with _behind(database):
            yield from _now_rows(run, database, keys, held_rates)


def _held_rows(run: BenchRun, database: Database, keys: list[bytes], raw_keys: list[bytes]) -> Figures:
    store = _rocksdb(database)
    store.raw_values(raw_keys[:WARM_UP])  # index and filter blocks
    with held(database.view()) as view:
        raw = _rate(LOOKUPS, lambda: sum(store.raw_value(key) is not None for key in raw_keys))
        yield Figure("get", _rate(LOOKUPS, lambda: sum(_has(view, key) for key in keys)), "gets/s", raw)
        run.began("get_many")
        raw = _rate(LOOKUPS, lambda: sum(_count(store.raw_values(group)) for group in _groups(raw_keys)))
        many = _rate(LOOKUPS, lambda: sum(_count(view.get_many(STORAGE, group)) for group in _groups(keys)))
        yield Figure("get_many", many, "gets/s", raw)
        run.began("range")
        rows = max(1, run.entries // SESSION_KEYS) * SESSION_KEYS
        raw = _rate(rows, lambda: _raw_rows(store))
        yield Figure("range", _rate(rows, lambda: sum(1 for _ in view.range(STORAGE))), "rows/s", raw)
        run.began("batches")
        yield Figure("batches", _rate(rows, lambda: _rows(view.batches(STORAGE))), "rows/s", raw)


def _now_rows(run: BenchRun, database: Database, keys: list[bytes], held_rates: list[float]) -> Figures:
    rows = (max(1, run.entries // SESSION_KEYS) + BEHIND_SESSIONS) * SESSION_KEYS
    get, many, ranged, batches = held_rates
    run.began("get_now")
    yield Figure("get_now", _rate(LOOKUPS, lambda: sum(_get_now(database, key) for key in keys)), "gets/s", get)
    run.began("get_many_now")
    found = _rate(LOOKUPS, lambda: sum(_many_now(database, group) for group in _groups(keys)))
    yield Figure("get_many_now", found, "gets/s", many)
    run.began("range_now")
    yield Figure("range_now", _rate(rows, lambda: _short_ranges_now(database)), "rows/s", ranged)
    run.began("batches_now")
    yield Figure("batches_now", _rate(rows, lambda: _batches_now(database)), "rows/s", batches)


@contextmanager
def _behind(database: Database) -> Iterator[None]:
    """Ten sessions are durable, and stay in the log."""
    assert database.reflection is not None
    database.reflection.pause()
    write(database, puts(range(MORE_FROM, MORE_FROM + BEHIND_SESSIONS)))
    assert database.store.applied.epoch < database.log.durable
    yield
    database.reflection.resume()


@contextmanager
def held(view: ReadView) -> Iterator[ReadView]:
    try:
        yield view
    finally:
        view.close()


def _has(view: ReadView, key: bytes) -> bool:
    return view.get(STORAGE, key) is not None


def _count(found: Sequence[object | None]) -> int:
    return sum(each is not None for each in found)


def _rows(batches: Iterator[EntryColumns]) -> int:
    return sum(batch.count for batch in batches)


def _get_now(database: Database, key: bytes) -> bool:
    with held(database.view_now()) as view:
        return _has(view, key)


def _many_now(database: Database, keys: list[bytes]) -> int:
    with held(database.view_now()) as view:
        return _count(view.get_many(STORAGE, keys))


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
        return _rows(view.batches(STORAGE))


def _raw_rows(store: RocksDbStore) -> int:
    return sum(map(len, store.raw_pieces(row_prefix(STORAGE), behind_storage(STORAGE), False, RAW_ROWS_AT_ONCE)))


def _groups(keys: list[bytes]) -> list[list[bytes]]:
    return [keys[first : first + KEYS_AT_ONCE] for first in range(0, len(keys), KEYS_AT_ONCE)]


def _rocksdb(database: Database) -> RocksDbStore:
    assert isinstance(database.store, RocksDbStore)
    return database.store


def _some_keys(sessions: int, seed: int) -> list[bytes]:
    """Random ones, all of which are there."""
    rng = np.random.default_rng(seed)
    from_sessions = [keys_of(number) for number in rng.integers(0, sessions, LOOKUPS // KEYS_AT_ONCE).tolist()]
    drawn = [keys[at] for keys in from_sessions for at in rng.integers(0, SESSION_KEYS, KEYS_AT_ONCE).tolist()]
    return [drawn[at] for at in rng.permutation(len(drawn)).tolist()]


def _rate(expected: int, read: Callable[[], int]) -> float:
    start = perf_counter()
    found = read()
    seconds = perf_counter() - start
    if found != expected:
        raise Damage(f"{expected} rows were written, {found} were read")
    return expected / seconds
