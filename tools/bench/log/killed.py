"""Rows about a store whose process was killed: opening it again rebuilds the snapshot from the log.

Every open writes a new snapshot and keeps it, so between two rebuilds it is deleted, as a careless hand might do.
The files lie in the page cache, as they do when a process is killed and started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import perf_counter

from tools.bench import references, workload
from tools.bench.measurement import Figure
from tools.bench.memory_probe import watch_rebuild
from tools.bench.run import BenchRun, Figures
from tools.bench.stores import STORAGE, check, fill, log_files, opened
from tools.bench.workload import KEYS_VARIABLE, LogWorkload
from warren.base.ids import StorageId
from warren.log.store import LogStore

WRITER_STORAGE = StorageId(2)
WRITER_PAUSE_SECONDS = 0.005


def killed_rows(run: BenchRun) -> Figures:
    work = workload.make(run.entries)
    with run.room() as room:
        copied = _fill_and_kill(run, room, work, "rebuild")
        yield Figure("rebuild", _rebuild(run, room, work), "entries/s", copied)
        run.began("rebuild_memory")
        _forget_snapshot(room)
        peak = watch_rebuild(room)
        yield Figure("rebuild_memory", peak.anonymous, "MiB", peak.base)
        yield Figure("rebuild_resident", peak.resident, "MiB")
        run.began("compaction_online")
        with opened(room) as store, _slow_writer(store):
            yield Figure("compaction_online", _compact(run, store), "entries/s", copied)


def variable_rows(run: BenchRun) -> Figures:
    """The same with keys of 4 to 200 bytes."""
    work = workload.make(run.entries, KEYS_VARIABLE)
    with run.room() as room:
        copied = _fill_and_kill(run, room, work, "rebuild_variable_keys")
        rate = _rebuild(run, room, work, is_distinct_exact=False)
        yield Figure("rebuild_variable_keys", rate, "entries/s", copied)
        run.began("compaction_variable_keys")
        with opened(room) as store:
            yield Figure("compaction_variable_keys", _compact(run, store), "entries/s", copied)


def _fill_and_kill(run: BenchRun, room: Path, work: LogWorkload, row: str) -> float:
    """Leave a store as a killed process does; entries/s of copying its bytes."""
    run.began(row)
    with opened(room) as store:
        fill(run, store, work)
    target = room / "copy"
    copied = work.entries / references.copy_seconds(log_files(room), target)
    target.unlink()
    return copied


def _rebuild(run: BenchRun, room: Path, work: LogWorkload, is_distinct_exact: bool = True) -> float:
    """Entries/s from the first step of opening to the first answer."""
    key, _ = work.newest
    start = perf_counter()
    with opened(room, progress=run.reached) as store:
        store.snapshot().get(STORAGE, key)
        seconds = perf_counter() - start
        check(store.snapshot(), work, is_distinct_exact)
    return work.entries / seconds


def _forget_snapshot(room: Path) -> None:
    for path in (room / "log" / "snapshot").iterdir():
        path.unlink()


def _compact(run: BenchRun, store: LogStore) -> float:
    start = perf_counter()
    result = store.compact(run.reached)
    entries: int = result["entries_in"]
    return entries / (perf_counter() - start)


@contextmanager
def _slow_writer(store: LogStore) -> Iterator[None]:
    """A writer that commits an entry every few milliseconds."""
    is_over = Event()

    def write() -> None:
        number = 0
        while not is_over.wait(WRITER_PAUSE_SECONDS):
            session = store.begin()
            session.put(WRITER_STORAGE, number.to_bytes(8, "big"), b"written while a compaction runs")
            session.commit()
            number += 1

    writer = Thread(target=write, name="slow-writer")
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()
