"""SQL-backed queue: a backing queue whose messages are rows of a table (S1's "alternate"; BQ-02, HS-04).

    SQL       every message, ready or pending, one row each
    memory    ready messages, as ranges:              requeued ranges │ from `fetched_to` on, all there is
              messages of the current batch:          not in SQL before its commit

Purpose: a queue that can be read with SQL (BQ-03), whose moves are plain SQL transactions (BQ-04), on a machine that
cannot run the log. Cost: speed, above all one sync per `IndexBatch` (HS-03 measures it).

    queue_messages   queue, level, sequence ▸ size, is_persistent, expires_ms, published_ms,
                                              exchange, routing_key, user_name, content_kind, content
    queue_places     queue, level           ▸ next, delivered_to, is_clean

SQLite keeps its own write-ahead log with `synchronous = FULL`, one sync per commit. Nothing of it is in Warren's log,
and the simulator does not model its files: it is tested with kill drills. Statements are in bulk: many messages are one
`executemany`, acknowledgements are ranges. Adjacent rows that differ only in size and content are read as one slice, so
messages published together come out together, though the table does not say so.

Fetching changes nothing in SQL. Fetches go in order, so everything below `delivered_to` was delivered before. A clean
stop writes it; after any other stop every recovered message counts as delivered.

`SqlSession`: the changes of one `IndexBatch`, as one SQL transaction (BQ-04).

    queue a: ack 3…5  ─┐
    queue b: publish  ─┴─▶ IndexBatch ─▶ before_commit ─▶ BEGIN … COMMIT         a move is in both queues or in neither

Queues of one database share the session of a batch. If nothing else participates, nothing is written to the log. If the
log participates there are two writes. A transaction that publishes is committed before the log's session, one that only
removes after that session is durable: so a message that moves between an SQL-backed queue and one in the log is always
in one of them, and after a power cut between the two writes it may be in both. (A batch that does both in SQL, and
moves messages to the log as well, could lose that move: keep the two kinds apart.)

Invariants
* Requeued messages are ready before all others; they are all below `fetched_to`.
* One caller at a time, one `IndexBatch` at a time; `SqlStore` is thread-safe, one call at a time.
* If a batch that removed messages is aborted, the queue refuses further calls and has to be opened again.
* The changes of one transaction are in SQL as a whole or not at all.

Not supported: history, a memory limit (it caches no contents).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from sqlalchemy import URL, create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from warren.base.environment import call_in_children, never_destroy
from warren.base.errors import Damage, DiskFailure, Locked, OutOfRoom, Refused, WarrenError
from warren.base.ids import Epoch, QueueId, SequenceId
from warren.base.messages import Origin, Publication, QueuePlace, Run, Slice
from warren.base.threads import Threads
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import Fetched, MessageSizes, TagRange
from warren.queues.pending_acks import TagRanges

Row = tuple[Any, ...]

COLUMNS_BARE = "sequence, size, is_persistent, expires_ms, published_ms, exchange, routing_key, user_name, content_kind"
COLUMNS = f"{COLUMNS_BARE}, content"
SEQUENCE, SIZE, PERSISTENT, CONTENT = 0, 1, 2, 9
_PROPERTIES = slice(2, 9)  # of a message, without size and content


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Selects messages; None: all. Texts are patterns of SQL's LIKE."""

    exchange_like: str | None = None
    routing_key_like: str | None = None
    user_like: str | None = None
    published_from_ms: int | None = None
    published_before_ms: int | None = None
    expires_before_ms: int | None = None  # messages without expiry do not match
    size_from: int | None = None
    content_has: bytes | None = None

    def condition(self) -> tuple[str, list[object]]:
        """SQL to append to another condition, and its values."""
        wanted = [
            ("exchange LIKE ?", self.exchange_like),
            ("routing_key LIKE ?", self.routing_key_like),
            ("user_name LIKE ?", self.user_like),
            ("published_ms >= ?", self.published_from_ms),
            ("published_ms < ?", self.published_before_ms),
            ("expires_ms > 0 AND expires_ms < ?", self.expires_before_ms),
            ("size >= ?", self.size_from),
            ("instr(content, ?) > 0", self.content_has),
        ]
        chosen = [(text, value) for text, value in wanted if value is not None]
        return "".join(f" AND {text}" for text, _ in chosen), [value for _, value in chosen]


