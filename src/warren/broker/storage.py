"""Queue storage: everything below the queues of a database, assembled.

    queues ──▶ index (stream "messages") ──▶ cleaner       files with little live data
          └──▶ message stores (stream "bodies", transient) ──▶ their collector
          └──▶ the catalog: which queues exist

    BackingKinds({"variable": …, "memory": …, "sql": …}, default="variable")

`BackingKinds` makes the backing queue of a queue: the kind is its own `x-backing`, else the one of the settings
(checklist BQ-02). A kind makes one sub-queue; a queue with priorities has one for each level, of any kind. No module
above this one depends on the kind.

`DamageReportingIndex` is the queue index that backing queues read. A backing queue skips runs that cannot be read, and
serves the others; the index reports each of them, so that an alarm names the missing messages and the damaged file.

`QueueRows` answers from the rows of the index which units of a message store are alive. `MovedRows` keeps, in rows of
its own, where the collector has moved units to.

Invariant: after a start from a clean stop, the mark of the clean stop is durably removed before anything is delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from warren.base.errors import Damage, Gone, Refused, WarrenError
from warren.base.ids import Epoch, QueueId, SequenceId
from warren.base.messages import QueuePlace, Run
from warren.broker.garbage import GarbageUpkeep, Scrub
from warren.broker.queue_arguments import QueueArguments
from warren.catalog.catalog import Catalog, DeletedObjects
from warren.log.retention import FilePurge
from warren.message_store.body_format import Reference
from warren.message_store.index import MOVED_STORAGE, MemoryIndex, Row, RowIndex
from warren.message_store.liveness import HeldBodies
from warren.message_store.settings import MessageStoreSettings
from warren.message_store.store import MessageStorePair
from warren.queue_index.batch import NOTHING, IndexBatch
from warren.queue_index.cleaner import Cleaner
from warren.queue_index.index import MESSAGES, IndexedRun, OnDamage, Piece, QueueIndex
from warren.queue_index.row_format import Counters, ack_key, decode_gone, decode_run, run_key
from warren.queues.backing_queue import BackingQueue
from warren.queues.contents import Stores
from warren.queues.index_counters import AliveBytes
from warren.queues.kinds.memory_queue import MemoryQueue
from warren.queues.kinds.priority_queue import PriorityQueue
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.queues.variable_queue import VariableQueue
from warren.snapshot.database import Database
from warren.snapshot.store import StoredVersion


class BackingRequest(NamedTuple):
    """Parameters of a new sub-queue."""

    place: QueuePlace
    is_durable: bool
    is_fresh: bool  # it has nothing on disk
    newest: Epoch  # of its rows on disk
    counters: Counters | None = None  # from the queue index; None: they were not read
    starting: IndexBatch | None = None  # for the writes of a start; the caller waits for it. None: its own


MakeOne = Callable[[BackingRequest], BackingQueue]
MakePriority = Callable[[Sequence[BackingQueue]], BackingQueue]


class BackingKinds:
    def __init__(self, kinds: Mapping[str, MakeOne], default: str, priority: MakePriority | None = None) -> None:
        self._kinds = {"memory": memory} | dict(kinds)
        self._default = default
        self._priority = priority
        self.check(None)

    def check(self, arguments: QueueArguments | None) -> None:
        """Raises `Refused` if a queue with these arguments cannot be made."""
        kind = (arguments.backing if arguments is not None else None) or self._default
        if kind not in self._kinds:
            raise Refused(f"unknown kind of backing queue {kind!r}", f"one of {', '.join(sorted(self._kinds))}")
        if arguments is not None and arguments.max_priority and self._priority is None:
            raise Refused("queues with priorities are not supported here", "remove x-max-priority")

    def make(
        self,
        queue: QueueId,
        is_durable: bool,
        arguments: QueueArguments,
        counters: Mapping[QueuePlace, Counters],
        newest: Epoch,
        starting: IndexBatch | None = None,
    ) -> BackingQueue:
        """`counters`: of its sub-queues, if it is durable."""
        self.check(arguments)
        make = self._kinds[arguments.backing or self._default]
        is_fresh = all(each == Counters() for each in counters.values())
        levels = [
            make(BackingRequest(place, is_durable, is_fresh, newest, counters.get(place), starting))
            for place in places_of(queue, arguments)
        ]
        return levels[0] if self._priority is None or len(levels) == 1 else self._priority(levels)


def places_of(queue: QueueId, arguments: QueueArguments) -> list[QueuePlace]:
    """The sub-queues of a queue: one for each priority."""
    return [QueuePlace(queue, level) for level in range((arguments.max_priority or 0) + 1)]


def memory(request: BackingRequest) -> BackingQueue:
    """Its messages do not survive a restart."""
    return MemoryQueue(request.is_durable)


OnQueueDamage = Callable[[QueuePlace, SequenceId, Damage], None]


class DamageReportingIndex:
    """Implements `queues.contents.IndexSource`."""

    def __init__(self, index: QueueIndex, report_damage: OnQueueDamage) -> None:
        self._index = index
        self._report_damage = report_damage

    def recover(self, place: QueuePlace, newest: Epoch = NOTHING, on_damage: OnDamage | None = None) -> Counters:
        return self._index.recover(place, newest, self._reporting(place, on_damage))

    def scan(
        self,
        place: QueuePlace,
        first: SequenceId,
        stop: SequenceId,
        newest: Epoch,
        runs_max: int | None = None,
        messages_max: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[IndexedRun]:
        return self._index.scan(place, first, stop, newest, runs_max, messages_max, self._reporting(place, on_damage))

    def contents_of(self, place: QueuePlace, pieces: Sequence[Piece]) -> list[list[bytes]]:
        return self._index.contents_of(place, pieces)

    def _reporting(self, place: QueuePlace, on_damage: OnDamage | None) -> OnDamage | None:
        """None stays None: then damage is raised to the caller."""
        if on_damage is None:
            return None

        def report(first: SequenceId, damage: Damage) -> None:
            self._report_damage(place, first, damage)
            on_damage(first, damage)

        return report


_LOG = logging.getLogger(__name__)
VARIABLE = "variable"


class QueueStorage:
    """Created on an open database, and closed before it."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        settings: QueueSettings,
        of_queues: VariableQueueSettings,
        of_stores: MessageStoreSettings,
        more_kinds: dict[str, MakeOne] | None = None,
    ) -> None:
        environment, log = database.log.environment, database.log
        self.catalog = catalog
        self.message_bytes_max = of_stores.max_message_size
        self.directory = database.directory
        self.log = log
        self._database = database
        self._clock = environment.clock
        self._of_queues = of_queues
        self.index = QueueIndex.of(database)
        moved = MovedRows(database)
        locations = RowIndex(MemoryIndex(environment.threads.condition()), moved.read, moved.write, moved.wait)
        rows = QueueRows(database, self.index, catalog.queue_ids)
        self.stores = MessageStorePair(log, database.directory, rows, locations, of_stores)
        stream = log.stream(MESSAGES, is_referring=True)
        self.cleaning = Cleaner(database, stream, catalog.queue_ids, self.index.stream_lock)
        self._alive = AliveBytes(environment.threads.condition())
        scrub = Scrub(database, self.stores.persistent, catalog.queue_ids, environment.clock, self._report_damage)
        self.upkeep = GarbageUpkeep(
            environment, database, self.cleaning, self.stores.collect, self.alive_bytes, scrub.step
        )
        database.referred_bytes = self.alive_bytes
        self._reporting_index = DamageReportingIndex(self.index, self._report_damage)
        self._below = Stores(
            self._reporting_index,
            self.stores.persistent,
            self.stores.transient,
            lambda: log.commit.durable,
            lambda: database.indexed,
            self._note_dead,
            self._alive.report,
            self._note_deleted,
        )
        kinds: dict[str, MakeOne] = {VARIABLE: self._variable, **(more_kinds or {})}
        self.kinds = BackingKinds(kinds, settings.backing, PriorityQueue)
        # By queue and level: the epoch in which it resumed; rows of earlier incarnations are older.
        self._begun: dict[QueueId, dict[int, Epoch]] = {}
        self._unread: dict[tuple[QueueId, str], dict[tuple[int, SequenceId], Damage]] = {}  # by queue and file

    def begin_upkeep(self, seconds: float) -> None:
        """Start the background collection of garbage."""
        self.stores.begin()
        self.upkeep.begin(seconds)

    def close(self) -> None:
        self.upkeep.stop()
        self.stores.close()

    # -- for a virtual host --------------------------------------------------------------------------------------

    def alive_bytes(self) -> int:
        """Bytes of live messages in the queues that were started."""
        return self._alive.total()

    def queue_deleted(self, queue: QueueId) -> None:
        """All its messages are garbage; they were not reported run by run."""
        self._alive.remove(queue)
        self.stores.collector.queue_deleted(queue)
        self._begun.pop(queue, None)
        for key in [key for key in list(self._unread) if key[0] == queue]:
            self._unread.pop(key, None)

    @property
    def purges(self) -> FilePurge:
        return self._database.log.purger

    def purge_soon(self) -> None:
        """Request a purge of free files, and of history if the disk is short of space. Does not wait."""
        self._database.log.purge_soon()

    def forget(self, queues: Collection[QueueId]) -> None:
        """Remove all rows of queues that are no longer in the catalog; durable on return."""
        if not queues:
            return
        changes = self.index.begin()
        for queue in sorted(queues):
            changes.remove_queue(queue)
        self.log.wait(changes.end())

    def recover(self, place: QueuePlace, newest: Epoch) -> Counters:
        """The counters of a sub-queue, without runs that cannot be read: those are reported."""
        newest = max(newest, self._begun_epoch(place))
        return self._reporting_index.recover(place, newest, lambda first, damage: None)

    def requeues(self, place: QueuePlace, newest: Epoch) -> dict[SequenceId, int]:
        """How often messages of a sub-queue were requeued. Unreadable counts are reported; they start again at 0."""
        try:
            return self.index.requeues(place, max(newest, self._begun_epoch(place)))
        except Damage as damage:
            self._report_damage(place, SequenceId(0), damage)
            return {}

    @property
    def is_out_of_room(self) -> bool:
        """Whether the log waits for free disk space."""
        return self._database.log.commit.is_out_of_room

    @property
    def commit_failure(self) -> WarrenError | None:
        """Why commits fail; None while they succeed."""
        return self._database.log.commit.failure

    @property
    def is_on_disk_reserve(self) -> bool:
        """Whether the disk is full, and only writes that free space are allowed."""
        return self._database.log.disk_reserve.is_in_use

    def alarms(self) -> list[str]:
        damaged = [
            f"file {number} of the messages is not cleaned: {reason.what}"
            for number, reason in list(self.cleaning.damaged.items())
        ]
        return [*self.stores.alarms(), *damaged, *self.upkeep.alarms(), *self.damage()]

    def damage(self) -> list[str]:
        """Messages that cannot be read, by queue and file. They stay on disk, neither ready nor settled."""
        texts = []
        for (queue, _), runs in list(self._unread.items()):  # copies: queues report damage from their own threads
            try:
                name = self.catalog.queue(queue).name
            except DeletedObjects:
                continue
            texts.append(_damage_text(name, list(runs.values())))
        return texts

    # -- helpers -------------------------------------------------------------------------------------------------

    def _variable(self, request: BackingRequest) -> BackingQueue:
        place = request.place
        newest = max(request.newest, self._begun_epoch(place))
        settings = self._of_queues
        queue = VariableQueue(place, request.is_durable, self._below, self._clock, settings, newest, request.counters)
        if request.is_durable and not request.is_fresh:
            changes = request.starting or self.index.begin()
            changes.join(_Begun(place, self._begun))
            queue.resume(changes)
            if request.starting is None:
                self.log.wait(changes.end())
        return queue

    def _begun_epoch(self, place: QueuePlace) -> Epoch:
        return self._begun.get(place.queue, {}).get(place.level, Epoch(0))

    def _report_damage(self, place: QueuePlace, first: SequenceId, damage: Damage) -> None:
        fresh = {(place.level, first): damage}
        known = self._unread.setdefault((place.queue, damage.path), fresh)
        if known is not fresh:
            known.update(fresh)
            return
        _LOG.error("messages cannot be read", extra={"facts": self._facts_of(place.queue, first, damage)})

    def _facts_of(self, queue: QueueId, first: SequenceId, damage: Damage) -> dict[str, object]:
        name = self.catalog.queue(queue).name
        return {"queue": name, "file": damage.path, "offset": damage.offset, "sequence_id": first, "what": damage.bare}

    def _note_dead(self, run: Run, size_bytes: int, is_all: bool) -> None:
        if run.stored:
            self.stores.persistent.note_dead(run.stored, size_bytes, is_all)
        else:
            self.cleaning.note_dead(size_bytes)
        self.upkeep.note_dead(size_bytes)

    def _note_deleted(self, size_bytes: int) -> None:
        """A durable queue with messages of this size was deleted. An empty one causes no pass, and so no rotation."""
        if size_bytes:
            self.cleaning.note_dead(size_bytes)
            self.upkeep.note_dead(size_bytes)


