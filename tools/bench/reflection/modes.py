"""Rows about the ways of handing over alone (checklist RF-03, RF-11, RF-14), each beside the same writer without any.

    …_writer     µs an entry for who writes, until it is durable
    …_cpu        µs of processor time an entry, of the whole process, until the store has it
    …_log_read   bytes of log files that were read again to reflect; beside it the bytes that were written to them
    …_lag_p50    ms from durable to visible in the store, of sessions that come every five milliseconds; and …_p99

The store is RocksDB; tables of a large backlog are left out, so that every mode does all of its work in this process
and only the hand-over differs. Which modes there are is asked of `Mode`.

What was read is counted where it is read: the tail checks every block's checksum, so it touches each byte between two
places at which it stands. System calls do not show it, since the tail maps the files, nor do the
counters of the disk, since new data is still in the page cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from tools.bench.measurement import Figure
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.databases import SETTINGS, STORAGE, SessionStep, directory_of, keys_of, write
from tools.bench.snapshot.writing import Shape, modes_inside, prepared
from tools.bench.stores import log_bytes
from warren.base.ids import Epoch, FileNumber
from warren.log.read.tail import LogTail
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.rocksdb.store import RocksDbStore

ROUNDS = 3
KEYS_MAX = 1_000_000
LAG_SESSIONS = 200
LAG_SESSION_SECONDS = 0.005
LAG_SESSION_KEYS = 100
_POLL_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Handed:
    writer_us: float
    cpu_us: float
    bytes_read: int
    bytes_written: int


class CountedTail(LogTail):
    """As `LogTail`, which it is, and counts how far it comes."""

    bytes_read = 0
    _at: Mapping[FileNumber, int] = {}

    @property
    def _places(self) -> dict[FileNumber, int]:
        return dict(self._at)

    @_places.setter
    def _places(self, places: dict[FileNumber, int]) -> None:
        self.bytes_read += sum(max(0, place - self._at.get(number, 0)) for number, place in places.items())
        self._at = places


class CountedDatabase(Database):
    """A new database whose reflection reads through a counted tail."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        files, manifest = self._environment.files, self.log.manifest
        self.tail = CountedTail(files, self.log.directory, lambda: manifest.state, self.store.applied.epoch)
        self._tail = self.tail


def mode_scenarios() -> dict[Callable[[BenchRun], Figures], tuple[str, ...]]:
    kinds = ("writer", "cpu", "log_read", "lag_p50", "lag_p99")
    return {
        partial(mode_rows, mode): tuple(
            f"{name_of(mode)}_{kind}" for kind in (kinds if mode is not Mode.OFF else kinds[:3])
        )
        for mode in (Mode.OFF, *modes_inside())
    }


def name_of(mode: Mode) -> str:
    return mode.value.replace("-", "_")


def mode_rows(mode: Mode, run: BenchRun) -> Figures:
    name = name_of(mode)
    run.began(f"{name}_writer")
    steps = prepared(Shape.ALL_STAY, min(run.entries, KEYS_MAX))
    without, handed = [], []
    for number in range(ROUNDS):
        without.append(_once(run, Mode.OFF, steps))
        handed.append(_once(run, mode, steps))
        run.reached((number + 1) / ROUNDS)
    for kind, us in (("writer", _writer_us), ("cpu", _cpu_us)):
        yield Figure(f"{name}_{kind}", median(map(us, handed)), "µs/entry", median(map(us, without)))
    yield Figure(f"{name}_log_read", median(each.bytes_read for each in handed), "B", handed[0].bytes_written)
    if mode is not Mode.OFF:
        run.began(f"{name}_lag_p50")
        lags_ms = np.array(_lags(run, mode)) * 1000
        yield Figure(f"{name}_lag_p50", float(np.percentile(lags_ms, 50)), "ms")
        yield Figure(f"{name}_lag_p99", float(np.percentile(lags_ms, 99)), "ms")


@contextmanager
def counted_database(room: Path, mode: Mode) -> Iterator[CountedDatabase]:
    database = CountedDatabase.open(directory_of(room), RocksDbStore.open, SETTINGS, ReflectionSettings(mode))
    assert isinstance(database, CountedDatabase)
    try:
        yield database
    finally:
        database.abandon()
        database.store.close()


def _once(run: BenchRun, mode: Mode, steps: list[SessionStep]) -> Handed:
    entries = sum(step.entries for step in steps)
    with run.room() as room, counted_database(room, mode) as database:
        cpu, start = process_time(), perf_counter()
        write(database, steps)
        seconds = perf_counter() - start
        database.catch_up()
        cpu = process_time() - cpu
        return Handed(seconds * 1e6 / entries, cpu * 1e6 / entries, database.tail.bytes_read, log_bytes(database.log))


def _writer_us(handed: Handed) -> float:
    return handed.writer_us


def _cpu_us(handed: Handed) -> float:
    return handed.cpu_us


def _lags(run: BenchRun, mode: Mode) -> list[float]:
    """Seconds from each session's being durable until the store had it, sampled every millisecond."""
    waiting: deque[tuple[Epoch, float]] = deque()
    lags: list[float] = []

    def look_until(end: float) -> None:
        while (now := perf_counter()) < end:
            while waiting and waiting[0][0] <= database.store.applied.epoch:
                lags.append(now - waiting.popleft()[1])
            sleep(_POLL_SECONDS)

    with run.room() as room, counted_database(room, mode) as database:
        for number in range(LAG_SESSIONS):
            session = database.begin()
            keys = keys_of(number)[:LAG_SESSION_KEYS]
            session.put_many(STORAGE, keys, keys)
            waiting.append((session.commit(), perf_counter()))
            look_until(perf_counter() + LAG_SESSION_SECONDS)
            run.reached(number / LAG_SESSIONS)
        while waiting:
            look_until(perf_counter() + LAG_SESSION_SECONDS)
    return lags