def rows_of(publication: Publication, first: int, is_persistent: bool) -> list[Row]:
    p, origin = publication, publication.origin
    properties = (
        int(is_persistent),
        p.expires_ms,
        p.published_ms,
        origin.exchange,
        origin.routing_key,
        origin.user,
        origin.content_kind,
    )
    return [(sequence, len(content), *properties, content) for sequence, content in enumerate(p.contents, first)]


def slices_of(rows: Sequence[Row], edge: int = -1) -> list[Slice]:
    """With contents if the rows have them. No slice crosses the sequence id `edge`."""
    slices = []
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or not _is_next(rows[at - 1], rows[at], edge):
            slices.append(_slice(rows[start:at]))
            start = at
    return slices


def _is_next(row: Row, following: Row, edge: int) -> bool:
    sequence = following[SEQUENCE]
    return sequence == row[SEQUENCE] + 1 and sequence != edge and following[_PROPERTIES] == row[_PROPERTIES]


def _slice(rows: Sequence[Row]) -> Slice:
    is_persistent, expires_ms, published_ms, *origin = rows[0][_PROPERTIES]
    sizes = {row[SIZE] for row in rows}
    run = Run(
        first=SequenceId(rows[0][SEQUENCE]),
        count=len(rows),
        sizes=sizes.pop() if len(sizes) == 1 else np.array([row[SIZE] for row in rows], dtype=np.uint32),
        is_persistent=bool(is_persistent),
        expires_ms=expires_ms,
        published_ms=published_ms,
        origin=Origin(*origin),
    )
    return Slice(run, 0, len(rows), [row[CONTENT] for row in rows] if len(rows[0]) > CONTENT else None)


VERSION = 1
IN_MEMORY = ""  # a path: for tests
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 5000", "cache_size = -16384")
_SCHEMA = (
    """CREATE TABLE queue_messages (
        queue INTEGER NOT NULL, level INTEGER NOT NULL, sequence INTEGER NOT NULL,
        size INTEGER NOT NULL, is_persistent INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL, published_ms INTEGER NOT NULL,
        exchange TEXT NOT NULL, routing_key TEXT NOT NULL, user_name TEXT NOT NULL, content_kind INTEGER NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (queue, level, sequence)
    ) WITHOUT ROWID""",
    "CREATE INDEX transient_messages ON queue_messages (queue, level) WHERE is_persistent = 0",
    """CREATE TABLE queue_places (
        queue INTEGER NOT NULL, level INTEGER NOT NULL,
        next INTEGER NOT NULL, delivered_to INTEGER NOT NULL, is_clean INTEGER NOT NULL,
        PRIMARY KEY (queue, level)
    ) WITHOUT ROWID""",
    f"PRAGMA user_version = {VERSION}",
)
_OF_PLACE = "queue = ? AND level = ?"


@dataclass(frozen=True, slots=True)
class RecoveredQueue:
    """The state of a queue at the start."""

    next: int
    delivered_to: int
    count: int
    size_bytes: int


@dataclass(slots=True)
class SqlQueueChanges:
    """The changes of one transaction to one sub-queue, in this order."""

    is_removed: bool = False
    rows: list[Row] = field(default_factory=list)
    gone: list[TagRange] = field(default_factory=list)
    counters: tuple[int, int, bool] | None = None  # next, delivered_to, is_clean


Batch = dict[QueuePlace, SqlQueueChanges]


