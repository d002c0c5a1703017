"""The raw log as a table that grows: every durable entry of the log, exactly once, a batch of epochs at a time.

    the table says where it stands ─▶ the next epochs, up to the durable witness ─▶ a Parquet file a task ─▶ one commit
              ▲                                                                                              │
              └──────────────────────────────────────────────────────────────────────────────────────────────┘

No checkpoint is kept anywhere else: position and rows are committed together, so a job that is killed at any point and
run again goes on where the table says it stands. What it had written and not committed is cleared away.

A table stands on a past. A store that left this past before the table's epoch — it was restored or forked — is refused
with the epoch of the fork; one whose horizon has passed the table is refused with the horizon: a table has no gaps.

Always true: a table shows whole epochs, from its first one up to its position, each once; two exports into one table
at the same time do not happen (a lock in the target).
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
from warren.pipeline.jobs.spark_tasks import held, run_tasks
from warren.pipeline.jobs.tables import (
    LOCK,
    STAGING,
    Position,
    Staging,
    TableBatch,
    TableFormat,
    TablePart,
    check_paths,
    staging,
    sweep,
    task_of,
    write_rows,
)
from warren.pipeline.options import ReadOptions
from warren.pipeline.planning import Planner, Task
from warren.pipeline.schema import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_BYTES = 1 << 30


class ExportTable(Protocol):
    """Where an export goes."""

    def check(self) -> None: ...

    def tidy(self) -> None: ...

    def position(self) -> Position | None: ...

    def commit(self, made: Staging, batch: TableBatch, told: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class ExportOptions:
    directory: str
    target: str
    format: TableFormat = TableFormat.DELTA
    from_epoch: Epoch | None = None  # where a new table begins; None: behind the horizon
    batch_epochs_max: int = 0  # 0: no limit
    batch_bytes_max: int = BATCH_BYTES  # of the log; one epoch always goes whole
    pin_seconds: float = 3600.0
    credentials: bool = False  # True: with password hashes of users


@dataclass(frozen=True, slots=True)
class Exported:
    """What came of it; `position` is where the table stands now, None if there was nothing to begin with."""

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
    """Bring the table up to what is durable now. Options are those of `ExportOptions`."""
    with opened_export(session, ExportOptions(directory, target, **options)) as opened:
        return opened.catch_up()


@contextmanager
def opened_export(
    session: SparkSession, options: ExportOptions, environment: Environment | None = None
) -> Iterator[Export]:
    """An export that may catch up again and again; it holds the target's lock."""
    environment = environment or Environment.real()
    options = replace(options, format=TableFormat(options.format))
    check_paths(options.directory, options.target)
    if options.batch_epochs_max < 0 or options.batch_bytes_max < 0:
        raise Misuse("a batch cannot be smaller than nothing", "0 means no limit")
    made = DeltaExport if options.format is TableFormat.DELTA else ParquetExport
    table: ExportTable = made(environment, options.target)
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
        """Say at once what is wrong with the store, or with this table for it."""
        self._after(self._planner.open())

    def epochs_left(self) -> int:
        """How far the table is behind the store."""
        log = self._planner.open()
        return max(log.durable - self._after(log), 0)

    def catch_up(
        self, is_over: Callable[[], bool] = lambda: False, on_batch: Callable[[TableBatch], None] = lambda batch: None
    ) -> Exported:
        """Batch after batch, up to what is durable at the beginning, or until `is_over` between two of them."""
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
        """The epoch behind which the table goes on, if this store can."""
        state, there = log.state, self._table.position()
        if there is None:
            asked = self._options.from_epoch
            after = state.horizon if asked is None else Epoch(max(asked, 1) - 1)
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
            raise Gone(gone.what, "this table cannot go on without a gap: export into a new one") from None
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
                raise Refused(f"epoch {last} is no longer durable: another store stands here now", "run it again")
            return self._planner.tasks_between(log, first, last)

        plan = self._planner.pinned(make)
        options = self._options
        with held(self._planner, plan), staging(self._environment, join(options.target, STAGING)) as made:
            tasks = [task_of(task, made.attempts, number) for number, task in enumerate(plan.tasks)]
            written = [TablePart.from_json(answer) for answer in run_tasks(self._session, write_rows, tasks)]
            batch = TableBatch(seen[-1].state.timeline.id, first, last, made.gather(written, TableView.ENTRIES))
            told = {"view": TableView.ENTRIES, "first_epoch": first, "source": options.directory}
            self._table.commit(made, batch, told)
        return batch
