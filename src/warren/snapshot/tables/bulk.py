"""Bulk loading of a large backlog: a table is made in another process, and ingested in one step.

    backlog < bulk_bytes      the reflection thread: version buffer, batches (reflection)
    backlog ≥ bulk_bytes      task ──▶ table worker ──▶ table ──▶ store.ingest, with the mark ──▶ on disk at once
    on request (SyncJobs)     task ──▶ Spark ─────────▶ tables, one per key range ──▶ the same

Both ways apply the same entries in the same order up to the same mark, so either can follow the other at any step. A
table is only for epochs that are not in the buffer yet, and for a store whose entries cannot be offered again. What
does not fit (a writer gave versions of its own, tasks) is left to the reflection thread.

`SyncJobs` leases the same tasks to other processes (`warren pipeline sync`): they make tables, the owner ingests.

    owner     order     the epochs after the store's mark, up to a size in bytes      ──▶  a TableTask (tasks)
    others    work      tables of its key ranges, below tables/
    owner     accept    is the job leased, do the tables fit? ──▶ one ingest, with the mark; the log may be purged

One job at a time. While it is leased, the log keeps the epochs it covers. The owner may reflect the same epochs
meanwhile, for a reader of the latest state: the outcome is the same, and a job that comes too late is answered with
`is_ingested: false` and costs nothing. Leases expire (workers/jobs).

Invariant: the mark moves with the table or not at all. A crash before that leaves an unknown file in `tables/`, which
is removed on opening.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from warren.base.environment import Clock, Random
from warren.base.errors import Locked, Refused
from warren.base.ids import Epoch, TimelineId
from warren.files.protocol import Files, base_name, join, parent
from warren.log.compaction.jobs import clear_staging
from warren.log.read.tail import LogTail
from warren.snapshot.store import MINOR_MAX, Applied, SnapshotStore, Version
from warren.snapshot.tables.tasks import TABLE_TASK, TableResult, TableTask
from warren.workers.jobs import LEASE_SECONDS, JobLeases
from warren.workers.process import Message
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


STEP_BYTES = 1 << 30
_NUMBER_MAX = 1 << 53


class SyncJobs:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        bulk: BulkLoader,
        durable: Callable[[], Epoch],
        safe_at: SafeAt,
        store_lock: Callable[[], AbstractContextManager[object]],
        on_flushed: Callable[[Applied], None],
    ) -> None:
        """`store_lock`: its holder is the only one that changes the store."""
        self._bulk = bulk
        self._durable = durable
        self._safe_at = safe_at
        self._store_lock = store_lock
        self._on_flushed = on_flushed
        self._leases = JobLeases[TableTask](clock, rng, "sync", bulk.clear)

    def order(self, request: Message) -> Message:
        """Lease a task for what is not reflected; no `order` in the answer if there is nothing to do."""
        seconds, step_bytes = _number(request, "seconds", LEASE_SECONDS), _number(request, "step_bytes", STEP_BYTES)
        with self._store_lock():
            self._leases.discard_expired()
            if self._leases.is_active():
                raise Locked("another job is leased already", "wait for it: the lease of a dead worker expires")
            self._bulk.clear_all()
            durable = self._durable()
            task = self._bulk.begin(durable, int(step_bytes), 1)
            if task is None:
                return {"durable": durable}
            name = self._leases.new_name()
            self._leases.lease(name, task, seconds)
            return {"durable": durable, "order": {"name": name, "task": task.to_json()}}

    def renew(self, request: Message) -> Message:
        """The worker is alive: the lease expires so many seconds from now."""
        seconds = _number(request, "seconds", LEASE_SECONDS)
        with self._store_lock():
            self._leases.renew(_name(request), seconds)
        return {}

    def accept(self, request: Message) -> Message:
        """Ingest the tables of a job."""
        with self._store_lock():
            with self._leases.accept(_name(request)) as task:
                mark = self._bulk.finish(task, _checked(task, request), self._safe_at)
            if mark is not None:
                self._on_flushed(mark)
        return {"epoch": task.up_to, "is_ingested": mark is not None}

    def cancel(self, request: Message) -> Message:
        """Discard a job and its tables."""
        with self._store_lock():
            self._leases.cancel(_name(request))
        return {}

    def handlers(self) -> dict[str, Callable[[Message], Message]]:
        """For a control socket."""
        return {
            "sync-order": self.order,
            "sync-renew": self.renew,
            "sync-accept": self.accept,
            "sync-cancel": self.cancel,
        }

    def is_active(self) -> bool:
        return self._leases.is_active()


def _name(request: Message) -> str:
    return str(request.get("name", ""))


def _number(request: Message, name: str, default: float) -> float:
    value = request.get(name, default)
    if not isinstance(value, int | float) or not 0 < value < _NUMBER_MAX:
        raise Refused(f"{name} of an order are a number above 0, not {value!r}")
    return float(value)


def _checked(task: TableTask, request: Message) -> Sequence[TableResult]:
    """The tables that were made, under the owner's path: the worker may know the directory by another one."""
    try:
        results = [TableResult.from_json(each) for each in request["made"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"the tables in `made` cannot be read: {error!r}", "send what make_table returned") from None
    for path in (each.figures.path for each in results):
        if not base_name(path).startswith(base_name(task.path)):
            raise Refused(f"'{path}' is no table of this order", f"its tables are called {task.path}…")
    home = parent(task.path)
    return [replace(e, figures=replace(e.figures, path=join(home, base_name(e.figures.path)))) for e in results]
