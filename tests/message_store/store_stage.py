"""The message stores over a real database and a real queue index on a memory disk, with tiny chunks.

    stage = StoreStage()
    run = stage.publish([b"…", b"…"], A, B)         one publication, held by two queues: what each calls it
    stage.seal(); stage.dequeue(A, run[A]); stage.collect()
    stage.contents(B, run[B])

Liveness of a unit is read from the very rows that the queue index writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from tests.snapshot.database_stage import DIRECTORY, DatabaseStage
from warren.base.errors import OutOfRoom
from warren.base.ids import Epoch, FileNumber, QueueId, SequenceId
from warren.base.messages import Publication, QueuePlace, Run, sizes_of
from warren.log.file_record import FileRecord, FileState
from warren.message_store.body_files import STREAM
from warren.message_store.body_format import Reference, Stored, decode_stored
from warren.message_store.collector import CollectionResult
from warren.message_store.index import MOVED_STORAGE, MemoryIndex, Row, RowIndex
from warren.message_store.liveness import HeldBodies
from warren.message_store.settings import MessageStoreSettings
from warren.message_store.store import MessageStorePair
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.index import QueueIndex
from warren.snapshot.database import Database

A, B, C = QueuePlace(QueueId(7 << 32)), QueuePlace(QueueId(8 << 32), 2), QueuePlace(QueueId(9 << 32))
CHUNK_BYTES = 1000


class QueueRows:
    """Is a `Liveness`: what the rows of the queue index say."""

    def __init__(self, database: Database, index: QueueIndex) -> None:
        self._database = database
        self._index = index
        self.rows_read = 0

    def runs_of(self, holders: Sequence[Reference]) -> list[HeldBodies | None]:
        self.rows_read += len(holders)
        return [self._one(holder) for holder in holders]

    def _one(self, holder: Reference) -> HeldBodies | None:
        place, first = QueuePlace(holder.queue, holder.level), holder.first
        found = self._index.scan(place, first, SequenceId(first + 1), self._database.log.durable)
        return next((HeldBodies(run.stored, run.sizes, gone) for run, gone in found if run.first == first), None)


class MovedRows:
    """Storage 3 of a database, as the index reads and writes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with closing(self._database.view_now()) as view:
            return [None if found is None else found.value for found in view.get_many(MOVED_STORAGE, list(keys))]

    def write(self, rows: Sequence[Row]) -> Epoch:
        session = self._database.begin()
        for key, value in rows:
            if value is None:
                session.remove(MOVED_STORAGE, key)
            else:
                session.put(MOVED_STORAGE, key, value)
        return session.end()


def row_index(database: Database) -> RowIndex:
    rows = MovedRows(database)
    counted = MemoryIndex(database.log.environment.threads.condition())
    return RowIndex(counted, rows.read, rows.write, database.log.wait)


class StoreStage:
    def __init__(
        self,
        stage: DatabaseStage | None = None,
        open_database: Callable[[], Database] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        **settings: int,
    ) -> None:
        self.chunk_bytes = chunk_bytes
        self.stage = stage or DatabaseStage()
        self.settings = MessageStoreSettings(**{"transient_file_bytes": 2000, **settings})
        self.next: dict[QueuePlace, int] = {}
        self.open(open_database)

    def open(self, open_database: Callable[[], Database] | None = None) -> None:
        self.database = (open_database or self.stage.open)()
        self.log = self.database.log
        self.queues = QueueIndex.of(self.database)
        self.rows = QueueRows(self.database, self.queues)
        self.moved = row_index(self.database)
        self.stores = MessageStorePair(self.log, DIRECTORY, self.rows, self.moved, self.settings, self.chunk_bytes)
        self.store = self.stores.persistent

    def close(self) -> None:
        self.stores.close()
        self.database.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    # -- what queues do ------------------------------------------------------------------------------------------

    def submit(self, publication: Publication, place: QueuePlace, batch: IndexBatch) -> Run:
        """What a queue does with contents that belong into the store."""
        first = self.next.get(place, 0)
        self.next[place] = first + len(publication.contents)
        run = Run(SequenceId(first), len(publication.contents), sizes_of(publication.contents))
        self.store.submit(publication, publication.contents, place, run, batch)
        batch.publish(place, run, None)
        return run

    def publish(self, contents: Sequence[bytes], *places: QueuePlace) -> dict[QueuePlace, Run]:
        """Durable when it returns."""
        batch = self.queues.begin()
        publication = Publication(contents, fan_out=len(places))
        runs = {place: self.submit(publication, place, batch) for place in places or (A,)}
        self.log.wait(batch.end())
        return runs

    def dequeue(self, place: QueuePlace, run: Run, gone: int | None = None) -> None:
        """Some messages of a run are gone, or all; durable when it returns."""
        batch = self.queues.begin()
        bitmap = (1 << run.count) - 1 if gone is None else gone
        ranges = [(run.first + at, run.first + at + 1) for at in range(run.count) if bitmap >> at & 1]
        batch.dequeue(place, run, bitmap, ranges, DequeueReason.ACKED)
        self.log.wait(batch.end())
        is_end = bitmap.bit_count() == run.count
        dead_bytes = run.size_of(0, run.count) * bitmap.bit_count() // run.count
        self.store.note_dead(run.stored, dead_bytes, is_end)

    def contents(self, run: Run, start: int = 0, stop: int | None = None) -> list[bytes]:
        return self.store.read(run.stored, run.sizes, start, run.count if stop is None else stop)

    def recovered(self, place: QueuePlace) -> list[tuple[Run, int]]:
        """What the rows say after a start."""
        found = self.queues.scan(place, SequenceId(0), SequenceId(1 << 40), self.log.durable)
        return [(indexed.run, indexed.gone) for indexed in found]

    # -- files ---------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        self.log.rotate()

    def collect(self) -> CollectionResult:
        return self.stores.collector.run()

    @property
    def files(self) -> list[FileNumber]:
        """Sealed files with contents that are in use."""
        return self.stores.collector._body_files.files()

    @property
    def stream_records(self) -> list[FileRecord]:
        """Every file of the stream's channel that the manifest knows."""
        state = self.log.manifest.state
        channel = self.log.stream(STREAM).record.channel
        return [r for _, r in sorted(state.files.items()) if r.channel == channel and r.state is not FileState.DOOMED]

    def bodies(self) -> list[bytes]:
        """The value of every record in the stream, in order."""
        self.database.make_durable()
        stream = self.log.stream(STREAM)
        return [value for _, columns in stream.read() for value in columns.values.to_list()]

    def record_keys(self) -> list[bytes]:
        self.database.make_durable()
        return [key for _, columns in self.log.stream(STREAM).read() for key in columns.keys.to_list()]


class Failing:
    """A participant that fails the batch after earlier participants have written."""

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        raise OutOfRoom("there is no room")

    def after_commit(self, epoch: Epoch) -> None:
        raise AssertionError("they did not end")

    def on_abort(self) -> None:
        """As was to be."""


def stored_of(run: Run) -> Stored:
    return decode_stored(run.stored)


def file_of(run: Run) -> FileNumber:
    """The one file that all contents of a run are in."""
    (number,) = {place.file for unit in stored_of(run).units for place in unit.places}
    return number


def content(seed: int, size: int = 400) -> bytes:
    return (b"%d|" % seed * size)[:size]
