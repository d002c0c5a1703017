"""Rows about compaction on Spark: beside the JVM's own group-by, beside compaction in this process, and at other sizes.

    jvm_group_by    what one would write without us: newest version per key by max(struct(…)), over the same source
    compaction      the job: opens the store, orders, deals key ranges to tasks, puts the result in force, closes
    in process      LogStore.compact, opened and closed alike

A compaction changes its store, so each has a copy of its own, made outside the clock.
"""

from __future__ import annotations

from dataclasses import replace

from tools.bench.measurement import Figure
from tools.bench.pipeline.reads import check, drop, frame_of, measured
from tools.bench.pipeline.run import (
    TIMES,
    SparkRun,
    Store,
    Took,
    copy_of,
    middle,
    rates,
    small_store,
    stopped_store,
    timed,
)
from tools.bench.process_tree import WorkerMemoryPeak, watched_workers
from tools.bench.run import Figures
from tools.bench.stores import SETTINGS, opened
from tools.bench.workload import KEYS_VARIABLE

COMPACTING = replace(SETTINGS, snapshot_at_stop=False)
SMALLER, LARGER = 5, 4  # growth: from a fifth of the entries to four times as many
GROUP_BY = "SELECT storage, key, max(struct(major, minor, epoch, value)) FROM {log} GROUP BY storage, key"


def compaction_rows(run: SparkRun) -> Figures:
    with run.room() as room:
        run.began("jvm_group_by")
        small, store = small_store(run, room / "small"), stopped_store(run, room, run.entries)
        jvm = measured(run, "jvm_group_by", small, store, lambda at: _group_by(run, at))
        yield from rates("jvm_group_by", store.entries, jvm)
        spark, here = _take_turns(run, small, store)
    reference = run.entries / jvm.seconds
    yield from rates("compaction", run.entries, spark, reference)
    yield Figure("compaction_beside_jvm", run.entries / spark.seconds, "rows/s", reference)
    yield from rates("compaction_inprocess", run.entries, here)


def variable_rows(run: SparkRun) -> Figures:
    """The same with keys of 4 to 200 bytes."""
    run.began("compaction_variable_keys")
    with run.room() as room:
        _warm_up(run, small_store(run, room / "small"))
        store = stopped_store(run, room, run.entries, KEYS_VARIABLE)
        yield from rates("compaction_variable_keys", run.entries, timed(lambda: _compact(run, store)))


def growth_rows(run: SparkRun) -> Figures:
    """What a row costs in a small store and in a large one, and the memory of the Python workers together."""
    small, little = _compact_watched(run, "compaction_small", max(1, run.entries // SMALLER))
    yield from rates("compaction_small", max(1, run.entries // SMALLER), small)
    large, much = _compact_watched(run, "compaction_large", run.entries * LARGER)
    yield from rates("compaction_large", run.entries * LARGER, large)
    cost_small = small.seconds * 1e6 / max(1, run.entries // SMALLER)
    yield Figure("compaction_growth", large.seconds * 1e6 / (run.entries * LARGER), "µs/row", cost_small)
    yield Figure("compaction_memory", much.mib, "MiB", little.mib)


def _take_turns(run: SparkRun, small: Store, store: Store) -> tuple[Took, Took]:
    """On Spark and in process, in turns."""
    run.began("compaction")
    _warm_up(run, small)
    on_spark, here = [], []
    for number in range(TIMES):
        run.reached(number / TIMES)
        with copy_of(store) as copy:
            on_spark.append(timed(lambda copy=copy: _compact(run, copy)))  # type: ignore[misc]
        with copy_of(store) as copy:
            here.append(timed(lambda copy=copy: _compact_here(copy)))  # type: ignore[misc]
    return middle(on_spark), middle(here)


def _compact_watched(run: SparkRun, row: str, entries: int) -> tuple[Took, WorkerMemoryPeak]:
    run.began(row)
    with run.room() as room:
        _warm_up(run, small_store(run, room / "small"))
        store = stopped_store(run, room, entries)
        with watched_workers() as peak:
            return timed(lambda: _compact(run, store)), peak


def _warm_up(run: SparkRun, small: Store) -> None:
    with copy_of(small) as copy:
        _compact(run, copy)


def _compact(run: SparkRun, store: Store) -> None:
    from warren.pipeline.jobs.compact import compact_stopped

    done = compact_stopped(run.session, store.directory, settings=COMPACTING)
    check("entries read", done["entries_in"], store.entries)
    check("entries kept", done["entries"], store.distinct)


def _compact_here(store: Store) -> None:
    with opened(store.room, COMPACTING) as opened_store:
        done = opened_store.compact()
        opened_store.purge()
        opened_store.close()
    check("entries kept", done["entries"], store.distinct)


def _group_by(run: SparkRun, store: Store) -> None:
    drop(run.session.sql(GROUP_BY, log=frame_of(run, store)))
