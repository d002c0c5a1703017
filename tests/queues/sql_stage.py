"""SQL-backed queues for tests: a database in a file or in memory, and changes that need no log."""

from __future__ import annotations

from pathlib import Path

from tests.left_open import close_at_the_end
from tests.queues.backing_stage import BackingStage
from warren.base.ids import QueueId
from warren.base.messages import QueuePlace
from warren.base.threads import SystemThreads
from warren.queue_index.batch import IndexBatch, MessageSession
from warren.queues.kinds.sql_queue import IN_MEMORY, SqlQueue, SqlStore
from warren.testing.fakes import ManualClock

PLACE = QueuePlace(QueueId(7))
OTHER = QueuePlace(QueueId(8))


def without_log() -> IndexBatch:
    """Changes on a machine that has no log."""

    def begin() -> MessageSession:
        raise AssertionError("nothing of an SQL-backed queue is for the log")

    return IndexBatch(begin, ManualClock())


class SqlStage:
    """Two queues of one database, which can be opened again."""

    def __init__(self, path: Path | None = None, is_durable: bool = True) -> None:
        self._path = IN_MEMORY if path is None else str(path)
        self._is_durable = is_durable
        self.open()

    def open(self) -> None:
        self.store = SqlStore(self._path, SystemThreads())
        close_at_the_end(self.store.close)
        self.queue = SqlQueue(PLACE, self._is_durable, self.store)
        self.other = SqlQueue(OTHER, self._is_durable, self.store)
        self.stage = BackingStage(self.queue, without_log)
        self.beside = BackingStage(self.other, without_log)

    def crash_and_open(self) -> None:
        """What was not committed never was: there is nothing else that could be lost."""
        self.store.close()
        self.open()

    def stop_and_open(self) -> None:
        batch = without_log()
        self.queue.stop(batch)
        self.other.stop(batch)
        batch.end()
        self.crash_and_open()
