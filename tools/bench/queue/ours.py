"""Our queues, as a program uses them: `warren.open`, with default settings.

    warren      the variable queue                         put is durable when it returns; an ack a moment later
    warren_sql  the queue kept in SQL (HS-03, HS-04)       the same API, another kind behind it

This file is the only one of the benchmark that calls the API for them; the rows call this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import warren
from tools.bench.queue.contenders import TOGETHER
from tools.bench.queue.peers import SYNCED
from tools.bench.snapshot.databases import directory_bytes
from tools.bench.stores import log_bytes
from warren.base.threads import SystemThreads
from warren.broker.storage import BackingRequest
from warren.embedded.database import Warren
from warren.embedded.queues import Queue
from warren.log.settings import LogSettings
from warren.queues.backing_queue import BackingQueue
from warren.queues.kinds.sql_queue import SqlQueue, SqlStore
from warren.queues.settings import QueueSettings

QUEUE = "bench"
SQL_KIND = "sql"


@contextmanager
def opened_queues(room: Path, **settings: Any) -> Iterator[Warren]:
    """The room's database, closed cleanly at the end."""
    with warren.open(str(directory_of(room)), **settings) as db:
        yield db


@contextmanager
def opened_sql_queues(room: Path) -> Iterator[Warren]:
    """The same with queues kept in SQL beside it, for those that ask for the kind `SQL_KIND`."""
    with closing(SqlStore(str(room / "messages.sqlite"), SystemThreads())) as store:

        def make(wanted: BackingRequest) -> BackingQueue:
            return SqlQueue(wanted.place, wanted.is_durable, store)

        with opened_queues(room, backing_kinds={SQL_KIND: make}) as db:
            yield db


def directory_of(room: Path) -> Path:
    return room / "queues"


def take(queue: Queue, count: int) -> list[bytes]:
    """Get up to so many, and acknowledge them."""
    batch = queue.get_many(count)
    if batch.bodies:
        batch.ack()
    return batch.bodies


def drained(queue: Queue, count: int, together: int = TOGETHER) -> list[bytes]:
    """All that is in it, of which there should be so many: then it is empty, or what is over is there as well."""
    got: list[bytes] = []
    while len(got) <= count and (some := take(queue, together)):
        got += some
    return got


def first_of(queue: Queue) -> bytes | None:
    """Get one, and keep it: it is not acknowledged."""
    message = queue.get()
    return None if message is None else message.body


class Ours:
    promise, together = SYNCED, TOGETHER

    def __init__(self, db: Warren, name: str, kind: str | None = None) -> None:
        self.name = name
        self._queue = db.queue(name, backing=kind)
        self._newest: Future[None] | None = None

    def put(self, body: bytes) -> None:
        self._queue.put(body)

    def put_soon(self, body: bytes) -> None:
        self._newest = self._queue.put_later(body)

    def put_many(self, some: Sequence[bytes]) -> None:
        self._queue.put_many(some)

    def get(self) -> bytes | None:
        message = self._queue.get()
        if message is None:
            return None
        message.ack()
        return message.body

    def get_many(self, count: int) -> list[bytes]:
        return take(self._queue, count)

    def settle(self) -> None:
        """Puts by futures are durable in their order; acknowledgements when `sync` returns."""
        if self._newest is not None:
            self._newest.result()
            self._newest = None
        self._queue.sync()

    def close(self) -> None:
        """The database is closed by the code that opened it."""


def with_watermark(limit_bytes: int) -> dict[str, Any]:
    """Settings of `opened_queues` under which messages of all queues together may take so much memory."""
    return {"queue_settings": replace(QueueSettings(), memory_watermark_bytes=limit_bytes)}


def nothing_retained() -> dict[str, Any]:
    """Settings under which no history is kept."""
    return {"log_settings": replace(LogSettings(), retention_seconds=0.0, retention_bytes=0)}


def ram_bytes_of(db: Warren) -> int:
    """About how much memory the messages of all queues take, as the queues say."""
    return db.queue_room.queues.monitor.used_bytes


def log_bytes_of(db: Warren) -> int:
    return log_bytes(db.database.log)


def written_bytes_of(db: Warren, room: Path) -> int:
    """Bytes of the log up to its ends, and all that other files take; not the zeros that are allocated ahead."""
    directory = directory_of(room)
    allocated_in_log = sum(path.lstat().st_blocks * 512 for path in directory.rglob("pwal_*"))
    return directory_bytes(str(directory)) - allocated_in_log + log_bytes_of(db)


def container_bytes_of(db: Warren) -> int:
    return db.database.log.manifest.state.container_bytes
