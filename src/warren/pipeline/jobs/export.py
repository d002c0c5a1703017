"""Export: the raw log as a growing table, every durable entry exactly once, a batch of epochs at a time.

    position of the table          ─▶ the next epochs, up to the durable witness ─▶ a Parquet file a task ─▶ one commit
              ▲                                                                                              │
              └──────────────────────────────────────────────────────────────────────────────────────────────┘

There is no other checkpoint: position and rows are committed together, so a job that is killed at any point resumes at
the position of the table. Files that it wrote and did not commit are removed.

A table belongs to a timeline. A store that left this timeline before the table's epoch (restore, fork) is refused with
the epoch of the fork; one whose horizon has passed the table is refused with the horizon: a table has no gaps.

Invariants
* A table has whole epochs, from its first one up to its position, each once.
* Only one export writes to a table at a time (a lock in the target).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from warren.base.errors import Gone, Misuse, Refused
from warren.base.ids import Epoch
from warren.files.environment import Environment
from warren.files.local import this_process
from warren.files.protocol import join
from warren.log.read.read_only import ReadOnlyLog
from warren.log.retention import check_not_gone
from warren.pipeline.jobs.delta import DeltaExport
from warren.pipeline.jobs.parquet import ParquetExport
from warren.pipeline.jobs.spark_tasks import renewed_pin, run_tasks
from warren.pipeline.jobs.tables import (
    LOCK,
    STAGING,
    Position,
    Staging,
    TableBatch,
    TablePart,
    check_paths,
    staging,
    sweep,
    task_of,
    write_rows,
)
from warren.pipeline.options import ReadOptions
from warren.pipeline.planning import Planner, Task
from warren.pipeline.schema import TableFormat, TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_BYTES = 1 << 30


class ExportTable(Protocol):
    """The target of an export."""

    def check(self) -> None: ...

    def tidy(self) -> None: ...

    def position(self) -> Position | None: ...

    def commit(self, made: Staging, batch: TableBatch, metadata: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class ExportOptions:
    directory: str
    target: str
    format: TableFormat = TableFormat.DELTA
    from_epoch: Epoch | None = None  # first epoch of a new table; None: the first after the horizon
    batch_epochs_max: int = 0  # 0: no limit
    batch_bytes_max: int = BATCH_BYTES  # of the log; an epoch is never split
    pin_seconds: float = 3600.0
    credentials: bool = False  # True: with password hashes of users


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export; `position` is the new position of the table, None if it is still empty."""

    position: Position | None
    batches: int = 0
    rows: int = 0
    size_bytes: int = 0
    files: int = 0

    def with_batch(self, batch: TableBatch) -> Exported:
        return Exported(
            batch.position,
            self.batches + 1,
            self.rows + batch.rows,
            self.size_bytes + batch.size_bytes,
            self.files + len(batch.parts),
        )

    def and_then(self, later: Exported) -> Exported:
        return Exported(
            later.position,
            self.batches + later.batches,
            self.rows + later.rows,
            self.size_bytes + later.size_bytes,
            self.files + later.files,
        )


def export(session: SparkSession, directory: str, target: str, **options: Any) -> Exported:
    """Export everything that is durable now. Options are those of `ExportOptions`."""
    with opened_export(session, ExportOptions(directory, target, **options)) as opened:
        return opened.catch_up()


@contextmanager
def opened_export(
    session: SparkSession, options: ExportOptions, environment: Environment | None = None
) -> Iterator[Export]:
    """An export that can catch up repeatedly; it holds the target's lock."""
    environment = environment or Environment.real()
    options = replace(options, format=TableFormat(options.format))
    check_paths(options.directory, options.target)
    if options.batch_epochs_max < 0 or options.batch_bytes_max < 0:
        raise Misuse("a batch limit cannot be negative", "0 means no limit")
    make_table = DeltaExport if options.format is TableFormat.DELTA else ParquetExport
    table: ExportTable = make_table(environment, options.target)
    table.check()
    opened = Export(session, options, table, environment)
    opened.check_store()
    environment.files.make_directories(options.target)
    lock = environment.files.lock(join(options.target, LOCK), this_process(environment.clock))
    try:
        sweep(environment.files, join(options.target, STAGING))
        table.tidy()
        yield opened
    finally:
        lock.release()


