"""Reflection as a Spark job: what is not in the safe snapshot store yet is brought there as tables that tasks made.

    owner     order                    a running process, asked at DIR/reflection.sock; this one, if nobody has DIR
    driver    ranges                   key ranges from a few blocks (snapshot/tables/tasks)
    tasks     tables                   RocksDB's own files below DIR/tables/, one for each range (sync_tables)
    owner     accept                   checks, one ingest with the mark; the log behind it may go (snapshot/tables/bulk)

One stretch of at most `step_bytes` of the log after another, until everything is reflected that was durable at the
beginning. Where tables do not fit (a writer gave versions of his own) the owner goes his own way, entry by entry, and
the result says how often. An order is renewed while tasks work on it. A driver that dies leaves one that lapses within
`order_seconds`; whoever comes meanwhile waits that long.

Always true: only the owner changes the store. Whatever dies, the mark says what is in it.

Tables of a stretch of the log, made by Spark: a task for each key range. Is a `TableMaker` of the reflection.

    driver       counts and samples the stretch, cuts the keys into ranges (snapshot/tables/tasks)
    executors    each reads the stretch, keeps its range, writes a table below tables/ (snapshot/tables/tasks)
    owner        ingests all of them in one step, with the mark (snapshot/tables/bulk)

The tables lie where the owner ingests from: every node must see the directory under the same name. No row crosses the
JVM. A stretch that is not worth a task is made by the driver itself, with the same function: somebody who follows a log
does not wait for Spark's machinery then. A table is called after the task and the attempt: what a failed or second
attempt wrote is never named, and goes with the order.
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
from warren.pipeline.jobs.spark_tasks import Progress, Told, attempt_name, no_owner, run_tasks, workers_of
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
    def __init__(self, session: SparkSession, progress: Progress = no_owner, sizes: RangeSizes | None = None) -> None:
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
        partitions = partition(self._files, task, self._sizes)
        tasks = [each.to_json() for each in partitions.tasks]
        is_small = partitions.entries < self._sizes.entries_worth_a_task
        told = map(table_task, tasks) if is_small else run_tasks(self._session, table_task, tasks, self._progress)
        made = [TableResult.from_json(each) for each in told]
        partitions.check_all_read(made)
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


_BUSY_LOOK_SECONDS = 0.25
_NO_ORDERS = {
    str(Mode.WATCH): "it is reflected by a process of its own",
    str(Mode.OFF): "its reflection is off",
}

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    step_bytes: int = 1 << 30  # of the log, in one order
    order_seconds: float = 60.0  # how long an order lives without a sign of life
    answer_seconds: float = 3600.0  # the owner may have to apply a large stretch himself
    sizes: RangeSizes | None = None


def sync(
    session: SparkSession, directory: str, progress: Progress = no_owner, options: SyncOptions | None = None
) -> Result:
    """Bring everything durable into the store of a directory, whether a process runs in it or not; what was done."""
    return Sync(session, directory, progress, options).once()


class Sync:
    """A directory that is synced, once or again and again."""

    def __init__(
        self,
        session: SparkSession,
        directory: str,
        progress: Progress = no_owner,
        options: SyncOptions | None = None,
    ) -> None:
        if not os.path.isabs(directory):
            raise Misuse(f"'{directory}' is no absolute path", "every node must find it under the same name")
        self._environment = Environment.real()
        self._log = join(directory, LOG)
        open_for_reading(
            self._environment.files, self._log
        )  # what is no directory of ours is told before anything is done
        self._directory = directory
        self._options = options or SyncOptions()
        self._tables = SparkTables(session, progress, self._options.sizes)

    def once(self) -> Result:
        try:
            return self.running()
        except NoOwner:
            return self.stopped()

    def follow(self, ended: WatchEnded, on_round: Callable[[Result], None]) -> None:
        """Sync, and again whenever the log has changed, until `ended`. Only the first time a directory that nobody has
        is opened: later its owner may be about to start again, and would find it locked."""
        is_first = True
        for _ in changes(self._log, ended):
            try:
                done = self.once() if is_first else self.running()
            except (NotListening, NoAnswer, Locked):
                if is_first:
                    raise
                continue  # he has ended, or starts, and brings everything into the store as he does
            if is_first or done["rounds"]:
                on_round(done)
            is_first = False

    def stopped(self) -> Result:
        """Open a directory that nobody has: opening is what brings everything into the store. Then close it."""
        environment, since_ns = self._environment, self._begun()

        def open_store(path: str, timeline: TimelineId) -> SnapshotStore:
            return RocksDbStore.open(path, timeline, threads=environment.threads)

        settings = ReflectionSettings(reflection=Mode.SPARK, bulk_bytes=1, step_bytes=self._options.step_bytes)
        log_settings = LogSettings(compaction_garbage_ratio=0.0)
        with Database.open(
            self._directory, open_store, log_settings, settings, environment, tables=self._tables
        ) as database:
            epoch = database.store.applied.epoch
            durable = database.log.durable
        return self._told(epoch, durable, since_ns)

    def running(self) -> Result:
        """Let a process that has the directory order tables and take them, stretch by stretch."""
        since_ns = self._begun()
        self._check_takes_orders()
        durable = Epoch(0)
        while True:
            told = self._ordered()
            durable = durable or Epoch(told["durable"])
            order = told.get("order")
            epoch = self._his_own_way(durable) if order is None else self._done(order)
            if epoch >= durable or order is None:
                return self._told(epoch, durable, since_ns)

    # -- of a running owner --------------------------------------------------------------------------------------

    def _done(self, order: Message) -> Epoch:
        """Work on an order; the epoch that the store has come to."""
        name, task = order["name"], self._task_of(order)
        try:
            with self._renewed(name):
                made = self._tables.made(task)
            size_bytes = self._tables.size_bytes(made)
            request = accepting(name, made)
            is_taken = request is not None and self._ask(request)["is_ingested"]
        except BaseException:
            self._abandon(name)
            raise
        self._tables.done.add(made, size_bytes, is_taken)
        if is_taken:
            return task.up_to
        self._abandon(name)
        return self._his_own_way(task.up_to)

    def _task_of(self, order: Message) -> TableTask:
        """The task of an order under the paths of this process: the owner may have been started with a relative one."""
        task = TableTask.from_json(order["task"])
        return replace(task, directory=self._log, path=join(self._directory, TABLES, base_name(task.path)))

    def _abandon(self, name: str) -> None:
        with suppress(WarrenError):  # it was taken, has lapsed, or went with its owner
            self._ask({"command": "sync-cancel", "name": name})

    def _his_own_way(self, up_to: Epoch) -> Epoch:
        """Here tables are of no use. What is left up to this epoch, if anything is, the owner brings by himself."""
        epoch = _applied(self._ask({"command": "status"}))
        if epoch < up_to:
            self._ask({"command": "persist"})
            epoch = _applied(self._ask({"command": "status"}))
        return epoch

    def _ordered(self) -> Message:
        """An order, or that there is none. If somebody is at work, he is waited for, or his order, if he is dead."""
        options, clock = self._options, self._environment.clock
        wanted = {"command": "sync-order", "seconds": options.order_seconds, "step_bytes": options.step_bytes}
        deadline_ns = clock.monotonic_ns() + int((options.order_seconds + 1) * 1e9)
        pause = self._environment.threads.condition()
        while True:
            try:
                return self._ask(wanted)
            except Locked:
                if clock.monotonic_ns() > deadline_ns:
                    raise
            with pause:
                pause.wait(_BUSY_LOOK_SECONDS)

    @contextmanager
    def _renewed(self, name: str) -> Iterator[None]:
        """Keep an order alive while the body runs."""
        seconds = self._options.order_seconds

        def renew() -> None:
            with suppress(WarrenError):  # whoever hands over what was made is told
                self._ask({"command": "sync-renew", "name": name, "seconds": seconds})

        with repeatedly(self._environment.threads, "warren-sync-order", seconds / 3, renew):
            yield

    def _check_takes_orders(self) -> None:
        try:
            mode = self._ask({"command": "status"})["mode"]
        except NotListening as error:
            raise NoOwner(error.what, error.hint) from None
        if why := _NO_ORDERS.get(mode):
            raise Refused(f"{self._directory} takes no tables: {why} (reflection={mode})", "stop it, or sync by notify")

    def _ask(self, request: Message) -> Message:
        return call(join(self._directory, REFLECTION_SOCKET), request, self._options.answer_seconds)

    # -- both ----------------------------------------------------------------------------------------------------

    def _begun(self) -> int:
        self._tables.done = TablesMade()
        return self._environment.clock.monotonic_ns()

    def _told(self, epoch: Epoch, durable: Epoch, since_ns: int) -> Result:
        seconds = (self._environment.clock.monotonic_ns() - since_ns) / 1e9
        return {"status": "ok", **asdict(self._tables.done), "epoch": epoch, "durable": durable, "seconds": seconds}


class NoOwner(NotListening):
    """There was nobody from the beginning."""


def accepting(name: str, made: Sequence[TableResult]) -> Message | None:
    """The request that hands tables over; None if it is too long for one (thousands of storages were cleared). All
    makers came to the same places: they are told once, and left out if they are too many; then the owner finds them."""
    told = [each.to_json() for each in made]
    request: Message = {"command": "sync-accept", "name": name, "made": told}
    for too_long in (told[1:], told):
        for each in too_long:
            each["places"] = []
        if len(json.dumps(request)) < REQUEST_BYTES_MAX:
            return request
    return None


def _applied(status: Message) -> Epoch:
    return Epoch(status["applied"]["epoch"])