class SqlStore:
    """The database; open from construction on."""

    def __init__(self, path: str, threads: Threads, wait: Callable[[Epoch], None] = lambda epoch: None) -> None:
        """`path`: a file in an existing directory, or `IN_MEMORY`. `wait`: until an epoch of the log is durable."""
        self.where = path or "in memory"
        self.wait = wait
        self.sessions: dict[int, Any] = {}  # by the id of their batch
        self.lock = threads.condition()
        self._engine = _engine(path)
        try:
            with _plain_error(self.where):
                self._connection: Connection = self._engine.connect()
                self._make_tables()
        except BaseException:
            self._engine.dispose()
            raise
        call_in_children(self)

    def forked(self) -> None:
        never_destroy(self)

    def recover(self, place: QueuePlace, is_durable: bool) -> RecoveredQueue:
        """Recover a queue: delete transient messages, and clear the clean-stop flag."""
        key = (place.queue, place.level)
        passing = "AND is_persistent = 0" if is_durable else ""
        with self.lock, self._transaction() as connection:
            connection.exec_driver_sql(f"DELETE FROM queue_messages WHERE {_OF_PLACE} {passing}", key)
            counted = f"SELECT count(*), coalesce(sum(size), 0) FROM queue_messages WHERE {_OF_PLACE}"
            count, size_bytes = connection.exec_driver_sql(counted, key).one()
            counters = f"SELECT next, delivered_to, is_clean FROM queue_places WHERE {_OF_PLACE}"
            next_, delivered_to, is_clean = connection.exec_driver_sql(counters, key).first() or (0, 0, 0)
            if is_clean:
                connection.exec_driver_sql(f"UPDATE queue_places SET is_clean = 0 WHERE {_OF_PLACE}", key)
        return RecoveredQueue(next_, delivered_to if is_clean else next_, count, size_bytes)

    def keep_only(self, queues: Collection[QueueId]) -> None:
        """Delete all other queues."""
        with self.lock, self._transaction() as connection:
            found = connection.exec_driver_sql("SELECT DISTINCT queue FROM queue_places").scalars().all()
            for queue in [each for each in found if each not in queues]:
                for table in ("queue_messages", "queue_places"):
                    connection.exec_driver_sql(f"DELETE FROM {table} WHERE queue = ?", (queue,))

    def write(self, batch: Batch) -> None:
        """Write a batch as one transaction; durable on return."""
        with self.lock, self._transaction() as connection:
            for place, changes in batch.items():
                _write(connection, place, changes)

    def rows(
        self,
        place: QueuePlace,
        first: int,
        stop: int,
        limit: int,
        has_contents: bool = True,
        where: SqlFilter | None = None,
    ) -> list[Row]:
        """Up to `limit` messages from `first` up to `stop`, in order."""
        condition, values = where.condition() if where is not None else ("", [])
        columns = COLUMNS if has_contents else COLUMNS_BARE
        statement = (
            f"SELECT {columns} FROM queue_messages"
            f" WHERE {_OF_PLACE} AND sequence >= ? AND sequence < ?{condition} ORDER BY sequence LIMIT ?"
        )
        with self.lock, _plain_error(self.where):
            parameters = (place.queue, place.level, first, stop, *values, limit)
            return [tuple(row) for row in self._connection.exec_driver_sql(statement, parameters)]

    def size_of(self, place: QueuePlace, first: int, stop: int) -> int:
        """Bytes of the messages between two sequence ids."""
        range_ = f"{_OF_PLACE} AND sequence >= ? AND sequence < ?"
        statement = f"SELECT coalesce(sum(size), 0) FROM queue_messages WHERE {range_}"
        with self.lock, _plain_error(self.where):
            found = self._connection.exec_driver_sql(statement, (place.queue, place.level, first, stop))
            return int(found.scalar_one())

    def close(self) -> None:
        with self.lock, suppress(SQLAlchemyError):
            self._connection.close()
            self._engine.dispose()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _make_tables(self) -> None:
        found = int(self._connection.exec_driver_sql("PRAGMA user_version").scalar_one())
        if found > VERSION:
            raise Refused(
                f"the SQL queues of {self.where} are of version {found}, this version of warren reads up to {VERSION}",
                "use the version that wrote them",
            )
        if found < VERSION:
            with self._transaction() as connection:
                for statement in _SCHEMA:
                    connection.exec_driver_sql(statement)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        connection = self._connection
        with _plain_error(self.where):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(SQLAlchemyError):
                    connection.exec_driver_sql("ROLLBACK")
                raise