class Export:
    def __init__(
        self, session: SparkSession, options: ExportOptions, table: ExportTable, environment: Environment
    ) -> None:
        self._session = session
        self._options = options
        self._table = table
        self._environment = environment
        read = ReadOptions(
            options.directory,
            TableView.ENTRIES,
            pin_seconds=options.pin_seconds,
            shows_credentials=options.credentials,
        )
        self._planner = Planner(read, environment)

    def check_store(self) -> None:
        """Raise at once if the store is unusable or does not fit this table."""
        self._after(self._planner.open())

    def epochs_left(self) -> int:
        """By how many epochs the table is behind the store."""
        log = self._planner.open()
        return max(log.durable - self._after(log), 0)

    def catch_up(
        self, is_over: Callable[[], bool] = lambda: False, on_batch: Callable[[TableBatch], None] = lambda batch: None
    ) -> Exported:
        """Export batch by batch, up to what is durable at the beginning; stops between batches when `is_over`."""
        newest = self._planner.open().durable
        done = Exported(self._table.position())
        while not is_over():
            after = self._after(log := self._planner.open())
            if after >= newest:
                break
            batch = self._write(Epoch(after + 1), self._limited(log, after, newest))
            done = done.with_batch(batch)
            on_batch(batch)
        return done

    def _after(self, log: ReadOnlyLog) -> Epoch:
        """The epoch after which the table continues, if this store has the next one."""
        state, there = log.state, self._table.position()
        if there is None:
            wanted = self._options.from_epoch
            after = state.horizon if wanted is None else Epoch(max(wanted, 1) - 1)
            check_not_gone(state, Epoch(after + 1), ())
            return after
        state.timeline.admit(there.timeline, there.epoch)
        if there.epoch > log.durable:
            raise Refused(
                f"the table has come to epoch {there.epoch}, this store is durable up to {log.durable}",
                "open the store first if it was stopped, or name the directory that was exported so far",
            )
        try:
            check_not_gone(state, Epoch(there.epoch + 1), ())
        except Gone as gone:
            raise Gone(gone.what, "this table cannot continue without a gap: export into a new one") from None
        return there.epoch

    def _limited(self, log: ReadOnlyLog, after: Epoch, newest: Epoch) -> Epoch:
        options, last = self._options, newest
        if options.batch_epochs_max:
            last = Epoch(min(last, after + options.batch_epochs_max))
        if options.batch_bytes_max:
            last = min(last, self._planner.epoch_within(log, after, options.batch_bytes_max))
        return last

    def _write(self, first: Epoch, last: Epoch) -> TableBatch:
        seen: list[ReadOnlyLog] = []

        def make(log: ReadOnlyLog) -> list[Task]:
            seen.append(log)
            self._after(log)
            check_not_gone(log.state, first, ())
            if last > log.durable:
                raise Refused(f"epoch {last} is no longer durable: another store is here now", "run it again")
            return self._planner.tasks_between(log, first, last)

        plan = self._planner.pinned(make)
        options = self._options
        with renewed_pin(self._planner, plan), staging(self._environment, join(options.target, STAGING)) as made:
            tasks = [task_of(task, made.attempts, number) for number, task in enumerate(plan.tasks)]
            written = [TablePart.from_json(answer) for answer in run_tasks(self._session, write_rows, tasks)]
            batch = TableBatch(seen[-1].state.timeline.id, first, last, made.gather(written, TableView.ENTRIES))
            metadata = {"view": TableView.ENTRIES, "first_epoch": first, "source": options.directory}
            self._table.commit(made, batch, metadata)
        return batch
