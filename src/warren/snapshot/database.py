"""A log and the safe snapshot store behind it: what stays moves from the log to the store, so that the log stays short.

    <directory>/log               the log, the only source of truth            (log/store)
    <directory>/store             the newest value of every key                (snapshot/rocksdb/store, or a stand-in)
    <directory>/buffer            entries between both, if they are too many   (snapshot/version_buffer)
    <directory>/tables            tables of a large backlog, before ingestion  (snapshot/tables/bulk)
    <directory>/secondary         RocksDB's own log of a secondary reader      (snapshot/puller/secondary)
    <directory>/set-aside         stores that could not be used
    <directory>/store.lock        held by the process that has the store open for writing
    <directory>/store.damaged     damage found by a read, until the store is rebuilt
    <directory>/reflection.sock   control socket of reflection                 (workers/control_socket)

Opening: log → store: is it of this log, whole, not ahead of the log? → replay of what follows its mark → reflection.
A store that is missing, damaged, of another timeline, too new, or ahead of the log is set aside and rebuilt from the
log, if the log still has everything; else opening is refused: what left the log is in that store only. Damage that a
read finds later is noted in `store.damaged`, for the next opening. If the log no longer has everything, the store stays
in use, and reads of the damaged rows fail.

Purging: the store is flushed, the mark is written into the log's manifest (`reflected`), and only then may files be
purged (checklist X-03, C-15; DESIGN rule 14). The mark is that of the present store: nothing is purged before the store
was checked on opening, since a lost store leaves a mark that means nothing.

The lock of the log says which process owns the directory. The store may be open in another process that belongs to the
owner (puller), which lives on for a moment when the owner is killed. So an opener waits some seconds for `store.lock`;
the error names its holder. A store that is locked is never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace

from warren.base.errors import Damage, DiskFailure, Locked, Misuse, Refused, WarrenError
from warren.base.ids import ChannelId, Epoch, Lsn, TimelineId
from warren.base.threads import StartedThread
from warren.durability.log_file import EpochWrite
from warren.files.atomic import replace as replace_file
from warren.files.environment import Environment
from warren.files.local import this_process
from warren.files.protocol import Buffer, DirectoryLock, Files, base_name, join, parent
from warren.log.file_record import MANIFEST
from warren.log.manifest import Change, set_change
from warren.log.pointers import Pointer, PointerReader, is_pointer
from warren.log.read.scan import LogInput
from warren.log.read.tail import LogTail, TailBlock
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.snapshot.apply import VersionApply
from warren.snapshot.latest_view import LatestViewBuilder
from warren.snapshot.puller.protocol import PullerConfig, ReflectionClient, ReflectionControl, ViewedStore
from warren.snapshot.reflection import APPLIED_HERE, Mode, PullFeed, Reflection, ReflectionSettings, make_feed
from warren.snapshot.store import MINOR_MAX, Applied, ReadView, SnapshotStore, StoreView
from warren.snapshot.tables.bulk import BulkLoader, SyncJobs, TableMaker
from warren.snapshot.version_buffer.buffer import VersionBuffer
from warren.snapshot.version_buffer.memory_buffer import MemoryBuffer
from warren.workers.tasks import Progress

LOG = "log"
STORE = "store"
BUFFER = "buffer"
TABLES = "tables"
SET_ASIDE = "set-aside"
SECONDARY = "secondary"
STORE_LOCK = "store.lock"
STORE_DAMAGED = "store.damaged"
REFLECTION_SOCKET = "reflection.sock"


def log_directory(files: Files, directory: str) -> str:
    """The log of a data directory, or the directory itself: commands on a log take either."""
    inner = join(directory, LOG)
    is_log = files.exists(join(directory, MANIFEST)) or not files.exists(join(inner, MANIFEST))
    return directory if is_log else inner


def data_directory(files: Files, directory: str) -> str:
    """The data directory of a log, or the directory itself: commands on a database take either."""
    is_log = files.exists(join(directory, MANIFEST)) and not files.exists(join(directory, LOG, MANIFEST))
    outer = parent(directory.rstrip("/"))
    is_inner = base_name(directory.rstrip("/")) == LOG and is_database(files, outer)
    return outer if is_log and is_inner else directory


def is_database(files: Files, directory: str) -> bool:
    """Whether this data directory has a log with a safe snapshot store."""
    return files.exists(join(directory, LOG, MANIFEST)) and files.exists(join(directory, STORE))


def refuse_database(files: Files, log: str) -> None:
    """Refuse to merge the log of a database: it holds entries that its store has not applied yet."""
    home = data_directory(files, log)
    if is_database(files, home):
        hint = (
            f"start it and run `warren compact --data-dir {home}`; stopped, `warren pipeline sync {home}` shortens it"
        )
        raise Refused(f"{home} is a database: what stays goes from its log to the safe snapshot store", hint)


WAIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


def take_store_lock(
    environment: Environment, directory: str, who: str, wait_seconds: float = WAIT_SECONDS
) -> DirectoryLock:
    """Take the lock; `Locked`, with the name of its holder, after some seconds."""
    path, holder = join(directory, STORE_LOCK), f"{who}, {this_process(environment.clock)}"
    pausing = environment.threads.condition()
    for _ in range(int(wait_seconds / _PAUSE_SECONDS)):
        try:
            return environment.files.lock(path, holder)
        except Locked:
            with pausing:
                pausing.wait(_PAUSE_SECONDS)
    return environment.files.lock(path, holder)


_LOG = logging.getLogger(__name__)
_ACTIVE_CONTAINERS = 2  # active files may hold so much that is in the store already, or as much as the store holds

OpenStore = Callable[[str, TimelineId], SnapshotStore]
OpenBuffer = Callable[[str, TimelineId], VersionBuffer]
OpenPullerClient = Callable[[PullerConfig], ReflectionClient]


class Database:
    """Opened by `open`."""

    def __init__(
        self,
        directory: str,
        settings: ReflectionSettings,
        environment: Environment,
        log: LogStore,
        open_store: OpenStore,
        tables: TableMaker | None,
        store_lock: DirectoryLock,
        open_buffer: OpenBuffer | None,
    ) -> None:
        self.directory = directory
        self.log = log
        self.begin = log.begin  # a session of key-values
        self._settings = settings
        self._environment = environment
        self._open_store = open_store
        self._store_lock = store_lock
        self.problems: list[str] = []
        self._damage: str | None = None  # found by a read of the store, now or before
        self._noting: StartedThread | None = None
        self._own_store = self._opened_store()
        self._own_store.on_damage = self._store_is_damaged
        self._found = self._own_store.applied  # on its disk, before anything is replayed
        self.store: ViewedStore = self._own_store  # for reads; another process may write it
        log.begin_upkeep()
        timeline = log.manifest.state.timeline.id
        with release_on_error(self._own_store):
            self._buffer = (open_buffer or self._memory_buffer)(join(directory, BUFFER), timeline)
        chunk_bytes = settings.chunk_bytes
        self._applying = VersionApply(environment.threads, timeline, self._buffer, self._own_store, chunk_bytes)
        self._tail = self._make_tail()
        with release_on_error(self._buffer, self._own_store):
            self._bulk = self._make_bulk(tables) if tables is not None else None
        self.reflection: ReflectionControl | None = None
        self.orders: SyncJobs | None = None
        self._latest = self._make_latest()
        self._unapplied = LatestViewBuilder(
            environment.threads, self._make_tail(), lambda: log.durable, self._store_view_only, 0
        )
        self._indexed = Epoch(0)
        self.pointed = PointerReader(environment.files, log.directory, log.manifest, environment.threads.condition())
        self.referred_bytes: Callable[[], int] = lambda: 0  # about how much of the log is pointed to

    @classmethod
    def open(
        cls,
        directory: str,
        open_store: OpenStore,
        log_settings: LogSettings | None = None,
        reflection: ReflectionSettings | None = None,
        environment: Environment | None = None,
        progress: Progress = lambda share: None,
        tables: TableMaker | None = None,
        puller_client: OpenPullerClient | None = None,
        open_buffer: OpenBuffer | None = None,
    ) -> Database:
        """Open a directory, or create one. Returns when everything durable is in the store. `tables` makes tables of a
        large backlog; without it everything is applied entry by entry. `puller_client` starts the puller (`watch`)."""
        environment = environment or Environment.real()
        settings = reflection or ReflectionSettings()
        if settings.reflection is Mode.WATCH and puller_client is None:
            raise Misuse("`watch` needs a puller process, and `puller_client` is not given", "pass `puller_client`")
        for name in (BUFFER, SET_ASIDE):
            environment.files.make_directories(join(directory, name))
        of_log = replace(log_settings or LogSettings(), keeps_snapshot=False)
        if settings.reflection is not Mode.OFF:  # what stays leaves the log: compaction would gain nothing
            of_log = replace(of_log, compaction_garbage_ratio=0.0)
        log = LogStore.open(join(directory, LOG), of_log, environment, begins_upkeep=False)
        store_lock: DirectoryLock | None = None
        try:
            store_lock = take_store_lock(environment, directory, "warren database")
            database = cls(directory, settings, environment, log, open_store, tables, store_lock, open_buffer)
            with release_on_error(database._buffer, database._own_store), database._bulk or nullcontext():
                database._replay(progress)
            if settings.reflection is Mode.WATCH and puller_client is not None:
                database._start_puller(puller_client)
            else:
                database._begin()
        except BaseException:
            if store_lock is not None:
                store_lock.release()
            log.abandon()
            raise
        return database

    # -- writing and reading -------------------------------------------------------------------------------------

    def view(self) -> ReadView:
        """A view of the state as of the safe snapshot version."""
        self.log.owner.check()
        return self.store.view()

    def view_now(self) -> ReadView:
        """A view of the latest state: everything durable, with what the store cannot apply yet, or at all."""
        self.log.owner.check()
        return self.store.view() if self.store.applied.epoch >= self.log.durable else self._latest.view()

    def view_at(self, epoch: Epoch) -> ReadView:
        """A view of everything up to an epoch, once that is durable; maybe more. Nothing is applied for it: the event
        loop reads by these views, and a round of reflection there would stop every client."""
        self.log.owner.check()
        epoch = max(epoch, min(self._indexed, self.log.durable))  # a store that was reopened may be behind that
        if self.log.durable < epoch:
            self.log.wait(epoch)
        return self.store.view() if self.store.applied.epoch >= epoch else self._unapplied.view()

    def view_durable(self) -> ReadView:
        """A view of everything durable; nothing is applied for it."""
        return self.view_at(self.log.durable)

    @property
    def indexed(self) -> Epoch:
        """Rows up to this epoch need no overlay: the store has applied them. Never decreases, although a reopened store
        may have fallen back; `view_at` then overlays the difference. Where this process does not apply on its own,
        views are overlaid anyway."""
        if self._settings.reflection not in APPLIED_HERE:
            return self.log.durable
        self._indexed = max(self._indexed, self.store.applied.epoch)
        return self._indexed

    def row_at(self, epoch: Epoch, block: Lsn, entry: int, storage: int, key: bytes) -> Buffer:
        """The value of a row from the position at which this epoch wrote it: one read of the log, without the store."""
        if self.log.durable < epoch:
            self.log.wait(epoch)
        return self.pointed.row(block, entry, storage, key)

    def resolve(self, value: bytes) -> Buffer:
        """The value of a row, or of what it points to in the log (log/pointers)."""
        return self.pointed.value(Pointer.decode(value)) if is_pointer(value) else value

    def catch_up_unless_paused(self) -> None:
        if self.reflection is not None and not self.reflection.is_paused:
            self.reflection.catch_up()

    def catch_up(self) -> None:
        """Apply everything that is durable now to the store."""
        self.log.owner.check()
        if self.reflection is not None and self.store.applied.epoch < self.log.durable:
            self.reflection.catch_up()

    def make_durable(self) -> None:
        """Make everything written so far durable, and so part of the latest state."""
        self.log.owner.check()
        while self.log.commit.commit_pending():
            continue

    def settle(self) -> None:
        """Make everything written so far durable, and apply it to the store."""
        self.make_durable()
        self.catch_up()

    def damage(self) -> list[str]:
        """Damage of the store that reads have found."""
        return [self._damage_reported(self._damage)] if self._damage is not None else []

    def alarms(self) -> list[str]:
        """Problems for the operator."""
        self.log.owner.check()
        failure = self.reflection.failure if self.reflection is not None else None
        stopped = [f"reflection is stopped: {failure.what}; {failure.hint}"] if failure is not None else []
        return [*self.log.alarms(), *self.problems, *self.damage(), *stopped]

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Reflect what is durable, flush, close both. In a forked child nothing happens."""
        if not self.log.owner.is_this:
            return
        try:
            if self._noting is not None:
                self._noting.join()
            self.log.flush()
            if self.reflection is not None:
                self.reflection.stop()
        finally:
            with ExitStack() as last_first:  # each step runs, also if one before it fails on a full disk
                last_first.callback(self.log.close)
                last_first.callback(self.pointed.close)
                last_first.callback(self._store_lock.release)
                last_first.callback(self.store.close)
                if self.store is self._own_store:  # else it was closed when the puller took over
                    last_first.callback(self._buffer.close)

    def abandon(self) -> None:
        """Release everything as it is, as if the process had been killed here."""
        if not self.log.owner.is_this:
            return
        if self.reflection is not None:
            self.reflection.end()
        if self._noting is not None:
            self._noting.join()
        self._store_lock.release()
        self.pointed.close()
        self.log.abandon()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # -- opening -------------------------------------------------------------------------------------------------

    def _opened_store(self) -> SnapshotStore:
        """The store, or an empty one in its place if the log can fill it."""
        state = self.log.manifest.state
        path, timeline, noted = join(self.directory, STORE), state.timeline.id, self._noted_damage()
        try:
            store = self._open_store(path, timeline)
            what = self._why_not(store.applied) or noted
        except Locked:
            raise  # its holder must not find it renamed
        except (Damage, Refused, DiskFailure) as error:
            what, store = error.what, None
        if store is not None and what is None:
            return store
        if store is not None:
            store.close()
        if not self._is_covered:
            way_out = "use the version of warren that wrote it, or restore a backup"
            hint = f"what was written before epoch {state.horizon} is nowhere else: {way_out}"
            raise Damage(f"the safe snapshot store cannot be used: {what}", path, 0, hint)
        self.problems.append(f"the safe snapshot store was set aside and is rebuilt: {what}")
        if state.reflected:  # the mark of the old store does not hold for the new one: the log must stay
            self.log.manifest.commit([set_change(reflected=Epoch(0))])
        self._set_aside(path)
        if noted is not None:
            self._environment.files.remove(join(self.directory, STORE_DAMAGED))
        return self._open_store(path, timeline)

    @property
    def _is_covered(self) -> bool:
        """Whether the log has everything that the store should hold."""
        state = self.log.manifest.state
        return not (state.reflected and state.horizon)

    def _noted_damage(self) -> str | None:
        """Damage found before, if the store can be rebuilt; else the store stays in use, with an alarm."""
        files, path = self._environment.files, join(self.directory, STORE_DAMAGED)
        if not files.exists(path):
            return None
        with closing(files.open(path)) as file:
            noted = bytes(file.read_at(0, file.size())).decode(errors="replace")
        if self._is_covered:
            return noted
        self._damage = noted
        return None

    def _store_is_damaged(self, damage: Damage) -> None:
        """Called by a read in any thread, maybe with locks held: the note is written in a thread of its own."""
        if self._damage is None:
            self._damage = damage.what
            facts = {"file": damage.path, "offset": damage.offset, "what": damage.bare}
            _LOG.error("snapshot store damaged", extra={"facts": facts})
            self._noting = self._environment.threads.start("warren-store-damage", self._note_damage_in_background)

    def _note_damage_in_background(self) -> None:
        effect = "damage of the safe snapshot store could not be noted"
        self._environment.background.task("store-damage", effect).run(self._note_damage)

    def _note_damage(self) -> None:
        assert self._damage is not None
        try:
            replace_file(self._environment.files, join(self.directory, STORE_DAMAGED), [self._damage.encode()])
            if self._is_covered and self.log.manifest.state.reflected:  # from now on nothing is purged
                self.log.manifest.commit([set_change(reflected=Epoch(0))])
        except WarrenError as error:
            self.problems.append(f"damage of the safe snapshot store could not be noted: {error.what}")

    def _damage_reported(self, what: str) -> str:
        if self._is_covered:
            return f"the safe snapshot store is damaged, and is rebuilt from the log at the next start: {what}"
        horizon = self.log.manifest.state.horizon
        where = f"the log no longer holds what was written before epoch {horizon}"
        return f"the safe snapshot store is damaged, and {where}: restore a backup: {what}"

    def _why_not(self, applied: Applied) -> str | None:
        state = self.log.manifest.state
        if applied.epoch > self.log.durable:
            return f"it has come to epoch {applied.epoch}, the log is durable up to {self.log.durable}"
        if applied.epoch < state.reflected:
            return f"it is at epoch {applied.epoch}, the log was released up to {state.reflected}"
        return None

    def _memory_buffer(self, directory: str, timeline: TimelineId) -> VersionBuffer:
        environment = self._environment
        size_bytes = self._settings.buffer_bytes
        return MemoryBuffer(environment.files, environment.threads, environment.rng, directory, timeline, size_bytes)

    def _set_aside(self, path: str) -> None:
        files = self._environment.files
        if files.exists(path):
            files.rename(path, join(self.directory, SET_ASIDE, f"store-{self._environment.rng.id64():016x}"))
            files.sync_directory(self.directory)

    def _replay(self, progress: Progress) -> None:
        """Apply everything durable to the store, step by step."""
        durable, begun = self.log.durable, self.store.applied.epoch
        if not begun:
            self._replay_compacted()
        feed = PullFeed(self._tail, self._applying, self._settings.step_bytes)
        reached = begun
        if reached < durable:
            self._tail.expect()
        bulk = self._bulk if self._settings.bulk_bytes else None
        while reached < durable:
            mark = bulk.load(durable, lambda epoch: (epoch, MINOR_MAX)) if bulk is not None else None
            if mark is None:
                reached = feed.gather(durable)
                self._applying.apply(reached, (reached, MINOR_MAX))
            else:
                reached = mark.epoch
            progress((reached - begun) / (durable - begun))

    def _replay_compacted(self) -> None:
        """A log that was compacted before it had a store: the compacted files come first."""
        state = self.log.manifest.state
        for number in state.compacted:
            record = state.files[number]
            source = LogInput(self._environment.files, self.log.directory, record, record.last_epoch)
            for index, batch in enumerate(source.batches()):
                self._applying.add(TailBlock(ChannelId(0), Lsn(index << 32), record.last_epoch, batch))
            self._applying.apply(Epoch(0), (record.last_epoch, MINOR_MAX))

    def _begin(self) -> None:
        settings = self._settings
        if settings.reflection is Mode.OFF:
            return
        environment, log = self._environment, self.log
        bulk = self._bulk if settings.bulk_bytes and settings.reflection is not Mode.SPARK else None
        room_bytes = settings.bulk_bytes if bulk is not None else 0
        feed = make_feed(
            settings.reflection,
            environment.threads,
            self._tail,
            self._applying,
            self._channel_of,
            settings.step_bytes,
            room_bytes,
        )
        self.reflection = Reflection(
            environment.threads,
            environment.clock,
            settings,
            feed,
            self._applying,
            self._own_store,
            lambda: log.durable,
            self._release,
            bulk=bulk,
            is_automatic=settings.reflection is not Mode.SPARK,
            flushed=self._found,
            background=environment.background,
        )
        if self._bulk is not None:
            own = self.reflection
            self.orders = SyncJobs(
                environment.clock,
                environment.rng,
                self._bulk,
                lambda: log.durable,
                own.safe_at,
                own.apply_lock,
                own.has_flushed,
            )
        log.commit.call_with_parts(self.reflection.epoch_is_durable)

    def _start_puller(self, puller_client: OpenPullerClient) -> None:
        """Close the store and start the puller, which owns it from now on; this process reads it as a secondary."""
        log, timeline = self.log, self.log.manifest.state.timeline.id
        self._release(self._own_store.flush())
        self._buffer.close()
        self._own_store.close()
        self._store_lock.release()
        config = PullerConfig(self.directory, timeline, self._settings, self._environment, log.witness, self._release)
        reflection = puller_client(config)
        self.reflection, self.store = reflection, reflection.store

    def _make_tail(self) -> LogTail:
        log, after = self.log, self.store.applied.epoch
        return LogTail(
            self._environment.files, log.directory, lambda: log.manifest.state, after, log.rotation.durable_ends
        )

    def _make_latest(self) -> LatestViewBuilder:
        environment, log = self._environment, self.log
        tail = self._make_tail()
        settings = self._settings
        catch_up = None if settings.reflection is Mode.OFF else self.catch_up_unless_paused
        return LatestViewBuilder(
            environment.threads, tail, lambda: log.durable, self._store_view, settings.overlay_bytes, catch_up
        )

    def _store_view(self) -> tuple[StoreView, Epoch]:
        own = self.reflection
        return own.store_view() if isinstance(own, Reflection) else self._store_view_only()

    def _store_view_only(self) -> tuple[StoreView, Epoch]:
        return self.store.view(), Epoch(0)

    def _make_bulk(self, tables: TableMaker) -> BulkLoader:
        environment, settings = self._environment, self._settings
        return BulkLoader(
            environment.files,
            environment.rng,
            join(self.directory, TABLES),
            self.log.directory,
            self.log.manifest.state.timeline.id,
            self._tail,
            self._own_store,
            tables,
            settings.bulk_bytes,
            settings.step_bytes,
        )

    def _channel_of(self, part: EpochWrite) -> ChannelId:
        return self.log.manifest.state.files[part.participant.number].channel

    def _release(self, mark: Applied) -> None:
        """The store has everything up to the mark on disk: note it in the manifest, so that files may be purged."""
        state = self.log.manifest.state
        if self._damage is not None and self._is_covered:
            return  # the store is rebuilt from the log: nothing may be purged
        if mark.epoch <= state.reflected or (self.orders is not None and self.orders.is_active()):
            return  # a leased job reads there: noted after a later flush
        changes: list[Change] = [set_change(reflected=mark.epoch)]
        if state.compacted and all(state.files[number].last_epoch <= mark.epoch for number in state.compacted):
            changes.append(set_change(compacted=()))
        self.log.manifest.commit(changes)
        stored_bytes = self.store.size_bytes + self.referred_bytes() // 2
        if self.log.rotation.active_bytes > max(_ACTIVE_CONTAINERS * state.container_bytes, stored_bytes):
            self.log.rotation.rotate_soon()  # nearly all of it is in the store: once sealed, the files can be purged


@contextmanager
def release_on_error(*resources: SnapshotStore | VersionBuffer) -> Iterator[None]:
    """Close these on an error, so that the same process can open the directory again."""
    try:
        yield
    except BaseException:
        for each in resources:
            with suppress(WarrenError):
                each.close()
        raise
