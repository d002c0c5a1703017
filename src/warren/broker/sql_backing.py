"""SQL backing: queues in SQLite, as a kind of backing queue (BQ-02, HS-04).

    <directory>/sql_queues/queues.sqlite        created for the first queue with `sql`

On opening, rows of queues that are not in the catalog are removed: a queue that is not durable ends with its process,
and the next process finds its rows.
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
    """`make` implements `MakeOne`."""

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
        """`is_fresh` is ignored: it refers to the log, and an SQL queue reads its own rows."""
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
