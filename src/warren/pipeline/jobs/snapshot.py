"""Snapshot: the state of a store, as of an epoch or a time, as a table.

    driver      plan (view kv), pinned ─▶ a task for each bucket of the keys
    executors   merge the bucket like the start-up snapshot, write it as one Parquet file
    driver      one commit: a directory with a manifest (Parquet), or a version of the table (Delta)

The log directory and the target must have the same path for this process and every executor: planning and committing
happen in this process, also with Spark Connect.

Invariants
* A table has the whole state of one epoch; nothing of it is visible before the commit.
* A job that failed or died leaves the target as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from warren.base.ids import Epoch
from warren.durability.timeline import Timeline
from warren.files.environment import Environment
from warren.log.read.read_only import ReadOnlyLog
from warren.pipeline.jobs.delta import DeltaSnapshot
from warren.pipeline.jobs.parquet import ParquetSnapshot
from warren.pipeline.jobs.spark_tasks import Progress, ignore_progress, renewed_pin, run_tasks
from warren.pipeline.jobs.tables import (
    Position,
    Staging,
    TableBatch,
    TablePart,
    check_paths,
    task_of,
    write_rows,
)
from warren.pipeline.options import ReadOptions, text_of
from warren.pipeline.planning import Plan, Planner, Task
from warren.pipeline.schema import TableFormat, TableView

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession


class SnapshotTable(Protocol):
    """The target of a snapshot."""

    def check(self) -> None: ...

    def admit(self, timeline: Timeline) -> None: ...

    def position(self) -> Position | None: ...

    def staging(self) -> AbstractContextManager[Staging]: ...

    def commit(self, made: Staging, batch: TableBatch, metadata: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class SnapshotMade:
    """Result of a snapshot. `is_new` False: the table has this state already, nothing was written."""

    position: Position
    is_new: bool
    rows: int = 0
    size_bytes: int = 0
    files: int = 0


def snapshot(
    session: SparkSession,
    directory: str,
    target: str,
    as_of: int | str | datetime | None = None,
    format: TableFormat | str = TableFormat.PARQUET,
    buckets: int = 0,
    overwrite: bool = False,
    pin_seconds: int = 3600,
    progress: Progress = ignore_progress,
    environment: Environment | None = None,
    credentials: bool = False,
) -> SnapshotMade:
    """Write the state as a table. `overwrite` replaces a Parquet snapshot; in a Delta table it is a new version."""
    check_paths(directory, target)
    environment = environment or Environment.real()
    moment = as_of.isoformat() if isinstance(as_of, datetime) else as_of
    options = {"path": directory, "view": TableView.KV, "asOf": moment, "buckets": buckets, "pinSeconds": pin_seconds}
    planner = Planner(ReadOptions.of(text_of({**options, "credentials": credentials})), environment)
    table: SnapshotTable
    if TableFormat(format) is TableFormat.DELTA:
        table = DeltaSnapshot(environment, target)
    else:
        table = ParquetSnapshot(environment, target, overwrite)
    table.check()
    plan, log = _planned(planner)
    with renewed_pin(planner, plan):
        table.admit(log.state.timeline)
        position = Position(log.state.timeline.id, _epoch_of(planner, plan, log))
        with table.staging() as staging:
            if table.position() == position:
                return SnapshotMade(position, is_new=False)
            tasks = [task_of(task, staging.attempts, number) for number, task in enumerate(plan.tasks)]
            written = [TablePart.from_json(answer) for answer in run_tasks(session, write_rows, tasks, progress)]
            batch = TableBatch(position.timeline, Epoch(0), position.epoch, staging.gather(written, TableView.KV))
            table.commit(staging, batch, {"view": TableView.KV, "as_of": moment, "source": directory})
    return SnapshotMade(position, True, batch.rows, batch.size_bytes, len(batch.parts))


def _planned(planner: Planner) -> tuple[Plan, ReadOnlyLog]:
    """A plan, and the log from which it was made."""
    seen: list[ReadOnlyLog] = []

    def make(log: ReadOnlyLog) -> list[Task]:
        seen.append(log)
        return planner.tasks_of_state(log)

    return planner.pinned(make), seen[-1]


def _epoch_of(planner: Planner, plan: Plan, log: ReadOnlyLog) -> Epoch:
    if plan.tasks:
        return plan.tasks[0].last
    wanted = planner.last_epoch(log)
    return log.durable if wanted is None else wanted
