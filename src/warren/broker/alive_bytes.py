"""Bytes of all messages that are in a queue, ready or pending: kept as a sum, so that reading it costs the same for one
queue and for a hundred thousand.

Each sub-queue reports what it holds after a change, with its queue's lock held. A sub-queue that starts anew at the
same place replaces what its former life reported. Reading takes no lock.

Invariant: `total` is the sum of the last reports. It is changed by single statements without a call or a jump in them,
between whose steps the interpreter does not change threads: a lock would cost every publish and every ack.
"""

from __future__ import annotations

from warren.base.ids import QueueId
from warren.base.runs import QueuePlace


class AliveBytes:
    def __init__(self) -> None:
        self.total = 0
        self._by_queue: dict[QueueId, dict[int, int]] = {}  # by level

    def report(self, place: QueuePlace, size_bytes: int) -> None:
        levels = self._by_queue.setdefault(place.queue, {})
        change = size_bytes - levels.get(place.level, 0)
        levels[place.level] = size_bytes
        self.total += change

    def remove(self, queue: QueueId) -> None:
        """The queue is deleted: nothing reports for it any more."""
        change = sum(self._by_queue.pop(queue, {}).values())
        self.total -= change
