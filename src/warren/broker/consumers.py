"""Consumers of a queue: who gets what is ready, in turn (checklist QP-06).

    ready ──▶ the first consumer in line that has room ──▶ it goes to the end of the line
                 highest priority first; within one priority, one after the other

One consumer takes what it has room for in one go. Several share: one message each in turn while there are few, and
longer and longer pieces while there are many, so that a long queue is not handed out message by message.

With `x-single-active-consumer` only the first in line gets anything, until it leaves. An exclusive consumer is alone.

They belong to the queue through all its lives, and are served by turns only (turn.py): in one thread, with the queue's
lock held. Work of other threads wakes the turn instead. Not here: getters who wait once (consumers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from warren.base.errors import Refused, WarrenError
from warren.queues.backing_queue import Fetched

PIECE_MAX = 500  # messages for one of several consumers at a time
FEW = 32  # messages for each of them: as long as there are no more, they get them one by one


class InUse(Refused):
    """There is an exclusive consumer, or there are others while one wants to be (AMQP: 403)."""


class Consumer(Protocol):
    """Somebody who takes messages as they come. Called in a turn; must not wait and must not ask the queue."""

    priority: int
    is_exclusive: bool
    is_auto_ack: bool  # what is handed over is acknowledged with that

    def room(self) -> int:
        """How many messages it takes now."""
        ...

    def room_bytes(self) -> int:
        """… and about how many bytes; the first message may have more."""
        ...

    def take(self, incarnation: int, fetched: list[Fetched]) -> None: ...

    def cancelled(self, reason: WarrenError) -> None:
        """Nothing comes from this queue any more. Any thread."""
        ...


Hand = Callable[[int, int, bool], list[Fetched]]  # so many, so many bytes, acknowledged at once or not


class Consumers:
    """Used under the queue's lock."""

    __slots__ = ("_line", "is_single_active", "on_ready")

    def __init__(self) -> None:
        self._line: list[Consumer] = []  # the highest priority first, then whose turn it is
        self.is_single_active = False
        self.on_ready: Callable[[], None] | None = None  # have the queue looked at in a turn, soon

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._line)

    def add(self, consumer: Consumer) -> None:
        if self._line and (consumer.is_exclusive or self._line[0].is_exclusive):
            raise InUse("there is another consumer, and one of both is exclusive")
        self._place(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Whether it was there."""
        if consumer not in self._line:
            return False
        self._line.remove(consumer)
        return True

    def tell(self, reason: WarrenError) -> None:
        """The queue has gone for good."""
        line, self._line = self._line, []
        for consumer in line:
            consumer.cancelled(reason)

    def serve(self, incarnation: int, count: int, hand: Hand) -> None:
        """Hand out up to so many ready messages, as far as anybody has room."""
        while count > 0 and (able := self._able()):
            share = self._share(count, len(able))
            for consumer in able:
                fetched = hand(min(consumer.room(), share), consumer.room_bytes(), consumer.is_auto_ack)
                if not fetched:
                    return
                consumer.take(incarnation, fetched)
                count -= sum([len(each.slice) for each in fetched])
                if len(able) > 1:
                    self._line.remove(consumer)
                    self._place(consumer)

    def schedule_if_able(self) -> None:
        """Somebody has room for what is ready: have it handed out."""
        if self.on_ready is not None and self._able():
            self.on_ready()

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
        """Behind everybody of its own priority; one that is active alone stays so."""
        line = self._line
        at = next((at for at, each in enumerate(line) if each.priority < consumer.priority), len(line))
        if self.is_single_active and at == 0 and line:
            at = len(line)
        line.insert(at, consumer)
