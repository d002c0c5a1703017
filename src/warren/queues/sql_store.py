"""The SQL database behind SQL-backed queues: two tables, and one transaction for each `Changes` (BQ-03, BQ-04, HS-04).

    queue_messages   queue, level, sequence ▸ size, is_persistent, expires_ms, published_ms,
                                              exchange, routing_key, user_name, content_kind, content
    queue_places     queue, level           ▸ next, delivered_to, is_clean

One row for each message, in the order in which the queue has it: so anybody can look at a queue with plain SQL. SQLite
keeps it safe by itself: a write-ahead log of its own and `synchronous = FULL`, a sync for each commit. Nothing of it is
in our log, and no simulator knows of its files: hence a room of its own, and kill drills instead.

Bulk statements throughout: many messages are one `executemany`, acknowledgements are ranges.

Always true: what one `Batch` says is there as a whole or not at all. Safe to use from several threads: one at a time.
Not here: what is ready or pending (sql), when a transaction is made (sql_session).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import URL, create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from warren.base.errors import Damage, DiskFailure, Locked, OutOfRoom, Refused, WarrenError
from warren.base.ids import Epoch, QueueId
from warren.base.process import call_in_children, never_destroy
from warren.base.runs import QueuePlace
from warren.base.threads import Threads
from warren.queues.backing import TagRange
from warren.queues.sql_rows import COLUMNS, COLUMNS_BARE, Row, SqlFilter

VERSION = 1
IN_MEMORY = ""  # a path: for tests and for what need not last
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
    """What a start finds of a queue."""

    next: int
    delivered_to: int
    count: int
    size_bytes: int


@dataclass(slots=True)
class SqlPlaceStore:
    """What one transaction does to one sub-queue, in this order."""

    is_removed: bool = False
    rows: list[Row] = field(default_factory=list)
    gone: list[TagRange] = field(default_factory=list)
    counters: tuple[int, int, bool] | None = None  # next, delivered_to, is_clean


Batch = dict[QueuePlace, SqlPlaceStore]


class SqlStore:
    """Open from the beginning on."""

    def __init__(self, path: str, threads: Threads, wait: Callable[[Epoch], None] = lambda epoch: None) -> None:
        """`path`: a file in a directory that is there, or `IN_MEMORY`. `wait`: until an epoch of the log is durable."""
        self.where = path or "in memory"
        self.wait = wait
        self.sessions: dict[int, Any] = {}  # by the identity of their changes
        self.lock = threads.condition()
        self._engine = _engine(path)
        try:
            with _told_plainly(self.where):
                self._connection: Connection = self._engine.connect()
                self._make_tables()
        except BaseException:
            self._engine.dispose()
            raise
        call_in_children(self)

    def forked(self) -> None:
        never_destroy(self)

    def recover(self, place: QueuePlace, is_durable: bool) -> RecoveredQueue:
        """What there is of a queue. What does not outlive a stop goes, and a stop that was clean is one no more."""
        of_place = (place.queue, place.level)
        passing = "AND is_persistent = 0" if is_durable else ""
        with self.lock, self._transaction() as connection:
            connection.exec_driver_sql(f"DELETE FROM queue_messages WHERE {_OF_PLACE} {passing}", of_place)
            counted = f"SELECT count(*), coalesce(sum(size), 0) FROM queue_messages WHERE {_OF_PLACE}"
            count, size_bytes = connection.exec_driver_sql(counted, of_place).one()
            told = f"SELECT next, delivered_to, is_clean FROM queue_places WHERE {_OF_PLACE}"
            next_, delivered_to, is_clean = connection.exec_driver_sql(told, of_place).first() or (0, 0, 0)
            if is_clean:
                connection.exec_driver_sql(f"UPDATE queue_places SET is_clean = 0 WHERE {_OF_PLACE}", of_place)
        return RecoveredQueue(next_, delivered_to if is_clean else next_, count, size_bytes)

    def keep_only(self, queues: Collection[QueueId]) -> None:
        """Remove what there is of any other queue."""
        with self.lock, self._transaction() as connection:
            found = connection.exec_driver_sql("SELECT DISTINCT queue FROM queue_places").scalars().all()
            for queue in [each for each in found if each not in queues]:
                for table in ("queue_messages", "queue_places"):
                    connection.exec_driver_sql(f"DELETE FROM {table} WHERE queue = ?", (queue,))

    def write(self, batch: Batch) -> None:
        """All of it in one transaction; it is durable afterwards."""
        with self.lock, self._transaction() as connection:
            for place, of_place in batch.items():
                _write(connection, place, of_place)

    def rows(
        self,
        place: QueuePlace,
        first: int,
        stop: int,
        limit: int,
        has_contents: bool = True,
        where: SqlFilter | None = None,
    ) -> list[Row]:
        """Up to so many messages from one sequence id on, below another, in order."""
        condition, values = where.condition() if where is not None else ("", [])
        columns = COLUMNS if has_contents else COLUMNS_BARE
        statement = (
            f"SELECT {columns} FROM queue_messages"
            f" WHERE {_OF_PLACE} AND sequence >= ? AND sequence < ?{condition} ORDER BY sequence LIMIT ?"
        )
        with self.lock, _told_plainly(self.where):
            parameters = (place.queue, place.level, first, stop, *values, limit)
            return [tuple(row) for row in self._connection.exec_driver_sql(statement, parameters)]

    def size_of(self, place: QueuePlace, first: int, stop: int) -> int:
        """Bytes of what there is between two sequence ids."""
        range_ = f"{_OF_PLACE} AND sequence >= ? AND sequence < ?"
        statement = f"SELECT coalesce(sum(size), 0) FROM queue_messages WHERE {range_}"
        with self.lock, _told_plainly(self.where):
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
        with _told_plainly(self.where):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(SQLAlchemyError):
                    connection.exec_driver_sql("ROLLBACK")
                raise


def _write(connection: Connection, place: QueuePlace, of_place: SqlPlaceStore) -> None:
    own = (place.queue, place.level)
    if of_place.is_removed:
        for table in ("queue_messages", "queue_places"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE {_OF_PLACE}", own)
    if of_place.rows:
        values = f"{place.queue:d}, {place.level:d}, " + ", ".join("?" * len(of_place.rows[0]))
        connection.exec_driver_sql(f"INSERT INTO queue_messages VALUES ({values})", of_place.rows)
    if of_place.gone:
        gone = f"DELETE FROM queue_messages WHERE queue = {place.queue:d} AND level = {place.level:d}"
        connection.exec_driver_sql(f"{gone} AND sequence >= ? AND sequence < ?", joined(of_place.gone))
    if of_place.counters is not None:
        connection.exec_driver_sql("REPLACE INTO queue_places VALUES (?, ?, ?, ?, ?)", (*own, *of_place.counters))


def joined(ranges: Sequence[TagRange]) -> list[TagRange]:
    """The same tags in as few ranges as there can be."""
    found: list[TagRange] = []
    for first, stop in sorted(ranges):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((first, stop))
    return found


def _engine(path: str) -> Engine:
    """SQLite begins and ends a transaction when we say so, and at no other time."""
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
def _told_plainly(where: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _told(where, str(error.orig)) from error


def _told(where: str, text: str) -> WarrenError:
    if any(sign in text for sign in ("not a database", "malformed", "file is encrypted")):
        return Damage(f"the SQL queues are damaged: {text}", where, 0, "restore the file from a backup")
    if "full" in text:
        return OutOfRoom(f"the SQL queues of {where} have no room: {text}", "make room")
    if "locked" in text:
        return Locked(f"the SQL queues of {where} are held by somebody else: {text}", "stop whoever has them open")
    return DiskFailure(f"the SQL queues of {where} cannot go on: {text}", "see to it, and open them again")
