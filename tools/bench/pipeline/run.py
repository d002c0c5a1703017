"""A run of `warren bench pipeline`: a Spark session on two cores of this machine, stores to read, and a clock.

The clock starts when the session is there and the path has been gone once with a small store: neither Spark's start nor
the warming up of the JVM is measured. CPU seconds are those of this process, the JVM and the Python workers together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tools.bench import workload
from tools.bench.measurement import Figure
from tools.bench.process_tree import cpu_seconds
from tools.bench.run import BenchRun
from tools.bench.stores import STORAGE, opened
from tools.bench.workload import KEYS_FIXED, SESSION_ENTRIES

MASTER = "local[2]"
FILES = 8  # at least; the store rotates automatically as well
TIMES = 3
WARM_UP_ENTRIES = 200_000
ROOM_BYTES_PER_ENTRY = 2400  # the largest store has four times the entries: log, snapshot, runs, compacted file


@dataclass(frozen=True, slots=True)
class SparkRun(BenchRun):
    session: Any


@dataclass(frozen=True, slots=True)
class Store:
    """A store that was stopped."""

    directory: str
    entries: int
    distinct: int | None  # None: keys may have met by chance

    @property
    def room(self) -> Path:
        return Path(self.directory).parent


@dataclass(frozen=True, slots=True)
class Took:
    seconds: float
    cpu_seconds: float


@contextmanager
def spark_run(run: BenchRun) -> Iterator[SparkRun]:
    from warren.pipeline.session import QUIET, spark_session

    config = {
        "spark.local.dir": str(run.home / "spark"),
        "spark.sql.shuffle.partitions": "8",
    }
    run.began("Spark")
    session = spark_session(MASTER, app_name="warren bench", config={**QUIET, **config})
    try:
        yield SparkRun(run.home, run.entries, run.watcher, session)
    finally:
        session.stop()


def stopped_store(run: BenchRun, room: Path, entries: int, key_bytes: tuple[int, int] = KEYS_FIXED) -> Store:
    """Entries in eight files or more, stopped cleanly, written to the disk."""
    sessions, distinct = workload.stream(entries, key_bytes)
    count = -(-entries // SESSION_ENTRIES)
    every = max(1, count // FILES)
    with opened(room) as store:
        for number, some in enumerate(sessions, 1):
            session = store.begin()
            session.put_columns(STORAGE, some.keys, some.values)
            epoch = session.end()
            if number % every == 0:
                store.wait(epoch)
                store.rotate()
            run.reached(number / count)
        store.close()
    os.sync()
    return Store(str(room / "log"), entries, distinct if key_bytes == KEYS_FIXED else None)


def small_store(run: BenchRun, room: Path) -> Store:
    """What a path is gone with before it is measured."""
    room.mkdir()
    return stopped_store(run, room, min(run.entries, WARM_UP_ENTRIES))


@contextmanager
def copy_of(store: Store) -> Iterator[Store]:
    """A copy to be changed, beside the store; its bytes lie in the page cache, as the store's own do."""
    room = store.room / "copy"
    room.mkdir()
    shutil.copytree(store.directory, room / "log")
    os.sync()
    try:
        yield Store(str(room / "log"), store.entries, store.distinct)
    finally:
        shutil.rmtree(room)


def timed(work: Callable[[], None]) -> Took:
    cpu, start = cpu_seconds(os.getpid()), perf_counter()
    work()
    seconds = perf_counter() - start
    return Took(seconds, cpu_seconds(os.getpid()) - cpu)


def middle(times: list[Took]) -> Took:
    return sorted(times, key=lambda took: took.seconds)[len(times) // 2]


def rates(name: str, entries: int, took: Took, reference: float | None = None) -> Iterator[Figure]:
    """A row, and the CPU seconds it took."""
    yield Figure(name, entries / took.seconds, "rows/s", reference)
    yield Figure(f"{name}_cpu", took.cpu_seconds, "s")
