"""Rows about writing much: how fast entries become durable, in how many syncs, and how many bytes each costs."""

from __future__ import annotations

from itertools import cycle, islice
from time import perf_counter

import numpy as np

from tools.bench import references, workload
from tools.bench.counting import CountingFiles
from tools.bench.measurement import Figure
from tools.bench.run import BenchRun, Figures
from tools.bench.stores import SETTINGS, STORAGE, fill, log_bytes, opened
from tools.bench.workload import SESSION_ENTRIES
from warren.log.settings import LogSettings
from warren.records.columns import NumberColumn

SQLITE_ENTRIES_MAX = 500_000
LISTED_ENTRIES_MAX = 1_000_000
VERSIONED_ENTRIES_MAX = 500_000


def columns_rows(run: BenchRun) -> Figures:
    """As columns, in sessions of 10,000 that do not wait for each other."""
    work, files = workload.make(run.entries), CountingFiles()
    run.began("append_columns")
    with run.room() as room:
        some = workload.make(min(run.entries, SQLITE_ENTRIES_MAX))
        sqlite = some.entries / references.sqlite_seconds(room / "sqlite", some)
    with run.room() as room, opened(room, SETTINGS, files) as store:
        syncs_before = files.log_syncs
        filled = fill(run, store, work)
        syncs, size = files.log_syncs - syncs_before, log_bytes(store)
    yield Figure("append_columns", filled.rate, "entries/s", sqlite)
    yield Figure("epoch_mean", filled.epoch_ms, "ms")
    yield Figure("syncs_per_epoch", syncs / max(1, filled.epochs), "syncs")
    yield Figure("overhead_bytes_per_entry", (size - work.size_bytes) / work.entries, "B/entry")
    run.began("append_beside_disk")
    with run.room() as room:
        bare = work.entries / references.bare_seconds(room / "bare", size, max(1, filled.epochs))
    yield Figure("append_beside_disk", filled.rate, "entries/s", bare)


def lists_rows(run: BenchRun) -> Figures:
    """As lists of bytes; a million entries are kept as Python objects, and appended again until there are enough."""
    lists = list(workload.as_lists(workload.make(run.entries), LISTED_ENTRIES_MAX))
    count = -(-run.entries // SESSION_ENTRIES)
    run.began("append_lists")
    with run.room() as room, opened(room) as store:
        start, entries, epoch = perf_counter(), 0, store.durable
        for number, (keys, values) in enumerate(islice(cycle(lists), count)):
            session = store.begin()
            session.put_many(STORAGE, keys, values)
            epoch = session.end()
            entries += len(keys)
            run.reached(number / count)
        store.wait(epoch)
        yield Figure("append_lists", entries / (perf_counter() - start), "entries/s")


def versioned_rows(run: BenchRun) -> Figures:
    """With explicit write versions: majors spread over 16 bits, minors over 32."""
    work, rng = workload.make(min(run.entries, VERSIONED_ENTRIES_MAX)), np.random.default_rng(workload.SEED)
    run.began("overhead_bytes_explicit_versions")
    with run.room() as room, opened(room) as store:
        for number, entries in enumerate(work.sessions):
            majors = NumberColumn.of_array(rng.integers(1 << 40, (1 << 40) + (1 << 16), entries.keys.count, np.uint64))
            minors = NumberColumn.of_array(rng.integers(0, 1 << 32, entries.keys.count, np.uint64))
            session = store.begin()
            session.put_columns(STORAGE, entries.keys, entries.values, majors, minors)
            session.end()
            run.reached(number / len(work.sessions))
        size = log_bytes(store)
        yield Figure("overhead_bytes_explicit_versions", (size - work.size_bytes) / work.entries, "B/entry")


def compacting_rows(run: BenchRun) -> Figures:
    """With all settings at their defaults: compaction runs automatically, beside the appends."""
    work = workload.make(run.entries)
    run.began("append_while_compacting")
    with run.room() as room, opened(room, LogSettings()) as store:
        filled = fill(run, store, work)
        yield Figure("append_while_compacting", filled.rate, "entries/s")
