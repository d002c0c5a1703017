"""Memory monitor: one watermark for the messages of all queues together (`rabbit_memory_monitor`).

    queues ──bytes in memory──▶ used ──over the limit?──▶ for how many seconds may a queue hold messages?
       ▲                                                        │
       └──────────── target, then steps of paging ◀─────────────┘   until used is a little below the limit

Each queue computes how long its messages in memory last at its present rates. All get the same target: the mean of
that, times limit / used. So a busy queue may hold many messages, a slow one few, and an idle queue, whose messages last
for ever, none: it has no part in the mean, and is paged first.

The thread that exceeds the limit does the paging: a fast publisher cannot outrun it. Steps are taken in turn among all
queues and end as soon as used is low enough, so that no more is paged than necessary. Where a whole round frees nothing
(all that is left is unacknowledged) the next attempt waits until used has grown.

Far below the limit the target is lifted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from warren.base.ids import QueueId
from warren.base.threads import Threads

LOW = 0.95  # of the limit: paging ends here, so that not every put pages
LIFT = 0.75  # of the limit: below it there is no target
ROUNDS = 24  # targets that are tried at once …
LESS = 0.7  # … each at most this share of the one before
GROWTH = 1.02  # of what could not be paged: then it is tried again


class Paged(Protocol):
    """A queue, as the monitor uses it. Takes its own lock."""

    id: QueueId

    def ram_duration(self) -> float: ...

    def set_target(self, seconds: float | None) -> None: ...

    def page(self) -> bool:
        """One step; whether another one is needed for the target. Reports its memory afterwards."""
        ...


class MemoryMonitor:
    def __init__(self, threads: Threads, limit_bytes: int, queues: Callable[[], Sequence[Paged]]) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.target: float | None = None  # seconds
        self._queues = queues
        self._lock = threads.condition()  # of the sums
        self._batch = threads.condition()  # of the thread that pages
        self._by_queue: dict[QueueId, int] = {}
        self._stuck_bytes = 0.0  # that could not be paged

    def set_limit(self, limit_bytes: int) -> None:
        """In effect at the next check; what could not be paged is tried again."""
        self.limit_bytes = limit_bytes
        self._stuck_bytes = 0.0

    def set_used(self, queue: QueueId, ram_bytes: int) -> None:
        """Memory of a queue's messages."""
        with self._lock:
            self.used_bytes += ram_bytes - self._by_queue.get(queue, 0)
            self._by_queue[queue] = ram_bytes

    def forget(self, queue: QueueId) -> None:
        with self._lock:
            self.used_bytes -= self._by_queue.pop(queue, 0)

    @property
    def is_over(self) -> bool:
        return self.used_bytes > self.limit_bytes and self.used_bytes > self._stuck_bytes

    def relieve(self) -> None:
        """Without any queue's lock: page until there is room, if there is none."""
        if self.is_over:
            with self._batch:
                if self.is_over:
                    self._page()

    def tick(self) -> None:
        """Periodically: compute a new target, or lift it."""
        with self._batch:
            self._stuck_bytes = 0.0
            if self.used_bytes > self.limit_bytes:
                self._page()
            elif self.target is not None and self.used_bytes < LIFT * self.limit_bytes:
                self._set_target(self._queues(), None)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _page(self) -> None:
        queues = [each for each in self._queues() if self._by_queue.get(each.id)]
        if self.target is not None and self._page_in_turn(queues):  # as it was shared out before
            return
        for _ in range(ROUNDS):
            self._set_target(queues, self._desired(queues))
            if self._page_in_turn(queues):
                return
            if self.target == 0.0:
                break
        self._stuck_bytes = max(self.used_bytes, self.limit_bytes) * GROWTH

    def _desired(self, queues: Sequence[Paged]) -> float:
        """Seconds that every queue may hold: never more than before while memory is over the limit."""
        durations = [seconds for each in queues if not math.isinf(seconds := each.ram_duration())]
        if not durations:
            return 0.0
        share = self.limit_bytes / self.used_bytes
        desired = sum(durations) / len(durations) * share
        least = desired if self.target is None else min(desired, self.target * min(share, LESS))
        return least if least > 1e-6 else 0.0

    def _set_target(self, queues: Sequence[Paged], target: float | None) -> None:
        self.target = target
        for each in queues:
            each.set_target(target)

    def _page_in_turn(self, queues: Sequence[Paged]) -> bool:
        """One step for each, and again those that need another, those at rest before the others; whether there is room
        now."""
        resting = [each for each in queues if math.isinf(each.ram_duration())]
        return self._steps(resting) or self._steps([each for each in queues if not math.isinf(each.ram_duration())])

    def _steps(self, needing: list[Paged]) -> bool:
        while needing and self.used_bytes > LOW * self.limit_bytes:
            still: list[Paged] = []
            for each in needing:
                if self.used_bytes <= LOW * self.limit_bytes:
                    return True
                if each.page():
                    still.append(each)
            needing = still
        return self.used_bytes <= LOW * self.limit_bytes
