"""A machine with a whole broker on it, whose power can be cut at any step: all but sockets is the product's code.

    environment = BrokerEnvironment()
    steps = environment.play(7, process_after_process)       threads, loop and clients are scheduled by the seed
    environment.play(7, process_after_process, cut_at=20)    the same again, with a power cut before step 20
    after = environment.crashed(REORDERED, 20)               the remaining machine; `kill()`: only the process is dead

Files have 4 KiB, runs four messages; contents from 100 bytes on go to the message store. The SQL database and the
snapshot store lose unsynced data; their commits and batches are steps like those of the disk. Garbage is collected only
on request of the operator client (`SimulatedBroker.tidy`). Passwords are not checked, since hashing takes long.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from tools.simulator.broker.loop import SteppedLoop
from tools.simulator.stepped_threads import SteppedThreads
from tools.simulator.volatile_catalog import VolatileCatalog
from tools.simulator.volatile_store import VolatileStore, VolatileTables
from warren.base.errors import WarrenError
from warren.base.ids import ChannelId, StreamId, TimelineId
from warren.base.threads import Background, Threads
from warren.broker.confirms import Confirms
from warren.broker.counters import MessageCounters
from warren.broker.storage import QueueStorage
from warren.broker.vhosts import Vhosts
from warren.catalog import permissions, users, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.rebuild import remove_leftovers
from warren.catalog.rows import RowWriter
from warren.catalog.users import UserRow
from warren.durability.timeline import Timeline
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.file_record import DIRECTORIES
from warren.log.manifest import Manifest, ManifestState, StreamRecord
from warren.log.settings import LogSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.server.authentication import Login, UserAuthentication
from warren.server.server import Server
from warren.server.settings import ServerSettings
from warren.snapshot.database import LOG, Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.store import SnapshotStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.faulty_files import FaultStep, FaultyFiles
from warren.testing.memory_files import CrashModel, MemoryFiles, PowerCut

DIRECTORY = "db"
CONTAINER_BYTES = 4096
NEVER_SECONDS = 1e6
USER = "guest"
LOG_SETTINGS = LogSettings(
    channel_count=2,
    use_worker_process=False,
    compaction_garbage_ratio=0.0,
    compaction_poll_seconds=NEVER_SECONDS,
    snapshot_at_stop=False,
    retention_seconds=0.0,
    retention_bytes=0,
)
REFLECTION = ReflectionSettings(
    reflection=Mode.NOTIFY,
    lag_seconds=0.0,
    step_bytes=300,
    chunk_bytes=150,
    buffer_bytes=1200,
    flush_bytes=700,
    flush_seconds=NEVER_SECONDS,
    bulk_bytes=0,
)
QUEUES = QueueSettings(restarts_max=1000)
VARIABLE_QUEUES = VariableQueueSettings(
    queue_index_embed_msgs_below=100,
    run_messages_max=4,
    page_messages_max=3,
    beta_messages_max=2,
    delta_read_messages=2,
    read_ahead_bytes_max=200,
    counters_every_runs=3,
)
STORES = MessageStoreSettings(read_cache_bytes=0, transient_file_bytes=600)
SERVER = ServerSettings(drain_seconds=0.0, unsafe_bytes_max=2000)

Body = Callable[["Begin"], None]
Begin = Callable[[], "SimulatedBroker"]
Part = Callable[["SimulatedBroker"], None]  # of a life: what one client does


class BrokerEnvironment:
    def __init__(self) -> None:
        self.disk = MemoryFiles()
        self.clock = ManualClock()
        self.rng = SeededRandom(1)
        self.store: VolatileStore | None = None
        self.sql = VolatileCatalog()
        self._files: FaultyFiles | None = None
        _lay_out(self.disk)

    def play(self, seed: int, body: Body, cut_at: int | None = None, fraction: float | None = None) -> list[FaultStep]:
        """Run the body with scheduled threads, to its end or to the power cut."""
        threads = SteppedThreads(seed, self.clock)
        files = self._files = FaultyFiles(self.disk, cut_at=cut_at, cut_fraction=fraction)
        files.pause, files.on_cut = threads.pause, threads.cut_power
        loops: list[SteppedLoop] = []

        def begin() -> SimulatedBroker:
            loops.append(SteppedLoop(threads, self.clock, seed + len(loops)))
            return SimulatedBroker(self, files, threads, loops[-1])

        try:
            threads.run(lambda: body(begin))
        except PowerCut:
            if not files.is_cut:
                raise
        finally:
            files.pause = files.on_cut = self._files = None
            self.disk.forget_locks()
            for loop in loops:
                loop.close()
        return files.steps

    def crashed(self, model: CrashModel, seed: int) -> BrokerEnvironment:
        """Another machine with the disk after a power cut: synced data, and perhaps more."""
        other = copy.copy(self)
        other.clock = ManualClock(self.clock.wall_ns(), self.clock.monotonic_ns())
        other.rng = SeededRandom(seed)
        other.disk = self.disk.crash(model, SeededRandom(seed))
        other.store = None if self.store is None else self.store.crash(SeededRandom(seed))
        other.sql = self.sql.crash(SeededRandom(seed))
        return other

    def kill(self) -> None:
        """The process is dead, the machine is not: only the snapshot store's own memory is lost."""
        if self.store is not None:
            self.store = self.store.crash(self.rng)

    # -- what a life is opened over ------------------------------------------------------------------------------

    def open_database(self, environment: Environment) -> Database:
        tables = VolatileTables(environment.files, self._present_store)
        return Database.open(DIRECTORY, self._open_store, LOG_SETTINGS, REFLECTION, environment, tables=tables)

    def open_catalog(self, database: Database, threads: Threads) -> Catalog:
        self.sql.as_step = partial(self._step, "the catalog")
        return Catalog.open(database, self.sql, threads)

    def _open_store(self, path: str, timeline: TimelineId) -> SnapshotStore:
        store = self.store = self.store.reopened(timeline) if self.store else VolatileStore(timeline)
        for name in ("apply", "flush", "ingest"):
            setattr(store, name, self._as_step(name, getattr(store, name)))
        return store

    def _present_store(self) -> VolatileStore:
        assert self.store is not None, "tables need a store"
        return self.store

    def _as_step(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **named: self._step("the store", name, lambda: call(*arguments, **named))

    def _step(self, where: str, name: str, call: Callable[[], Any]) -> Any:
        return call() if self._files is None else self._files._change(name, (where,), call)


class SimulatedBroker:
    """One process: opened, served, and stopped or not."""

    def __init__(
        self, environment: BrokerEnvironment, files: FaultyFiles, threads: SteppedThreads, loop: SteppedLoop
    ) -> None:
        self.threads = threads
        self.loop = loop
        self._defect: Exception | None = None  # of a background task
        below = Environment(files, environment.clock, threads, environment.rng, Background(self._task_failed))
        self._background = below.background
        self.database = environment.open_database(below)
        self.catalog = environment.open_catalog(self.database, threads)
        self.catalog.change(_first_user)
        self.catalog.change(remove_leftovers)
        self.storage = QueueStorage(self.database, self.catalog, QUEUES, VARIABLE_QUEUES, STORES)
        self.vhosts = Vhosts(self.storage, below, QUEUES)
        self.vhosts.begin()
        self.confirms = Confirms(threads, self.database.log.wait, below.background)
        doorman = SimulatedAuthentication(self.catalog, below, SERVER)
        self.server = Server(
            self.vhosts, self.storage, doorman, SERVER, MessageCounters(), below, self.confirms, self.loop.pool
        )

    def serve(self, acts: Sequence[Sequence[Part]], stops: bool) -> None:
        """Act by act, run clients, each in its own thread, until all are done; then stop cleanly, or not."""
        try:
            self.loop.run_until_complete(self._serve(acts, stops))
        finally:
            if self.loop.failure is not None:
                raise self.loop.failure
            if self._defect is not None:
                raise self._defect
        if self.server.failed is not None:
            raise self.server.failed
        if stops:
            self._close()

    def _task_failed(self, name: str, error: Exception) -> None:
        """An alarm would hide a defect: it ends the run."""
        if not isinstance(error, WarrenError):
            self._defect = self._defect or error

    async def _serve(self, acts: Sequence[Sequence[Part]], stops: bool) -> None:
        await self.server.start()
        for parts in acts:
            ends = [self.loop.create_future() for _ in parts]
            for part, end in zip(parts, ends, strict=True):
                self.threads.start("client", partial(self._play, part, end))
            for end in ends:
                await end
        if stops:
            await self.server.stop()

    def _play(self, part: Part, end: Any) -> None:
        try:
            part(self)
        except Exception as error:
            self.loop.call_soon_threadsafe(end.set_exception, error)
        else:
            self.loop.call_soon_threadsafe(end.set_result, None)

    def _close(self) -> None:
        with ExitStack() as ends:
            for end in (self.database.close, self.catalog.close, self.storage.close, self.vhosts.close):
                ends.callback(end)
            self.confirms.stop()

    # -- what an operator, or time, does -------------------------------------------------------------------------

    def seal(self) -> None:
        """Seal the files written so far, and flush the store."""
        self.database.make_durable()
        self.database.log.rotate()
        self.database.catch_up()
        assert self.database.reflection is not None
        self.database.reflection.flush()

    def tidy(self) -> None:
        """Collect garbage."""
        self.seal()
        self.storage.cleaning.run()
        self.storage.stores.collector.run()
        self.storage.stores.transient_collector.run()
        self.database.log.purge()

    def problems(self) -> list[str]:
        """Problems reported by any component."""
        found = [*self.vhosts.problems(), *self.catalog.problems, *self.storage.alarms(), *self.database.problems]
        return [*found, *self.storage.stores.collector.alarms(), *self._background.alarms()]


class SimulatedAuthentication(UserAuthentication):
    """Accepts every user in the catalog without a password."""

    def check(self, login: Login, peer: str) -> UserRow:
        user = self.find(login.user)
        assert user is not None, "clients of the simulator send a user name"
        return user


def _first_user(change: RowWriter) -> None:
    vhost = vhosts.declare(change, "/")
    if users.get(change.connection, USER) is None:
        user = users.put(change, USER, "", "", ())
        permissions.put(change, user.id, vhost.id, ".*", ".*", ".*")


def _lay_out(disk: MemoryFiles) -> None:
    """A log with containers smaller than any setting allows."""
    directory = join(DIRECTORY, LOG)
    for name in DIRECTORIES:
        disk.make_directories(join(directory, name))
    streams = {StreamId(0): StreamRecord(StreamId(0), "kv", ChannelId(0), is_records=False)}
    state = ManifestState(Timeline(TimelineId(1)), CONTAINER_BYTES, 2, is_clean=True, streams=streams)
    Manifest(disk, directory, SteppedThreads(0), SeededRandom(0), state).close()
