"""The lock of the message stream, and which rows changed while cleaning did not hold it.

    Changes.end   lock ──▶ session ends ──▶ its epoch, and during a watch its rows, are noted
    cleaning      lock: the watch begins ──▶ no lock: wait for the disk, read rows ──▶ lock: unchanged rows are written

Every batch of the event loop takes this lock. Invariant: no holder of it waits for the disk, neither for durability nor
for room.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from warren.base.ids import Epoch, QueueId

RunPlace = tuple[QueueId, int, int]  # queue, level, first sequence id


class StreamLock:
    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.lock = lock
        self.newest = Epoch(0)  # under the lock: of all sessions of the stream that have ended
        self.is_watched = False
        self._runs: set[RunPlace] = set()
        self._queues: set[QueueId] = set()

    def begin_watch(self) -> Epoch:
        """Note changed rows from now on; the epoch up to which the stream is written."""
        with self.lock:
            self.is_watched = True
            return self.newest

    def end_watch(self) -> None:
        """Under the lock."""
        self.is_watched = False
        self._runs, self._queues = set(), set()

    def note(self, runs: Iterable[RunPlace], queues: Iterable[QueueId]) -> None:
        """Under the lock, during a watch: acknowledgements of these runs, and these whole queues, were written."""
        self._runs.update(runs)
        self._queues.update(queues)

    def is_changed(self, run: RunPlace) -> bool:
        """Under the lock: since the watch began."""
        return run[0] in self._queues or run in self._runs
