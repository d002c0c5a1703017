"""Consumers of a queue, and getters that wait for its messages: which of them gets the ready ones (checklist QP-06).

    ready ──▶ the first consumer in line that has room ──▶ it goes to the end of the line
                 highest priority first; within one priority, one after the other

A single consumer gets as much as it has room for at once. Several share: one message each in turn while there are few,
and longer and longer pieces while there are many, so that a long queue is not delivered message by message.

With `x-single-active-consumer` only the first in line gets messages, until it is cancelled. An exclusive consumer is
the only one.

Consumers belong to the queue through all its incarnations, and are served by request batches only: in one thread, with
the queue's lock held. Work of other threads schedules a batch instead (`Queue.schedule_delivery`).

Getters are the blocking `get` of programs, first come, first served (QP-09):

    get, nothing ready ──▶ a getter waits in line ──put──▶ the first in line gets what is ready, then the next one

The thread that puts messages delivers them to the getter, under the queue's lock, and wakes only that one. The getter
may have been abandoned in the same moment: then it does not accept them, and they are requeued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from warren.base.errors import Refused, WarrenError
from warren.base.ids import QueueId
from warren.base.threads import Threads
from warren.queues.backing_queue import Fetched

PIECE_MAX = 500  # messages for one of several consumers at a time
FEW = 32  # messages for each of them: as long as there are no more, they are delivered one by one


class InUse(Refused):
    """The queue has an exclusive consumer, or an exclusive one is added to others (AMQP: 403)."""


class Consumer(Protocol):
    """Accepts messages as they become ready. Called in a request batch; must not wait, and must not call the queue."""

    priority: int
    is_exclusive: bool
    is_auto_ack: bool  # a delivery is acknowledged at once

    def room(self) -> int:
        """Number of messages that it accepts now."""
        ...

    def room_bytes(self) -> int:
        """… and about how many bytes; the first message may have more."""
        ...

    def take(self, incarnation: int, fetched: list[Fetched]) -> None: ...

    def cancelled(self, reason: WarrenError) -> None:
        """The queue delivers nothing more. Any thread."""
        ...


Fetch = Callable[[int, int, bool], list[Fetched]]  # messages, bytes, acknowledged at once or not


class Consumers:
    """Used under the queue's lock."""

    __slots__ = ("_line", "is_single_active")

    def __init__(self) -> None:
        self._line: list[Consumer] = []  # the highest priority first, then the next in turn
        self.is_single_active = False

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._line)

    def add(self, consumer: Consumer) -> None:
        if self._line and (consumer.is_exclusive or self._line[0].is_exclusive):
            raise InUse("there is another consumer, and one of the two is exclusive")
        self._place(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Whether it was in line."""
        if consumer not in self._line:
            return False
        self._line.remove(consumer)
        return True

    def cancel(self, reason: WarrenError) -> None:
        """All of them: the queue has ended for good."""
        line, self._line = self._line, []
        for consumer in line:
            consumer.cancelled(reason)

    def serve(self, incarnation: int, count: int, fetch: Fetch) -> None:
        """Deliver up to this many ready messages, as far as consumers have room."""
        while count > 0 and (able := self._able()):
            share = self._share(count, len(able))
            for consumer in able:
                fetched = fetch(min(consumer.room(), share), consumer.room_bytes(), consumer.is_auto_ack)
                if not fetched:
                    return
                consumer.take(incarnation, fetched)
                count -= sum([len(each.slice) for each in fetched])
                if len(able) > 1:
                    self._line.remove(consumer)
                    self._place(consumer)

    def is_active(self, consumer: Consumer) -> bool:
        """Whether it gets messages: of single active consumers, only the first in line."""
        return not self.is_single_active or self._line[:1] == [consumer]

    def has_room(self) -> bool:
        return bool(self._able())

    def _able(self) -> list[Consumer]:
        """Those of the highest priority that have room, in turn."""
        line = self._line
        if self.is_single_active:
            return [each for each in line[:1] if each.room() > 0]
        able: list[Consumer] = []
        for each in line:
            if able and each.priority < able[0].priority:
                break
            if each.room() > 0:
                able.append(each)
        return able

    def _share(self, count: int, able: int) -> int:
        if able == 1:
            return count
        return 1 if count <= FEW * able else min(count // (2 * able), PIECE_MAX)

    def _place(self, consumer: Consumer) -> None:
        """Behind all others of its own priority; a single active consumer stays the first."""
        line = self._line
        at = next((at for at, each in enumerate(line) if each.priority < consumer.priority), len(line))
        if self.is_single_active and at == 0 and line:
            at = len(line)
        line.insert(at, consumer)


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
