"""Rows about a store that was stopped cleanly, and about reading it: start, scan, look up; and compaction alone.

What a scan touches, of every batch: all eight columns as arrays (kinds, storages, majors, minors, epochs, both undo
numbers, value lengths), where each key starts, and each key's first byte out of the heap. The first scan verifies every
block's checksum and so reads every byte of the file; the second, warm one does not.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np

from tools.bench import references, workload
from tools.bench.measurement import Figure
from tools.bench.run import BenchRun, Figures
from tools.bench.stores import STORAGE, check, fill, log_files, opened
from tools.bench.workload import LogWorkload
from warren.base.errors import Damage
from warren.log.compaction.startup_snapshot import StartupSnapshot
from warren.log.store import LogStore
from warren.records.columns import EntryColumns

LOOKUPS = 5_000


def stopped_rows(run: BenchRun) -> Figures:
    work = workload.make(run.entries)
    with run.room() as room:
        yield _stop(run, room, work)
        run.began("clean_start")
        key, _ = work.newest
        start = perf_counter()
        with opened(room) as store:
            store.snapshot().get(STORAGE, key)
            yield Figure("clean_start", perf_counter() - start, "s")
            check(store.snapshot(), work)
            yield from _scans(run, store.snapshot(), _snapshot_file(room))
            yield _lookups(run, store.snapshot(), work)
            yield _compact(run, store, room)


def touch(batch: EntryColumns) -> int:
    """Read every column of a batch; returns a number that depends on all of them."""
    assert batch.epochs is not None
    columns = (batch.kinds, batch.storages, batch.majors, batch.minors, batch.epochs, batch.undo_prev, batch.undo_next)
    checksum = sum(int(column.array().sum()) for column in columns)
    starts, _ = batch.keys.bounds()
    _, value_lengths = batch.values.bounds()
    return checksum + int(value_lengths.sum()) + int(batch.keys.heap[starts].sum())


def _stop(run: BenchRun, room: Path, work: LogWorkload) -> Figure:
    """Closing writes the snapshot for the next start."""
    run.began("stop")
    with opened(room) as store:
        fill(run, store, work)
        start = perf_counter()
        store.close()
        return Figure("stop", perf_counter() - start, "s")


def _scans(run: BenchRun, snapshot: StartupSnapshot, path: Path) -> Figures:
    run.began("scan_batches")
    rows = len(snapshot)
    checksummed = rows / references.checksum_seconds(path)
    first, checksum = _scan(snapshot)
    yield Figure("scan_batches", rows / first, "rows/s", checksummed)
    run.began("scan_batches_warm")
    warm, checksum_again = _scan(snapshot)
    if checksum != checksum_again:
        raise Damage("two scans of one snapshot differ", str(path))
    yield Figure("scan_batches_warm", rows / warm, "rows/s")


def _scan(snapshot: StartupSnapshot) -> tuple[float, int]:
    start = perf_counter()
    checksum = sum(map(touch, snapshot.batches()))
    return perf_counter() - start, checksum


def _lookups(run: BenchRun, snapshot: StartupSnapshot, work: LogWorkload) -> Figure:
    run.began("get_random")
    rng = np.random.default_rng(workload.SEED)
    sessions = rng.integers(0, len(work.sessions), LOOKUPS).tolist()
    some = [work.sessions[number].keys for number in sessions]
    keys = [texts.at(int(rng.integers(texts.count))) for texts in some]
    start = perf_counter()
    found = sum(snapshot.get(STORAGE, key) is not None for key in keys)
    seconds = perf_counter() - start
    if found != LOOKUPS:
        raise Damage(f"{LOOKUPS - found} of {LOOKUPS} keys that were written are not found")
    return Figure("get_random", LOOKUPS / seconds, "gets/s")


def _compact(run: BenchRun, store: LogStore, room: Path) -> Figure:
    """Without a writer, as with `warren log compact DIR`."""
    run.began("compaction_offline")
    copied = references.copy_seconds(log_files(room), room / "copy")
    start = perf_counter()
    entries: int = store.compact(run.reached)["entries_in"]
    return Figure("compaction_offline", entries / (perf_counter() - start), "entries/s", entries / copied)


def _snapshot_file(room: Path) -> Path:
    [path] = (room / "log" / "snapshot").iterdir()
    return path
