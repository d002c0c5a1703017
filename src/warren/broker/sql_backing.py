"""Queues in SQL, as a kind of backing queue that a database has to offer (BQ-02, HS-04).

    <directory>/sql_queues/queues.sqlite        made when a queue first asks for `sql`, and not before

What is left there of queues that the catalog does not know is removed then: a queue that is not durable ends with its
process, and its rows are found by the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.base.ids import Epoch, QueueId
from warren.base.threads import Threads
from warren.broker.storage import BackingRequest
from warren.files.protocol import Files, join
from warren.queues.backing_queue import BackingQueue
from warren.queues.kinds.sql_queue import SqlQueue, SqlStore

SQL = "sql"
DIRECTORY, FILE = "sql_queues", "queues.sqlite"


class SqlKind:
    """`make` is a `MakeOne`."""

    def __init__(
        self,
        files: Files,
        threads: Threads,
        directory: str,
        queue_ids: Callable[[], set[QueueId]],
        wait: Callable[[Epoch], None],
    ) -> None:
        self._files = files
        self._threads = threads
        self._directory = join(directory, DIRECTORY)
        self._queue_ids = queue_ids
        self._wait = wait
        self._lock = threads.condition()
        self._store: SqlStore | None = None

    def make(self, request: BackingRequest) -> BackingQueue:
        """It finds for itself what is there: whether it is fresh is the log's word for queues in the log."""
        return SqlQueue(request.place, request.is_durable, self._opened())

    def close(self) -> None:
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _opened(self) -> SqlStore:
        with self._lock:
            if self._store is None:
                self._files.make_directories(self._directory)
                self._store = SqlStore(join(self._directory, FILE), self._threads, self._wait)
                self._store.keep_only(self._queue_ids())
            return self._store
