"""Rows about writing one entry at a time, each made durable before the next.

    round   100 of ours · 100 bare writes of as many bytes · 25 of SQLite         20 rounds, medians

The three take turns in one run, since a disk's sync time drifts from minute to minute. A bare write is one pwrite onto
written zeros and one fdatasync, as many bytes as one of our commits adds to the log (entry block and closing block).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from tools.bench.measurement import Figure
from tools.bench.references import BareFile, Sqlite
from tools.bench.run import BenchRun, Figures
from tools.bench.stores import STORAGE, log_bytes, opened
from warren.log.store import LogStore

ROUNDS = 20
COMMITS_PER_ROUND = 100
SQLITE_COMMITS_PER_ROUND = 25
WARM_UP = 100
KEY, VALUE = b"sixteen-byte-key", bytes(range(100))


def single_rows(run: BenchRun) -> Figures:
    run.began("single_entry")
    with run.room() as room, opened(room) as store:
        ours, bare, sqlite = _take_turns(run, room, store)
    yield Figure("single_entry", median(ours), "µs", median(bare))
    yield Figure("single_entry_beside_sqlite", median(ours), "µs", median(sqlite))


def commit_one(store: LogStore) -> None:
    session = store.begin()
    session.put(STORAGE, KEY, VALUE)
    session.commit()


def _take_turns(run: BenchRun, room: Path, store: LogStore) -> tuple[list[float], list[float], list[float]]:
    ours: list[float] = []
    bare: list[float] = []
    sqlite: list[float] = []
    commit_bytes = _bytes_of_a_commit(store)
    with (
        closing(BareFile(room / "bare", commit_bytes, ROUNDS * COMMITS_PER_ROUND)) as file,
        closing(Sqlite(room / "sqlite")) as database,
    ):
        for number in range(ROUNDS):
            ours += times(lambda: commit_one(store), COMMITS_PER_ROUND)
            bare += times(file.append, COMMITS_PER_ROUND)
            sqlite += times(lambda: database.append([(KEY, VALUE)]), SQLITE_COMMITS_PER_ROUND)
            run.reached((number + 1) / ROUNDS)
    return ours, bare, sqlite


def _bytes_of_a_commit(store: LogStore) -> int:
    """What one commit adds to the log; also warms up."""
    before = log_bytes(store)
    for _ in range(WARM_UP):
        commit_one(store)
    return (log_bytes(store) - before) // WARM_UP


def times(work: Callable[[], None], count: int) -> list[float]:
    """Microseconds of each."""
    each = []
    for _ in range(count):
        start = perf_counter_ns()
        work()
        each.append((perf_counter_ns() - start) / 1000)
    return each
