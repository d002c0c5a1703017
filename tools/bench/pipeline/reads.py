"""Rows about reading a log on Spark: as DataFrames into Spark's sink that drops everything, and as jobs that write.

A frame's rows are counted once more outside the clock: a benchmark that is fast and wrong ends here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from tools.bench.pipeline.run import TIMES, SparkRun, Store, Took, middle, rates, small_store, stopped_store, timed
from tools.bench.run import Figures
from warren.base.errors import Damage

Work = Callable[[Store], None]
WARM_UPS = 4  # the JVM compiles a path while it runs it: a frame is read at full speed from about the fifth time on


def reading_rows(run: SparkRun) -> Figures:
    """The views as DataFrames."""
    with run.room() as room:
        run.began("entries_all")
        small, store = small_store(run, room / "small"), stopped_store(run, room, run.entries)
        all_columns = measured(run, "entries_all", small, store, lambda at: drop(frame_of(run, at)), WARM_UPS)
        yield from rates("entries_all", store.entries, all_columns)
        one = measured(
            run, "entries_one_column", small, store, lambda at: drop(frame_of(run, at, "epoch long")), WARM_UPS
        )
        check("entries", frame_of(run, store, "epoch long").count(), store.entries)
        yield from rates("entries_one_column", store.entries, one)
        state = measured(run, "kv", small, store, lambda at: drop(frame_of(run, at, view="kv")))
        check("keys", frame_of(run, store, "storage long", "kv").count(), store.distinct)
        yield from rates("kv", store.entries, state)


def writing_rows(run: SparkRun) -> Figures:
    """The jobs that write tables, and the one that only looks."""
    from warren.pipeline.jobs.export import export
    from warren.pipeline.jobs.snapshot import snapshot
    from warren.pipeline.jobs.verify import verify

    numbers = count()

    def make_snapshot(store: Store) -> None:
        target = str(store.room / f"snapshot-{next(numbers)}")
        check("keys", snapshot(run.session, store.directory, target).rows, store.distinct)

    def make_export(store: Store) -> None:
        check(
            "entries", export(run.session, store.directory, f"{store.room}/export-{next(numbers)}").rows, store.entries
        )

    def look(store: Store) -> None:
        report = verify(run.session, store.directory)
        check("damages", int(not report.is_good), 0)

    with run.room() as room:
        run.began("snapshot")
        small, store = small_store(run, room / "small"), stopped_store(run, room, run.entries)
        yield from rates("snapshot", store.entries, measured(run, "snapshot", small, store, make_snapshot))
        yield from rates("export", store.entries, measured(run, "export", small, store, make_export))
        yield from rates("verify", store.entries, measured(run, "verify", small, store, look))


def measured(run: SparkRun, row: str, small: Store, store: Store, work: Work, warm_ups: int = 0) -> Took:
    """The middle one of three, behind one with the small store, and some with this one, that are not counted."""
    run.began(row)
    work(small)
    for _ in range(warm_ups):
        work(store)
    times = []
    for number in range(TIMES):
        run.reached(number / TIMES)
        times.append(timed(lambda: work(store)))
    return middle(times)


def frame_of(run: SparkRun, store: Store, schema: str = "", view: str = "entries") -> Any:
    reader = run.session.read.format("warren").option("view", view)
    return (reader.schema(schema) if schema else reader).load(store.directory)


def drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def check(what: str, found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise Damage(f"{expected} {what} were expected, {found} are there")
