"""Reflection by other processes (`warren pipeline sync`): the owner leases tasks, they make tables, the owner ingests.

    owner     order     the epochs after the store's mark, up to a size in bytes      ──▶  a TableTask (tasks)
    others    work      tables of its key ranges, below tables/
    owner     accept    is the job leased, do the tables fit? ──▶ one ingest, with the mark; the log may be purged

One job at a time. While it is leased, the log keeps the epochs it covers. The owner may reflect the same epochs
meanwhile, for a reader of the latest state: the outcome is the same, and a job that comes too late is answered with
`is_ingested: false` and costs nothing. Leases expire (workers/jobs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from warren.base.environment import Clock, Random
from warren.base.errors import Locked, Refused
from warren.base.ids import Epoch
from warren.files.protocol import base_name, join, parent
from warren.snapshot.store import Applied
from warren.snapshot.tables.bulk import BulkLoader, SafeAt
from warren.snapshot.tables.tasks import TableResult, TableTask
from warren.workers.jobs import LEASE_SECONDS, JobLeases
from warren.workers.process import Message

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
