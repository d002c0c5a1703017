"""Rows about filling the store: all of it from the log, and each of its steps alone.

rebuild        opening a database whose store is missing: the log is read, and every row goes into a new store
apply          the batches of the reflection's own thread: collapsed to one entry a key, written, flushed at the end
table_write    a sorted table, as a worker makes it of a large backlog
table_ingest   the store takes it, mark and all
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from tools.bench import references
from tools.bench.measurement import Figure
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.databases import (
    SESSION_KEYS,
    STORAGE,
    directory_of,
    keys_of,
    opened_database,
    puts,
    value_lists,
    write,
)
from warren.base.errors import Damage
from warren.base.ids import Epoch, TimelineId
from warren.log.settings import EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.snapshot.apply import collapsed
from warren.snapshot.database import STORE
from warren.snapshot.reflection import Mode
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import MINOR_MAX, Applied
from warren.snapshot.tables.tasks import write_table

BATCH_SESSIONS = 100
STEP_SESSIONS_MAX = 2000  # the table's rows are kept in memory, made before the clock starts
TIMELINE = TimelineId(1)


def building_rows(run: BenchRun) -> Figures:
    sessions = max(1, run.entries // SESSION_KEYS)
    rows = sessions * SESSION_KEYS
    with run.room() as room:
        run.began("rebuild")
        copied = _filled_without_store(room, sessions)
        start = perf_counter()
        with opened_database(room, progress=run.reached) as database:
            seconds = perf_counter() - start
            if database.store.get(STORAGE, keys_of(sessions - 1)[-1]) is None:
                raise Damage("the newest entry is not in the store that was built", directory_of(room))
        yield Figure("rebuild", rows / seconds, "rows/s", rows / copied)
    yield from _steps(run, min(sessions, STEP_SESSIONS_MAX))


def batches_of(sessions: int) -> Iterator[EntryColumns]:
    """Entries as the log gives them, each batch of an epoch of its own."""
    every = value_lists()
    for epoch, first in enumerate(range(0, sessions, BATCH_SESSIONS), 1):
        some = range(first, min(first + BATCH_SESSIONS, sessions))
        keys = Texts.of_list([key for number in some for key in keys_of(number)])
        values = Texts.of_list([value for number in some for value in every[number % len(every)]])
        count = keys.count
        none, epochs = NumberColumn.constant(count, 0), NumberColumn.constant(count, epoch)
        minors = NumberColumn.of_array(np.arange(count, dtype=np.uint64))
        kinds, storages = NumberColumn.constant(count, EntryKind.PUT), NumberColumn.constant(count, STORAGE)
        yield EntryColumns(kinds, storages, epochs, minors, keys, values, none, none, epochs)


def _filled_without_store(room: Path, sessions: int) -> float:
    """A log with everything, and no store; seconds that copying the log takes."""
    with opened_database(room, Mode.OFF) as database:
        write(database, puts(range(sessions)))
    directory = Path(directory_of(room))
    shutil.rmtree(directory / STORE)
    target = room / "copy"
    seconds = references.copy_seconds(sorted((directory / "log").glob("pwal_*")), target)
    target.unlink()
    return seconds


def _steps(run: BenchRun, sessions: int) -> Figures:
    rows = sessions * SESSION_KEYS
    with run.room() as room:
        run.began("apply")
        store = RocksDbStore.open(str(room / "applied"), TIMELINE)
        seconds = 0.0
        for number, batch in enumerate(batches_of(sessions)):
            start = perf_counter()
            store.apply(collapsed([batch]), _mark(batch))
            seconds += perf_counter() - start
            run.reached(number * BATCH_SESSIONS / sessions)
        start = perf_counter()
        store.flush()
        yield Figure("apply", rows / (seconds + perf_counter() - start), "rows/s")
        run.began("table_write")
        mark, path = store.applied, str(room / "table")
        sorted_batches = list(store.batches())
        store.close()
        start = perf_counter()
        figures = write_table(path, sorted_batches)
        yield Figure("table_write", rows / (perf_counter() - start), "rows/s")
        if figures.puts != rows:
            raise Damage(f"{rows} rows were written, {figures.puts} are in the table", path)
        run.began("table_ingest")
        taker = RocksDbStore.open(str(room / "ingested"), TIMELINE)
        start = perf_counter()
        taker.ingest([path], mark)
        yield Figure("table_ingest", rows / (perf_counter() - start), "rows/s")
        taker.close()


def _mark(batch: EntryColumns) -> Applied:
    epoch = Epoch(batch.majors.base)
    return Applied(TIMELINE, epoch, (epoch, MINOR_MAX))
