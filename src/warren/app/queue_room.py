"""Queues by name: declared, opened, listed, and several put to at once. `db.queue` and its siblings end up here.

declare    the queue of this name, made if there is none; refused if it was declared with other arguments
find       the queue that is there, however it was declared; refused if there is none
publish    the same messages to several queues: in all of them or in none, stored once
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypedDict

from warren.app.bodies import checked_body, pieces
from warren.app.publishing import publication_of, when_durable
from warren.app.queue_assembly import OpenQueues
from warren.app.queues import Queue
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.base.runs import NOWHERE
from warren.broker.arguments import Overflow, QueueArguments

_MS = 1000


class QueueOptions(TypedDict, total=False):
    """What a queue may be asked for."""

    durable: bool  # True: it and its persistent messages outlive a stop
    max_priority: int | None  # messages of a higher priority, up to this one, go first
    message_ttl: float | None  # seconds after which a message is not delivered any more
    max_length: int | None  # most ready messages …
    max_length_bytes: int | None  # … or bytes of them
    overflow: str  # what happens to what is over that: "drop-head" (default), or "reject-publish"
    dead_letter: str | None  # name of the queue that gets what expires, is over the limit, or is rejected
    expires: float | None  # seconds without a get after which the queue is deleted
    backing: str | None  # another kind of backing queue


class OpenQueueNames:
    """Of one open database."""

    def __init__(self, queues: OpenQueues) -> None:
        self.queues = queues

    def declare(self, name: str, options: QueueOptions) -> Queue:
        arguments = QueueArguments(
            _ms("message_ttl", options.get("message_ttl")),
            _ms("expires", options.get("expires")),
            options.get("max_length"),
            options.get("max_length_bytes"),
            _overflow(options.get("overflow", Overflow.DROP_HEAD)),
            options.get("dead_letter"),
            options.get("max_priority"),
            options.get("backing"),
        )
        if unknown := set(options) - set(QueueOptions.__annotations__):
            raise Misuse(f"a queue has no option {sorted(unknown)[0]!r}", f"{', '.join(QueueOptions.__annotations__)}")
        return Queue(self.queues, self.queues.host.declare(name, options.get("durable", True), arguments))

    def find(self, name: str) -> Queue:
        return Queue(self.queues, self.queues.host.find(name))

    def names(self) -> list[str]:
        return self.queues.host.names()

    def publish(
        self, bodies: bytes | Iterable[bytes], names: Iterable[str], ttl: float | None, priority: int, persistent: bool
    ) -> tuple[int, Epoch]:
        """How many messages, and the epoch to wait for."""
        queues, settings = self.queues, self.queues.settings
        children = [queues.host.find(name) for name in dict.fromkeys(names)]
        if not children:
            raise Misuse("no queue was named", "name at least one")
        bytes_max = queues.storage.message_bytes_max
        many = [checked_body(bodies, bytes_max)] if isinstance(bodies, bytes) else bodies
        count, epoch = 0, Epoch(0)
        for contents in pieces(many, bytes_max, settings.put_count_max, settings.put_bytes_max):
            publication = publication_of(queues, contents, ttl, priority, persistent, NOWHERE, len(children))
            epoch = max(epoch, queues.traffic.put(publication, children))
            count += len(contents)
        return count, epoch

    def wait(self, epoch: Epoch) -> None:
        self.queues.storage.wait(epoch)

    def when_durable(self, epoch: Epoch) -> Future[None]:
        return when_durable(self.queues, epoch)


def _ms(name: str, seconds: float | None) -> int | None:
    told: object = seconds
    if told is not None and not (isinstance(told, int | float) and told >= 0):
        raise Misuse(f"{name} cannot be {told!r}", "seconds, as a number")
    return None if seconds is None else round(seconds * _MS)


def _overflow(told: str) -> Overflow:
    if told not in tuple(Overflow):
        raise Misuse(f"overflow cannot be {told!r}", f"it is {' or '.join(Overflow)}")
    return Overflow(told)
