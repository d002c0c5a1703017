"""Who waits for messages of a queue: served in the order of asking (checklist QP-06, QP-09).

    get, nothing ready ──▶ a getter stands in line ──put──▶ the first in line gets what is ready, then the next one

A getter is handed its messages by whoever puts them, under the queue's lock, and is woken alone. It may have given up
in the same moment: then it does not take them, and they are requeued.

Not here: consumers of AMQP, with prefetch and tags of their own. They come to stand in the same line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from warren.base.ids import QueueId
from warren.base.threads import Threads
from warren.queues.backing_queue import Fetched


class Delivery(NamedTuple):
    """Messages in somebody's hands, until he settles them."""

    queue: QueueId
    incarnation: int  # of the queue: tags of an earlier one mean nothing
    fetched: list[Fetched]


Outcome = Delivery | BaseException


class Getter(Protocol):
    """Somebody who waits for up to `count` messages."""

    count: int
    bytes_max: int | None

    def hand(self, outcome: Outcome) -> bool:
        """Take messages, or an error; whether it does: it may have gone. Must not wait, and must not ask the queue."""
        ...


class WaitingGetters:
    """Getters in the order of asking. Used under the queue's lock."""

    def __init__(self) -> None:
        self._waiting: deque[Getter] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Getter]:
        return iter(self._waiting)

    def join(self, getter: Getter) -> None:
        self._waiting.append(getter)

    def leave(self, getter: Getter) -> bool:
        """Whether it stood there."""
        if getter not in self._waiting:
            return False
        self._waiting.remove(getter)
        return True

    def join_first(self, getter: Getter) -> None:
        """It was its turn, and there was nothing for it after all."""
        self._waiting.appendleft(getter)

    def pop(self) -> Getter:
        return self._waiting.popleft()

    def tell(self, error: BaseException) -> None:
        """Nobody gets anything here any more."""
        while self._waiting:
            self._waiting.popleft().hand(error)


class WaitingThread:
    """A thread that sleeps until it is handed something. Is a `Getter`."""

    def __init__(self, threads: Threads, count: int, bytes_max: int | None) -> None:
        self.count = count
        self.bytes_max = bytes_max
        self._bell = threads.condition()
        self._outcome: Outcome | None = None
        self._has_gone = False

    def hand(self, outcome: Outcome) -> bool:
        with self._bell:
            if self._has_gone:
                return False
            self._outcome = outcome
            self._bell.notify_all()
            return True

    def sleep(self, seconds: float | None) -> None:
        """Until something was handed over, or so long."""
        with self._bell:
            if self._outcome is None:
                self._bell.wait(seconds)

    def is_served(self) -> bool:
        with self._bell:
            return self._outcome is not None

    def go(self) -> Outcome | None:
        """Nothing is taken any more; what was."""
        with self._bell:
            self._has_gone = True
            return self._outcome
