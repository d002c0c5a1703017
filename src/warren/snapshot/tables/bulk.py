"""Bulk loading of a large backlog: a table is made in another process, and ingested in one step.

    backlog < bulk_bytes      the reflection thread: version buffer, batches (reflection)
    backlog ≥ bulk_bytes      task ──▶ table worker ──▶ table ──▶ store.ingest, with the mark ──▶ on disk at once
    on request (jobs)         task ──▶ Spark ─────────▶ tables, one per key range ──▶ the same

Both ways apply the same entries in the same order up to the same mark, so either can follow the other at any step. A
table is only for epochs that are not in the buffer yet, and for a store whose entries cannot be offered again. What
does not fit (a writer gave versions of its own, tasks) is left to the reflection thread.

Invariant: the mark moves with the table or not at all. A crash before that leaves an unknown file in `tables/`, which
is removed on opening.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from warren.base.environment import Random
from warren.base.ids import Epoch, TimelineId
from warren.files.protocol import Files, base_name, join
from warren.log.compaction.jobs import clear_staging
from warren.log.read.tail import LogTail
from warren.snapshot.store import MINOR_MAX, Applied, SnapshotStore, Version
from warren.snapshot.tables.tasks import TABLE_TASK, TableResult, TableTask
from warren.workers.tasks import TaskProcess

SafeAt = Callable[[Epoch], Version]  # the safe snapshot version that goes with an epoch


class TableMaker(Protocol):
    def make(self, task: TableTask) -> Sequence[TableResult]:
        """One table of the task's entries, or one per key range, at the task's path or with that path as prefix."""
        ...

    def rest(self) -> None:
        """Free what is kept between tasks: no task follows for a while."""
        ...


class ProcessTables:
    """Makes tables in a worker process, which stays for the next task. One task at a time."""

    def __init__(self) -> None:
        self._process = TaskProcess(TABLE_TASK)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def make(self, task: TableTask) -> Sequence[TableResult]:
        return [TableResult.from_json(self._process.run(task.to_json()))]

    def rest(self) -> None:
        self._process.close()


class BulkLoader:
    def __init__(
        self,
        files: Files,
        rng: Random,
        home: str,
        log_directory: str,
        timeline: TimelineId,
        tail: LogTail,
        store: SnapshotStore,
        maker: TableMaker,
        least_bytes: int,
        step_bytes: int,
    ) -> None:
        self._files = files
        self._rng = rng
        self._home = home
        self._log_directory = log_directory
        self._timeline = timeline
        self._tail = tail
        self._store = store
        self._maker = maker
        self._least_bytes = least_bytes
        self._step_bytes = step_bytes
        self._unfit = Epoch(0)  # up to here entries are applied one by one
        clear_staging(files, home)
        files.make_directories(home)

    def load(self, durable: Epoch, safe_at: SafeAt) -> Applied | None:
        """Load one step towards the durable epoch; the mark that is on disk then. None: a table does not apply."""
        task = self.begin(durable, self._step_bytes, self._least_bytes)
        if task is None:
            return None
        try:
            return self.finish(task, self._maker.make(task), safe_at)
        finally:
            self.clear(task)

    def begin(self, durable: Epoch, step_bytes: int, least_bytes: int) -> TableTask | None:
        """The next step as a task, if the backlog is large enough and fits into tables."""
        if not self._may_begin() or self._tail.waiting_bytes(durable, least_bytes) < least_bytes:
            return None
        after, up_to = self._tail.after, self._tail.epoch_within(durable, step_bytes)
        if up_to <= after:
            return None
        path = join(self._home, f"{self._rng.id64():016x}.table")
        places, ends = (tuple(sorted(each.items())) for each in (self._tail.places, self._tail.ends()))
        return TableTask(self._log_directory, path, after, up_to, places, ends)

    def finish(self, task: TableTask, results: Sequence[TableResult], safe_at: SafeAt) -> Applied | None:
        """Ingest the tables of a task; None if they do not fit. Part of the step may have been applied one by one: a
        table has the newest entry of each of its keys, so the outcome is the same."""
        applied = self._store.applied
        if not results or not self._is_plain() or not task.after <= applied.epoch < task.up_to:
            return None
        mark = Applied(self._timeline, task.up_to, max(safe_at(task.up_to), applied.version))
        if not all(each.fits((task.after, MINOR_MAX), mark.version) for each in results):
            self._unfit = task.up_to
            return None
        paths = [each.figures.path for each in results if each.figures.has_file]
        self._store.ingest(paths, mark, cleared=set[int]().union(*(each.figures.cleared for each in results)))
        self._tail.skip(task.up_to, dict(results[0].places))
        return mark

    def clear(self, task: TableTask) -> None:
        """Remove the tables of a task that were not ingested: its path is their prefix."""
        for name in self._files.list(self._home):
            if name.startswith(base_name(task.path)):
                self._files.remove(join(self._home, name))

    def clear_all(self) -> None:
        """Remove tables of cancelled or expired jobs, which may still have been written; no job may be leased."""
        for name in self._files.list(self._home):
            self._files.remove(join(self._home, name))

    def rest(self) -> None:
        """End the worker process: no task follows for a while."""
        self._maker.rest()

    def __enter__(self) -> BulkLoader:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.rest()

    def _may_begin(self) -> bool:
        return self._is_plain() and self._tail.after >= self._unfit

    def _is_plain(self) -> bool:
        """The buffer is empty, nothing in the store will be offered again, and versions follow the epochs."""
        after, applied = self._tail.after, self._store.applied
        return applied.epoch == after and applied.version <= (after, MINOR_MAX) and self._store.is_settled