class _Begun:
    """Records the epoch in which a sub-queue resumed after a restart. Implements `Joining`."""

    def __init__(self, place: QueuePlace, begun: dict[QueueId, dict[int, Epoch]]) -> None:
        self._place = place
        self._begun = begun

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        """Nothing to write."""

    def after_commit(self, epoch: Epoch) -> None:
        self._begun.setdefault(self._place.queue, {})[self._place.level] = epoch

    def on_abort(self) -> None:
        """Nothing to undo: the sub-queue has not resumed."""


def _damage_text(queue: str, runs: Sequence[Damage]) -> str:
    damage = runs[0]
    where = f" ({damage.path} at byte {damage.offset})" if damage.path else ""
    return f"queue {queue!r}: {len(runs)} runs of messages cannot be read, and stay on disk: {damage.bare}{where}"


class QueueRows:
    """Implements `Liveness` by the rows of the queue index. Rows of a deleted queue keep nothing alive."""

    def __init__(
        self, database: Database, index: QueueIndex, queue_ids: Callable[[], Collection[QueueId]] | None = None
    ) -> None:
        self._database = database
        self._index = index
        self._queue_ids = queue_ids  # None: every queue with rows exists

    def runs_of(self, holders: Sequence[Reference]) -> list[HeldBodies | None]:
        """Many at once: a liveness scan reads every unit of a file."""
        found: dict[Reference, HeldBodies | None] = {}
        with closing(self._database.view_now()) as view:
            there = self._queue_ids() if self._queue_ids else None  # after the view: a queue exists before its rows
            for queue, some in groupby(sorted(set(holders)), key=attrgetter("queue")):
                own = list(some)
                if there is not None and queue not in there:
                    found |= dict.fromkeys(own)
                    continue
                rows = view.get_many(queue, [run_key(each.level, each.first) for each in own])
                gone = view.get_many(queue, [ack_key(each.level, each.first) for each in own])
                found |= {each: self._one(each, *versions) for each, *versions in zip(own, rows, gone, strict=True)}
        return [found[holder] for holder in holders]

    def _one(self, holder: Reference, row: StoredVersion | None, ack: StoredVersion | None) -> HeldBodies | None:
        if row is None:
            return None
        place, first = QueuePlace(holder.queue, holder.level), holder.first
        try:
            run = decode_run(place, first, self._database.resolve(row.value), Epoch(row.version[0]))
            gone = 0 if ack is None else decode_gone(place, first, run.count, self._database.resolve(ack.value))
        except Gone:  # the block is being rewritten: the index retries until it finds it
            scanned = self._index.scan(place, first, SequenceId(first + 1), self._database.log.durable)
            return next((HeldBodies(run.stored, run.sizes, gone) for run, gone in scanned if run.first == first), None)
        return None if gone.bit_count() == run.count else HeldBodies(run.stored, run.sizes, gone)


class MovedRows:
    """Storage 3: new locations of units that the collector has moved."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._newest = Epoch(0)  # of the last write of this process; older rows are in the store since the start

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with closing(self._database.view_at(self._newest)) as view:
            return [None if found is None else found.value for found in view.get_many(MOVED_STORAGE, list(keys))]

    def write(self, rows: Sequence[Row]) -> Epoch:
        session = self._database.begin()
        try:
            for key, value in rows:
                if value is None:
                    session.remove(MOVED_STORAGE, key)
                else:
                    session.put(MOVED_STORAGE, key, value)
        except BaseException:
            session.abort()
            raise
        return session.end()

    def wait(self, epoch: Epoch) -> None:
        """Wait until the rows are durable and, unless reflection is paused, applied: then the event loop reads them
        from the store only. Returns before the file that the units were moved from is released."""
        self._database.log.wait(epoch)
        self._database.catch_up_unless_paused()
        self._newest = max(self._newest, epoch)
