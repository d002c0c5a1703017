"""Tables of a stretch of the log, made by Spark: a task for each key range. Is a `TableMaker` of the reflection.

    driver       counts and samples the stretch, cuts the keys into ranges (snapshot/table_ranges)
    executors    each reads the stretch, keeps its range, writes a table below tables/ (snapshot/table_tasks)
    owner        ingests all of them in one step, with the mark (snapshot/bulk)

The tables lie where the owner ingests from: every node must see the directory under the same name. No row crosses the
JVM. A stretch that is not worth a task is made by the driver itself, with the same function: somebody who follows a log
does not wait for Spark's machinery then. A table is called after the task and the attempt: what a failed or second
attempt wrote is never named, and goes with the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warren.log.machine import Environment
from warren.pipeline.jobs.running import Told, attempt_name, run_tasks, workers_of
from warren.pipeline.jobs.watching import Progress, nobody
from warren.snapshot.applied import MINOR_MAX
from warren.snapshot.table_ranges import RangeSizes, deal
from warren.snapshot.table_tasks import TableResult, TableTask, make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class TablesMade:
    """What was made so far, and taken."""

    rounds: int = 0
    entries: int = 0  # of the log
    tables: int = 0
    bytes: int = 0  # of the tables
    unfit: int = 0  # stretches that no table is for

    def add(self, made: Sequence[TableResult], size_bytes: int, is_taken: bool) -> None:
        self.rounds += 1
        if not is_taken:
            self.unfit += 1
            return
        self.entries += made[0].entries_in
        self.tables += sum(each.figures.has_file for each in made)
        self.bytes += size_bytes


class SparkTables:
    def __init__(self, session: SparkSession, progress: Progress = nobody, sizes: RangeSizes | None = None) -> None:
        self._session = session
        self._progress = progress
        self._sizes = sizes or replace(RangeSizes(), workers=workers_of(session))
        self._files = Environment.real().files
        self.done = TablesMade()

    def make(self, task: TableTask) -> Sequence[TableResult]:
        made = self.made(task)
        is_taken = all(each.fits((task.after, MINOR_MAX), (task.up_to, MINOR_MAX)) for each in made)
        self.done.add(made, self.size_bytes(made), is_taken)
        return made

    def made(self, task: TableTask) -> list[TableResult]:
        """The same, for an owner elsewhere who may take it or not."""
        dealt = deal(self._files, task, self._sizes)
        tasks = [each.to_json() for each in dealt.tasks]
        is_small = dealt.entries < self._sizes.entries_worth_a_task
        told = map(table_task, tasks) if is_small else run_tasks(self._session, table_task, tasks, self._progress)
        made = [TableResult.from_json(each) for each in told]
        dealt.check_all_read(made)
        return made

    def size_bytes(self, made: Sequence[TableResult]) -> int:
        """To be asked before they are ingested: then they are no longer here."""
        return sum(self._files.stat(each.figures.path).size_bytes for each in made if each.figures.has_file)

    def rest(self) -> None:
        """Whoever has the session ends it."""


def table_task(raw: Told) -> Told:
    task = TableTask.from_json(raw)
    path = f"{task.path}.{attempt_name('range')}"
    return make_table(Environment.real().files, replace(task, path=path)).to_json()