def _write(connection: Connection, place: QueuePlace, changes: SqlQueueChanges) -> None:
    own = (place.queue, place.level)
    if changes.is_removed:
        for table in ("queue_messages", "queue_places"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE {_OF_PLACE}", own)
    if changes.rows:
        values = f"{place.queue:d}, {place.level:d}, " + ", ".join("?" * len(changes.rows[0]))
        connection.exec_driver_sql(f"INSERT INTO queue_messages VALUES ({values})", changes.rows)
    if changes.gone:
        gone = f"DELETE FROM queue_messages WHERE queue = {place.queue:d} AND level = {place.level:d}"
        connection.exec_driver_sql(f"{gone} AND sequence >= ? AND sequence < ?", joined(changes.gone))
    if changes.counters is not None:
        connection.exec_driver_sql("REPLACE INTO queue_places VALUES (?, ?, ?, ?, ?)", (*own, *changes.counters))


def joined(ranges: Sequence[TagRange]) -> list[TagRange]:
    """The same tags, adjacent ranges merged."""
    found: list[TagRange] = []
    for first, stop in sorted(ranges):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((first, stop))
    return found


def _engine(path: str) -> Engine:
    """An engine with explicit transactions only."""
    engine = create_engine(
        URL.create("sqlite", database=path or None),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False},
        isolation_level="AUTOCOMMIT",
    )

    @event.listens_for(engine, "connect")
    def connected(raw: Any, record: object) -> None:
        cursor = raw.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


