"""Getters that wait for messages of a queue: the blocking `get` of programs, first come, first served (QP-06, QP-09).

    get, nothing ready ──▶ a getter waits in line ──put──▶ the first in line gets what is ready, then the next one

The thread that puts messages delivers them to the getter, under the queue's lock, and wakes only that one. The getter
may have been abandoned in the same moment: then it does not accept them, and they are requeued.

Not here: consumers of AMQP, with prefetch and tags of their own (consumers.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from warren.base.ids import QueueId
from warren.base.threads import Threads
from warren.queues.backing_queue import Fetched


class Delivery(NamedTuple):
    """Messages that were delivered and are pending until they are settled."""

    queue: QueueId
    incarnation: int  # of the queue: tags of an earlier one mean nothing
    fetched: list[Fetched]


Outcome = Delivery | BaseException


class Getter(Protocol):
    """Waits for up to `count` messages."""

    count: int
    bytes_max: int | None

    def deliver(self, outcome: Outcome) -> bool:
        """Accept messages, or an error; False if it was abandoned. Must not wait, and must not call the queue."""
        ...


class WaitingGetters:
    """In the order of arrival. Used under the queue's lock."""

    def __init__(self) -> None:
        self._waiting: deque[Getter] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Getter]:
        return iter(self._waiting)

    def add(self, getter: Getter) -> None:
        self._waiting.append(getter)

    def remove(self, getter: Getter) -> bool:
        """Whether it was in line."""
        if getter not in self._waiting:
            return False
        self._waiting.remove(getter)
        return True

    def add_first(self, getter: Getter) -> None:
        """It was popped, and there was nothing for it after all."""
        self._waiting.appendleft(getter)

    def pop(self) -> Getter:
        return self._waiting.popleft()

    def fail(self, error: BaseException) -> None:
        """All of them: the queue delivers nothing more."""
        while self._waiting:
            self._waiting.popleft().deliver(error)


class WaitingThread:
    """A thread that sleeps until it gets a delivery. Is a `Getter`."""

    def __init__(self, threads: Threads, count: int, bytes_max: int | None) -> None:
        self.count = count
        self.bytes_max = bytes_max
        self._bell = threads.condition()
        self._outcome: Outcome | None = None
        self._is_abandoned = False

    def deliver(self, outcome: Outcome) -> bool:
        with self._bell:
            if self._is_abandoned:
                return False
            self._outcome = outcome
            self._bell.notify_all()
            return True

    def sleep(self, seconds: float | None) -> None:
        """Wait for an outcome, with a time limit."""
        with self._bell:
            if self._outcome is None:
                self._bell.wait(seconds)

    def is_served(self) -> bool:
        with self._bell:
            return self._outcome is not None

    def abandon(self) -> Outcome | None:
        """Accept nothing more; returns what was delivered."""
        with self._bell:
            self._is_abandoned = True
            return self._outcome
