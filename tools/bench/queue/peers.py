"""The queues that a Python program could use instead, each as its own documentation shows it.

    SQLite by hand   a table; WAL, synchronous = FULL. One body per transaction, or a thousand       synced
    persist-queue    SQLiteAckQueue: a transaction a put, two a get and its ack, SQLite's FULL       synced
    litequeue        LiteQueue: SQLite, WAL, NORMAL: a put is in the page cache                      not synced
    diskcache        Deque: SQLite, WAL, NORMAL; what is taken is gone, there is no acknowledgement  not synced

They get bodies as bytes, and what they can leave out is left out in their favour: SQLite deletes what it reads in one
transaction, and litequeue's done messages are left to lie.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tools.bench.queue.contenders import TOGETHER, Contender
from warren.base.errors import Refused

SYNCED = "on the disk"
NOT_SYNCED = "in the page cache: a power cut may lose it"
_EXTRA = "pip install persist-queue litequeue diskcache, or make setup"


def require_peers() -> None:
    """Before minutes are spent on a comparison that cannot be made."""
    try:
        import diskcache  # noqa: F401
        import litequeue  # noqa: F401
        import persistqueue  # noqa: F401
    except ImportError as error:
        raise Refused(f"there is nothing to compare with: {error}", _EXTRA) from error


def connected(path: Path) -> sqlite3.Connection:
    """As a careful program opens it: what is committed is on the disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class SqliteByHand:
    name, promise, together = "sqlite", SYNCED, TOGETHER

    def __init__(self, path: Path) -> None:
        self._connection = connected(path)
        self._connection.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")

    def put(self, body: bytes) -> None:
        self._connection.execute("INSERT INTO queue (body) VALUES (?)", (body,))

    def put_many(self, some: Sequence[bytes]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO queue (body) VALUES (?)", zip(some))
        self._connection.execute("COMMIT")

    def get(self) -> bytes | None:
        found = self.get_many(1)
        return found[0] if found else None

    def get_many(self, count: int) -> list[bytes]:
        self._connection.execute("BEGIN IMMEDIATE")
        rows = self._connection.execute("SELECT id, body FROM queue ORDER BY id LIMIT ?", (count,)).fetchall()
        if rows:
            self._connection.execute("DELETE FROM queue WHERE id <= ?", (rows[-1][0],))
        self._connection.execute("COMMIT")
        return [body for _, body in rows]

    def settle(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        self._connection.close()


class OneByOne(ABC):
    """A contender that has no call for many."""

    name = promise = ""
    together = 1

    @abstractmethod
    def put(self, body: bytes) -> None: ...

    @abstractmethod
    def get(self) -> bytes | None: ...

    def put_many(self, some: Iterable[bytes]) -> None:
        for body in some:
            self.put(body)

    def get_many(self, count: int) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < count and (body := self.get()) is not None:
            got.append(body)
        return got

    def settle(self) -> None:
        """There is nothing to wait for."""
        return


class PersistQueue(OneByOne):
    name, promise = "persist_queue", SYNCED

    def __init__(self, path: Path) -> None:
        from persistqueue import SQLiteAckQueue

        self._queue = SQLiteAckQueue(str(path))

    def put(self, body: bytes) -> None:
        self._queue.put(body)

    def get(self) -> bytes | None:
        from persistqueue.exceptions import Empty

        try:
            item = self._queue.get(block=False, raw=True)
        except Empty:
            return None
        self._queue.ack(item)
        return bytes(item["data"])

    def close(self) -> None:
        self._queue.close()


class LiteQueuePeer(OneByOne):
    name, promise = "litequeue", NOT_SYNCED

    def __init__(self, path: Path) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(str(path))

    def put(self, body: bytes) -> None:
        self._queue.put(body)

    def get(self) -> bytes | None:
        message = self._queue.pop()
        if message is None:
            return None
        self._queue.done(message.message_id)
        return bytes(message.data)

    def close(self) -> None:
        self._queue.close()


class DiskcacheDeque(OneByOne):
    name, promise = "diskcache", NOT_SYNCED

    def __init__(self, path: Path) -> None:
        from diskcache import Deque

        self._deque = Deque(directory=str(path))

    def put(self, body: bytes) -> None:
        self._deque.append(body)

    def get(self) -> bytes | None:
        try:
            return bytes(self._deque.popleft())
        except IndexError:
            return None

    def close(self) -> None:
        self._deque.cache.close()


PEERS: tuple[Callable[[Path], Contender], ...] = (SqliteByHand, PersistQueue, LiteQueuePeer, DiskcacheDeque)
PEER_NAMES = (SqliteByHand.name, PersistQueue.name, LiteQueuePeer.name, DiskcacheDeque.name)
