"""Sync: reflection as a Spark job. Tasks write RocksDB tables of the unreflected log; the owner ingests them.

    owner     order                    a running process, at DIR/reflection.sock; this one, if DIR is not in use
    driver    ranges                   count and sample the epoch range, cut the keys (snapshot/tables/tasks)
    tasks     tables                   read the range, keep the own keys, write one table file below DIR/tables/
    owner     accept                   checks, one ingest with the mark; the log behind it may go (snapshot/tables/bulk)

Epoch ranges of at most `step_bytes` of the log are processed one after another, until everything is reflected that was
durable at the beginning. Where tables do not fit (a writer set its own versions) the owner applies the entries one by
one, and the result counts such ranges (`unfit`). An order is renewed while tasks work on it. The order of a driver that
died lapses within `order_seconds`; another driver waits that long.

`SparkTables` implements `TableMaker`. The tables are written where the owner ingests them: every node must see the
directory under the same path. No row crosses the JVM. A range too small for a task is written by the driver with the
same function, so that following a log does not wait for Spark's scheduling. A table is named by task and attempt: files
of a failed or second attempt are never named in an answer, and are removed with the order.

Invariants: only the owner changes the store. After any crash the mark says what the store contains.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from warren.base.errors import Locked, Misuse, Refused, WarrenError
from warren.base.ids import Epoch, TimelineId
from warren.base.threads import repeatedly
from warren.files.environment import Environment
from warren.files.protocol import base_name, join
from warren.log.read.read_only import WatchEnded, changes, open_for_reading
from warren.log.settings import LogSettings
from warren.pipeline.jobs.spark_tasks import Progress, TaskData, attempt_name, ignore_progress, run_tasks, workers_of
from warren.snapshot.database import LOG, REFLECTION_SOCKET, TABLES, Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import MINOR_MAX, SnapshotStore
from warren.snapshot.tables.tasks import RangeSizes, TableResult, TableTask, make_table, partition
from warren.workers.control_socket import REQUEST_BYTES_MAX, NoAnswer, NotListening, call
from warren.workers.process import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class TablesMade:
    """Figures of the tables made and ingested so far."""

    rounds: int = 0
    entries: int = 0  # of the log
    tables: int = 0
    bytes: int = 0  # of the tables
    unfit: int = 0  # epoch ranges that could not be ingested as tables

    def add(self, made: Sequence[TableResult], size_bytes: int, is_taken: bool) -> None:
        self.rounds += 1
        if not is_taken:
            self.unfit += 1
            return
        self.entries += made[0].entries_in
        self.tables += sum(each.figures.has_file for each in made)
        self.bytes += size_bytes


class SparkTables:
    def __init__(
        self, session: SparkSession, progress: Progress = ignore_progress, sizes: RangeSizes | None = None
    ) -> None:
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
        """The tables, not yet counted: an owner in another process may refuse them."""
        partitions = partition(self._files, task, self._sizes)
        tasks = [each.to_json() for each in partitions.tasks]
        is_small = partitions.entries < self._sizes.entries_worth_a_task
        answers = map(table_task, tasks) if is_small else run_tasks(self._session, table_task, tasks, self._progress)
        made = [TableResult.from_json(each) for each in answers]
        partitions.check_all_read(made)
        return made

    def size_bytes(self, made: Sequence[TableResult]) -> int:
        """Size of the table files; call it before they are ingested, which moves them."""
        return sum(self._files.stat(each.figures.path).size_bytes for each in made if each.figures.has_file)

    def rest(self) -> None:
        """The session is ended by its owner."""


def table_task(raw: TaskData) -> TaskData:
    task = TableTask.from_json(raw)
    path = f"{task.path}.{attempt_name('range')}"
    return make_table(Environment.real().files, replace(task, path=path)).to_json()


_BUSY_POLL_SECONDS = 0.25
_NO_ORDERS = {
    str(Mode.WATCH): "it is reflected by a process of its own",
    str(Mode.OFF): "its reflection is off",
}

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    step_bytes: int = 1 << 30  # of the log, in one order
    order_seconds: float = 60.0  # an order lapses after this time without renewal
    answer_seconds: float = 3600.0  # the owner may have to apply a large epoch range itself
    sizes: RangeSizes | None = None


def sync(
    session: SparkSession, directory: str, progress: Progress = ignore_progress, options: SyncOptions | None = None
) -> Result:
    """Reflect everything durable in a directory, whether a process has it open or not; returns figures."""
    return Sync(session, directory, progress, options).once()


class Sync:
    """Syncs a directory, once or repeatedly."""

    def __init__(
        self,
        session: SparkSession,
        directory: str,
        progress: Progress = ignore_progress,
        options: SyncOptions | None = None,
    ) -> None:
        if not os.path.isabs(directory):
            raise Misuse(f"'{directory}' is no absolute path", "every node must find it under the same name")
        self._environment = Environment.real()
        self._log = join(directory, LOG)
        open_for_reading(self._environment.files, self._log)  # refuses other directories before any work
        self._directory = directory
        self._options = options or SyncOptions()
        self._tables = SparkTables(session, progress, self._options.sizes)

    def once(self) -> Result:
        try:
            return self.running()
        except NoOwner:
            return self.stopped()

    def follow(self, ended: WatchEnded, on_round: Callable[[Result], None]) -> None:
        """Sync now and whenever the log has changed, until `ended`. Only the first round opens a directory that is not
        in use: later its owner may be restarting, and would find it locked."""
        is_first = True
        for _ in changes(self._log, ended):
            try:
                done = self.once() if is_first else self.running()
            except (NotListening, NoAnswer, Locked):
                if is_first:
                    raise
                continue  # the owner ends or starts, and reflects everything then
            if is_first or done["rounds"]:
                on_round(done)
            is_first = False

    def stopped(self) -> Result:
        """Open a directory that is not in use, which reflects everything, and close it."""
        environment, since_ns = self._environment, self._start()

        def open_store(path: str, timeline: TimelineId) -> SnapshotStore:
            return RocksDbStore.open(path, timeline, threads=environment.threads)

        settings = ReflectionSettings(reflection=Mode.SPARK, bulk_bytes=1, step_bytes=self._options.step_bytes)
        log_settings = LogSettings(compaction_garbage_ratio=0.0)
        with Database.open(
            self._directory, open_store, log_settings, settings, environment, tables=self._tables
        ) as database:
            epoch = database.store.applied.epoch
            durable = database.log.durable
        return self._result(epoch, durable, since_ns)

    def running(self) -> Result:
        """Make tables for the process that has the directory open, one epoch range after another."""
        since_ns = self._start()
        self._check_accepts_tables()
        durable = Epoch(0)
        while True:
            answer = self._next_order()
            durable = durable or Epoch(answer["durable"])
            order = answer.get("order")
            epoch = self._apply_by_owner(durable) if order is None else self._execute(order)
            if epoch >= durable or order is None:
                return self._result(epoch, durable, since_ns)

    # -- of a running owner --------------------------------------------------------------------------------------

    def _execute(self, order: Message) -> Epoch:
        """Make the tables of an order; returns the applied epoch of the store."""
        name, task = order["name"], self._task_of(order)
        try:
            with self._renewed(name):
                made = self._tables.made(task)
            size_bytes = self._tables.size_bytes(made)
            request = accept_request(name, made)
            is_taken = request is not None and self._call(request)["is_ingested"]
        except BaseException:
            self._abandon(name)
            raise
        self._tables.done.add(made, size_bytes, is_taken)
        if is_taken:
            return task.up_to
        self._abandon(name)
        return self._apply_by_owner(task.up_to)

    def _task_of(self, order: Message) -> TableTask:
        """The task of an order with the paths of this process: the owner may have been started with a relative one."""
        task = TableTask.from_json(order["task"])
        return replace(task, directory=self._log, path=join(self._directory, TABLES, base_name(task.path)))

    def _abandon(self, name: str) -> None:
        with suppress(WarrenError):  # it was accepted, has lapsed, or ended with its owner
            self._call({"command": "sync-cancel", "name": name})

    def _apply_by_owner(self, up_to: Epoch) -> Epoch:
        """Tables do not fit: have the owner apply the entries up to this epoch, if any are left."""
        epoch = _applied(self._call({"command": "status"}))
        if epoch < up_to:
            self._call({"command": "persist"})
            epoch = _applied(self._call({"command": "status"}))
        return epoch

    def _next_order(self) -> Message:
        """An order, or an answer without one. Waits while another driver has an order, until that lapses."""
        options, clock = self._options, self._environment.clock
        wanted = {"command": "sync-order", "seconds": options.order_seconds, "step_bytes": options.step_bytes}
        deadline_ns = clock.monotonic_ns() + int((options.order_seconds + 1) * 1e9)
        pause = self._environment.threads.condition()
        while True:
            try:
                return self._call(wanted)
            except Locked:
                if clock.monotonic_ns() > deadline_ns:
                    raise
            with pause:
                pause.wait(_BUSY_POLL_SECONDS)

    @contextmanager
    def _renewed(self, name: str) -> Iterator[None]:
        """Renew an order while the body runs."""
        seconds = self._options.order_seconds

        def renew() -> None:
            with suppress(WarrenError):  # `sync-accept` reports it
                self._call({"command": "sync-renew", "name": name, "seconds": seconds})

        with repeatedly(self._environment.threads, "warren-sync-order", seconds / 3, renew):
            yield

    def _check_accepts_tables(self) -> None:
        try:
            mode = self._call({"command": "status"})["mode"]
        except NotListening as error:
            raise NoOwner(error.what, error.hint) from None
        if reason := _NO_ORDERS.get(mode):
            raise Refused(
                f"{self._directory} takes no tables: {reason} (reflection={mode})", "stop it, or sync by notify"
            )

    def _call(self, request: Message) -> Message:
        return call(join(self._directory, REFLECTION_SOCKET), request, self._options.answer_seconds)

    # -- both ----------------------------------------------------------------------------------------------------

    def _start(self) -> int:
        self._tables.done = TablesMade()
        return self._environment.clock.monotonic_ns()

    def _result(self, epoch: Epoch, durable: Epoch, since_ns: int) -> Result:
        seconds = (self._environment.clock.monotonic_ns() - since_ns) / 1e9
        return {"status": "ok", **asdict(self._tables.done), "epoch": epoch, "durable": durable, "seconds": seconds}


class NoOwner(NotListening):
    """No process has the directory open."""


def accept_request(name: str, made: Sequence[TableResult]) -> Message | None:
    """The request to ingest tables; None if it is too long (thousands of storages were cleared). All results have the
    same places: they are sent once, and left out if there are too many; then the owner finds them itself."""
    tables = [each.to_json() for each in made]
    request: Message = {"command": "sync-accept", "name": name, "made": tables}
    for too_long in (tables[1:], tables):
        for each in too_long:
            each["places"] = []
        if len(json.dumps(request)) < REQUEST_BYTES_MAX:
            return request
    return None


def _applied(status: Message) -> Epoch:
    return Epoch(status["applied"]["epoch"])