@contextmanager
def _plain_error(where: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _error_of(where, str(error.orig)) from error


def _error_of(where: str, text: str) -> WarrenError:
    if any(sign in text for sign in ("not a database", "malformed", "file is encrypted")):
        return Damage(f"the SQL queues are damaged: {text}", where, 0, "restore the file from a backup")
    if "full" in text:
        return OutOfRoom(f"the SQL queues of {where} have no room: {text}", "make room")
    if "locked" in text:
        return Locked(f"the SQL queues of {where} are locked: {text}", "stop the process that has them open")
    return DiskFailure(f"the SQL queues of {where} failed: {text}", "fix the cause, and open them again")


class SqlSession:
    """The `BatchParticipant` of one `IndexBatch`."""

    def __init__(self, store: SqlStore, key: int) -> None:
        self._store = store
        self._key = key
        self._batch: Batch = {}
        self._members: list[SqlQueue] = []
        self._is_written = False

    @classmethod
    def of(cls, store: SqlStore, batch: IndexBatch) -> SqlSession:
        """The session of a batch; created on first use."""
        with store.lock:
            found = store.sessions.get(id(batch))
            if found is None:
                found = store.sessions[id(batch)] = cls(store, id(batch))
        assert isinstance(found, SqlSession)
        batch.join(found)
        return found

    def of_member(self, member: SqlQueue) -> SqlQueueChanges:
        """The changes of one queue, to be extended."""
        if member not in self._members:
            self._members.append(member)
        return self._batch.setdefault(member.place, SqlQueueChanges())

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        if any(changes.rows for changes in self._batch.values()):
            self._write()

    def after_commit(self, epoch: Epoch) -> None:
        try:
            if not self._is_written:
                if epoch:
                    self._store.wait(epoch)
                self._write()
        except BaseException:
            self.on_abort()
            raise
        self._forget()
        for member in self._members:
            member.written()

    def on_abort(self) -> None:
        self._forget()
        for member in self._members:
            member.abandoned()

    def _write(self) -> None:
        for member in self._members:
            self._batch[member.place].counters = member.counters()
        self._store.write(self._batch)
        self._is_written = True

    def _forget(self) -> None:
        with self._store.lock:
            self._store.sessions.pop(self._key, None)


HEAD_ROWS = 128  # read for the head
BROWSE_ROWS = 256  # read at once
LARGE_ROWS = 64  # read at once where bytes are limited


class SqlQueue:
    """Implements `BackingQueue`."""

    def __init__(self, place: QueuePlace, is_durable: bool, store: SqlStore) -> None:
        self.place = place
        self._is_durable = is_durable
        self._store = store
        found = store.recover(place, is_durable)
        self._next = found.next
        self._delivered_to = found.delivered_to
        self._count, self._ready_bytes = found.count, found.size_bytes
        self._fetched_to = 0
        self._requeued = TagRanges()
        self._pending = TagRanges()
        self._pending_rows: dict[int, tuple[int, int]] = {}  # tag → size, and 1 if it is persistent
        self._pending_bytes = 0
        self._persistent, self._persistent_bytes = (found.count, found.size_bytes) if is_durable else (0, 0)
        self._unwritten: list[Row] = []  # published by the current batch
        self._unwritten_bytes = 0
        self._has_taken = False  # the current batch removed messages
        self._has_diverged = False
        self._is_stopping = False  # by the current batch
        self._is_removed = False
        self._stored_next = found.next  # `next` in SQL; -1: SQL has to be updated
        self._version = 0  # changes with the ready messages
        self._head: tuple[int, Slice | None] = (-1, None)  # the version it belongs to, and the slice

    # -- publishing and fetching ---------------------------------------------------------------------------------

    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        if not publication.contents:
            return
        rows = rows_of(publication, self._next, self._is_durable and publication.is_persistent)
        self._of(batch).rows += rows
        self._count_persistent(rows, 1)
        size_bytes = sum(map(len, publication.contents))
        self._is_removed = False
        self._unwritten += rows
        self._unwritten_bytes += size_bytes
        self._next += len(rows)
        self._count += len(rows)
        self._ready_bytes += size_bytes
        self._version += 1

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        self._check_diverged()
        delivered_to = self._delivered_to
        rows = self._take(count, bytes_max)
        for row in rows:
            self._pending_rows[row[SEQUENCE]] = row[SIZE], row[PERSISTENT]
            self._pending_bytes += row[SIZE]
        slices = slices_of(rows, edge=delivered_to)
        for each in slices:
            self._pending.add(each.first, each.end)
            self._delivered_to = max(self._delivered_to, each.end)
        return [Fetched(each.first, each, each.first < delivered_to) for each in slices]

    # -- pending messages ----------------------------------------------------------------------------------------

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        self._check_diverged()
        taken = self._pending.take(tags)
        if taken:
            self._release(taken, batch)
            self._release_pending(taken, is_gone=True)
        return sum(stop - first for first, stop in taken)

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        self._pending.checked(tags)
        return [slice_ for first, stop in tags for slice_ in slices_of(self._between(first, stop, stop - first))]

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        self._check_diverged()
        taken = self._pending.take(tags)
        for first, stop in taken:
            self._requeued.add(first, stop)
            self._count += stop - first
            self._ready_bytes += self._size_of(first, stop)
        self._release_pending(taken, is_gone=False)
        self._version += 1
        return sum(stop - first for first, stop in taken)

    # -- removing ------------------------------------------------------------------------------------------------

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        self._check_diverged()
        rows = self._take(count, has_contents=False)
        if rows:
            self._release([(each.first, each.end) for each in slices_of(rows)], batch)
            self._count_persistent(rows, -1)
        return len(rows)

    def purge(self, batch: IndexBatch) -> int:
        self._check_diverged()
        purged = self._count
        ready = [each for each in self._ready_ranges() if each[0] < each[1]]
        if purged:
            self._release(ready, batch)
        self._requeued.clear()
        self._fetched_to = self._next
        self._count = self._ready_bytes = 0
        sizes = [size for size, is_persistent in self._pending_rows.values() if is_persistent]
        self._persistent, self._persistent_bytes = len(sizes), sum(sizes)
        self._version += 1
        return purged

    def delete(self, batch: IndexBatch) -> None:
        changes = self._of(batch)
        changes.is_removed, changes.rows, changes.gone = True, [], []
        self._has_taken = self._is_removed = True
        self._unwritten, self._unwritten_bytes = [], 0
        self._requeued.clear()
        self._pending.clear()
        self._pending_rows.clear()
        self._pending_bytes = self._persistent = self._persistent_bytes = 0
        self._fetched_to = self._next
        self._count = self._ready_bytes = 0
        self._version += 1

    # -- reading -------------------------------------------------------------------------------------------------

    def head(self) -> Slice | None:
        if self._head[0] != self._version:
            rows = self._upcoming(HEAD_ROWS, has_contents=False)
            self._head = self._version, next(iter(slices_of(rows)), None)
        return self._head[1]

    def browse(self) -> Iterator[Slice]:
        return self._browse(None)

    def search(self, where: SqlFilter) -> Iterator[Slice]:
        """Ready messages that match, like `browse`, filtered by SQL; without messages of the current batch."""
        return self._browse(where)

    def __len__(self) -> int:
        return self._count

    @property
    def ready_bytes(self) -> int:
        return self._ready_bytes

    @property
    def pending_count(self) -> int:
        return self._pending.count

    @property
    def ram_bytes(self) -> int:
        return self._unwritten_bytes

    def sizes(self) -> MessageSizes:
        in_ram, ram_bytes = len(self._unwritten), self._unwritten_bytes
        return MessageSizes(self._pending_bytes, in_ram, 0, ram_bytes, self._persistent, self._persistent_bytes)

    def set_ram_duration_target(self, seconds: float | None) -> None:
        """No contents are cached, whatever the target."""

    def ram_duration(self) -> float:
        return math.inf

    def page(self) -> bool:
        return False

    def facts(self) -> Mapping[str, int | float | str]:
        return {
            "kind": "sql",
            "ready": self._count,
            "ready_bytes": self._ready_bytes,
            "pending": self.pending_count,
            "where": self._store.where,
            "next": self._next,
            "delivered_to": self._delivered_to,
        }

    # -- the end of a batch --------------------------------------------------------------------------------------

    def stop(self, batch: IndexBatch) -> None:
        self._of(batch)
        self._is_stopping = True

    def counters(self) -> tuple[int, int, bool] | None:
        """next, delivered_to, is_clean for SQL; None: SQL is up to date."""
        if self._is_removed or (self._next == self._stored_next and not self._is_stopping):
            return None
        return self._next, self._delivered_to, self._is_stopping

    def written(self) -> None:
        self._unwritten, self._unwritten_bytes, self._has_taken = [], 0, False
        self._stored_next = -1 if self._is_stopping or self._is_removed else self._next
        self._is_stopping = False

    def abandoned(self) -> None:
        """Undo publishes. Removed messages cannot be restored."""
        rows = self._unwritten
        if self._has_taken or (rows and self._fetched_to > rows[0][SEQUENCE]):
            self._has_diverged = True
            return
        self._count_persistent(rows, -1)
        self._next -= len(rows)
        self._count -= len(rows)
        self._ready_bytes -= self._unwritten_bytes
        self._version += 1
        self.written()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _of(self, batch: IndexBatch) -> SqlQueueChanges:
        """The changes of the batch to this queue."""
        self._check_diverged()
        return SqlSession.of(self._store, batch).of_member(self)

    def _release(self, ranges: Sequence[TagRange], batch: IndexBatch) -> None:
        self._of(batch).gone += ranges
        self._has_taken = True

    def _release_pending(self, ranges: Sequence[TagRange], is_gone: bool) -> None:
        for tag in chain.from_iterable(range(first, stop) for first, stop in ranges):
            size_bytes, is_persistent = self._pending_rows.pop(tag)
            self._pending_bytes -= size_bytes
            if is_gone and is_persistent:
                self._persistent -= 1
                self._persistent_bytes -= size_bytes

    def _count_persistent(self, rows: Sequence[Row], sign: int) -> None:
        sizes = [row[SIZE] for row in rows if row[PERSISTENT]]
        self._persistent += sign * len(sizes)
        self._persistent_bytes += sign * sum(sizes)

    @property
    def has_diverged(self) -> bool:
        return self._has_diverged

    def _check_diverged(self) -> None:
        if self._has_diverged:
            what = f"queue {self.place.queue}: a batch that removed messages was not written"
            raise Refused(what, "open the queue again: it recovers the state of SQL")

    def _ready_ranges(self) -> Iterator[TagRange]:
        return chain(self._requeued, [(self._fetched_to, self._next)])

    def _take(self, count: int, bytes_max: int | None = None, has_contents: bool = True) -> list[Row]:
        """Take ready messages from the head."""
        rows = self._upcoming(count, bytes_max, has_contents)
        left = len(rows)
        while left and self._requeued:
            first, stop = self._requeued.take_first(left)
            left -= stop - first
        if left:
            self._fetched_to = rows[-1][SEQUENCE] + 1
        self._count -= len(rows)
        self._ready_bytes -= sum(row[SIZE] for row in rows)
        self._version += 1
        return rows

    def _upcoming(self, count: int, bytes_max: int | None = None, has_contents: bool = True) -> list[Row]:
        """Up to `count` messages from the head that fit, at least one; they stay ready."""
        found: list[Row] = []
        room = math.inf if bytes_max is None else bytes_max
        for first, stop in self._ready_ranges():
            while first < stop and len(found) < count:
                limit = count - len(found) if bytes_max is None else min(count - len(found), LARGE_ROWS)
                rows = self._between(first, stop, limit, has_contents)
                for row in rows:
                    room -= row[SIZE]
                    if room < 0 and found:
                        return found
                    found.append(row)
                if not rows:
                    break
                first = rows[-1][SEQUENCE] + 1
        return found

    def _between(self, first: int, stop: int, limit: int, has_contents: bool = True) -> list[Row]:
        """Up to `limit` messages between two sequence ids: from SQL, then from the current batch."""
        written_to = self._unwritten[0][SEQUENCE] if self._unwritten else self._next
        rows: list[Row] = []
        if first < written_to:
            rows = self._store.rows(self.place, first, min(stop, written_to), limit, has_contents)
        if stop > written_to and len(rows) < limit:
            start = bisect_left(self._unwritten, max(first, written_to), key=_sequence_of)
            end = min(bisect_left(self._unwritten, stop, key=_sequence_of), start + limit - len(rows))
            rows += (
                self._unwritten[start:end] if has_contents else [row[:CONTENT] for row in self._unwritten[start:end]]
            )
        return rows

    def _size_of(self, first: int, stop: int) -> int:
        unwritten: int = sum(row[SIZE] for row in self._unwritten if first <= row[SEQUENCE] < stop)
        return unwritten + self._store.size_of(self.place, first, stop)

    def _browse(self, where: SqlFilter | None) -> Iterator[Slice]:
        version = self._version
        for first, stop in list(self._ready_ranges()):
            while first < stop:
                if where is None:
                    rows = self._between(first, stop, BROWSE_ROWS)
                else:
                    rows = self._store.rows(self.place, first, stop, BROWSE_ROWS, where=where)
                for slice_ in slices_of(rows):
                    yield slice_
                    if self._version != version:
                        return
                if not rows:
                    break
                first = rows[-1][SEQUENCE] + 1


def _sequence_of(row: Row) -> int:
    return int(row[SEQUENCE])
