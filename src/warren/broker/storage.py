"""Everything below the queues of a database, wired: index, message stores, cleaning, and the kinds of backing queues.

    queues ──▶ index (stream "messages") ──▶ cleaning      files of which little is alive
          └──▶ message stores (stream "bodies", transient) ──▶ their collector
          └──▶ the catalog: which queues there are

What is alive in a message store is asked of the rows of the index (`QueueRows`); where the collector has moved things
is kept in rows of its own (`MovedRows`).

Always true: a start from a clean stop is durably no clean stop any more before anything is delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing

from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.repeating import repeatedly
from warren.base.runs import QueuePlace, Run
from warren.broker.backing_kinds import BackingKinds, MakeOne, Wanted
from warren.broker.settings import QueueSettings
from warren.broker.telling_index import TellingIndex
from warren.catalog.catalog import Catalog
from warren.message_store.format import Holder
from warren.message_store.liveness import Held
from warren.message_store.memory_index import MemoryIndex
from warren.message_store.row_index import MOVED_STORAGE, Row, RowIndex
from warren.message_store.settings import MessageStoreSettings
from warren.message_store.stores import MessageStores
from warren.queue_index.changes import Changes
from warren.queue_index.cleaning import Cleaning
from warren.queue_index.format import Counters
from warren.queue_index.index import MESSAGES, QueueIndex
from warren.queues.backing import BackingQueue
from warren.queues.contents import Stores
from warren.queues.priority import PriorityQueue
from warren.queues.settings import VariableQueueSettings
from warren.queues.variable import VariableQueue
from warren.snapshot.database import Database

VARIABLE = "variable"


class QueueStorage:
    """Made over an open database; closed before it."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        settings: QueueSettings,
        of_queues: VariableQueueSettings,
        of_stores: MessageStoreSettings,
        more_kinds: dict[str, MakeOne] | None = None,
    ) -> None:
        machine, log = database.log.machine, database.log
        self.catalog = catalog
        self.message_bytes_max = of_stores.max_message_size
        self._database = database
        self._clock = machine.clock
        self._of_queues = of_queues
        self.index = QueueIndex.of(database)
        moved = MovedRows(database)
        locations = RowIndex(MemoryIndex(machine.threads.condition()), moved.read, moved.write, log.wait)
        rows = QueueRows(database, self.index)
        self.stores = MessageStores(log, database.directory, rows, locations, of_stores)
        stream = log.stream(MESSAGES, is_referring=True)
        self.cleaning = Cleaning(database, stream, catalog.queue_ids, self.index.writing)
        database.referred_bytes = lambda: sum(self.cleaning.census.alive_bytes.values())
        self._telling = TellingIndex(self.index, self._tell_damage)
        self._below = Stores(
            self._telling, self.stores.persistent, self.stores.transient, lambda: log.durable, self._note_dead
        )
        kinds: dict[str, MakeOne] = {VARIABLE: self._variable, **(more_kinds or {})}
        self.kinds = BackingKinds(kinds, settings.backing, PriorityQueue)
        self._upkeep = ExitStack()
        self.problems: dict[str, str] = {}

    def begin_upkeep(self, seconds: float) -> None:
        """Let garbage be looked for, beside everything else."""
        self.stores.begin()
        threads = self._database.log.machine.threads
        self._upkeep.enter_context(repeatedly(threads, "warren-cleaning", seconds, self._clean))

    def close(self) -> None:
        self._upkeep.close()
        self.stores.close()

    # -- what a virtual host needs -------------------------------------------------------------------------------

    def begin(self) -> Changes:
        return self.index.begin()

    def recover(self, place: QueuePlace, newest: Epoch) -> Counters:
        """How a sub-queue stands; runs that cannot be read are told, and left out."""
        return self._telling.recover(place, newest, lambda first, damage: None)

    def wait(self, epoch: Epoch) -> None:
        self._database.log.wait(epoch)

    def ring(self) -> None:
        self._database.log.commit.ring()

    def alarms(self) -> list[str]:
        damaged = [f"file {number} of the messages stays: {why.what}" for number, why in self.cleaning.damaged.items()]
        return [*self.stores.alarms(), *damaged, *self.problems.values()]

    # -- helpers -------------------------------------------------------------------------------------------------

    def _variable(self, wanted: Wanted) -> BackingQueue:
        place, newest = wanted.place, wanted.newest
        queue = VariableQueue(place, wanted.is_durable, self._below, self._clock, self._of_queues, newest)
        if wanted.is_durable and not wanted.is_fresh:
            changes = self.index.begin()
            queue.go_on(changes)
            self.wait(changes.end())
        return queue

    def _tell_damage(self, place: QueuePlace, first: SequenceId, damage: Damage) -> None:
        told = f"{damage.bare} ({damage.path} at byte {damage.offset})" if damage.path else damage.bare
        self.problems[f"{place.queue}/{place.level}/{first}"] = f"messages are passed over, they cannot be read: {told}"

    def _note_dead(self, run: Run, size_bytes: int, is_all: bool) -> None:
        if run.stored:
            self.stores.persistent.note_dead(run.stored, size_bytes, is_all)
        else:
            self.cleaning.note_dead(size_bytes)

    def _clean(self) -> None:
        try:
            if self.cleaning.is_due():
                self.cleaning.run()
            self.problems.pop("cleaning", None)
        except Exception as error:  # the next turn tries again; whoever looks at alarms sees why
            self.problems["cleaning"] = f"messages are not cleaned up: {error}"


class QueueRows:
    """What the rows of the queue index say of runs. Is a `Liveness`."""

    def __init__(self, database: Database, index: QueueIndex) -> None:
        self._database = database
        self._index = index

    def held(self, holders: Sequence[Holder]) -> list[Held | None]:
        return [self._one(holder) for holder in holders]

    def _one(self, holder: Holder) -> Held | None:
        place, first = QueuePlace(holder.queue, holder.level), holder.first
        found = self._index.scan(place, first, SequenceId(first + 1), self._database.log.durable)
        return next((Held(run.stored, run.sizes, gone) for run, gone in found if run.first == first), None)


class MovedRows:
    """Storage 3: where the collector has moved units to."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with closing(self._database.view_now()) as view:
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
