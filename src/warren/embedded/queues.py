"""Queues of an embedded program: durable, ordered, acknowledged, with bounded memory.

    jobs = db.queue("jobs")
    jobs.put(b"resize 7")                       durable when it returns
    with jobs.get(timeout=1) as message:        acknowledged at the end of the block, ready again if it raises
        work(message.body)

    jobs.put_many(bodies)                       one sync for all of them
    batch = jobs.get_many(1000)                 a list of bodies, no object for each message
    batch.ack()

A delivered message belongs to its receiver until `ack` or `nack`. An acknowledgement does not wait for the disk: one
that is lost in a crash means one more delivery, flagged `redelivered`; `sync` waits for it. Any thread may use a queue,
and threads may share one.

`OpenQueueNames` has the queues of a database by name; `db.queue` and its siblings call it:

    declare    the queue of this name, created if it is missing; refused if it exists with other arguments
    find       the queue of this name, with any arguments; refused if there is none
    publish    the same messages to several queues: to all of them or none, stored once

Elsewhere: coroutines (queues_async), the implementation (broker/queue_api).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypedDict

from warren.base.environment import wall_ms
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.base.messages import NOWHERE, Origin, Publication
from warren.base.threads import Threads
from warren.broker.consumers import Delivery
from warren.broker.errors import NotYours
from warren.broker.queue_api import QueueApi, SettleCall
from warren.broker.queue_arguments import Overflow, QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.embedded.messages import (
    DeliveredMessages,
    DeliveryTag,
    Message,
    MessageBatch,
    Settled,
    checked_body,
    pieces,
)
from warren.embedded.queue_assembly import OpenQueues

_MS = 1000
_PRIORITY_MAX = 255


def publication_of(
    queues: OpenQueues,
    contents: list[bytes],
    ttl: float | None,
    priority: int,
    persistent: bool,
    origin: Origin,
    fan_out: int = 1,
) -> Publication:
    now_ms = wall_ms(queues.clock)
    if ttl is not None and ttl < 0:
        raise Misuse(f"a message cannot expire {-ttl} seconds ago", "give a ttl in seconds from now")
    if not 0 <= priority <= _PRIORITY_MAX:
        raise Misuse(f"{priority} is no priority", f"0 … {_PRIORITY_MAX}")
    expires_ms = 0 if ttl is None else now_ms + round(ttl * _MS)
    return Publication(contents, persistent, expires_ms, now_ms, priority, origin, fan_out)


def when_durable(queues: OpenQueues, epoch: Epoch) -> Future[None]:
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()  # running: it cannot be cancelled

    def on_durable(error: BaseException | None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    queues.confirms.add(epoch, on_durable)
    return future


class Queue:
    """Returned by `db.queue(name)`."""

    def __init__(self, queues: OpenQueues, handle: QueueHandle) -> None:
        self._queues = queues
        self._queue_api = queues.queue_api
        self.handle = handle
        self._origin = Origin(routing_key=handle.name)

    @property
    def queue_api(self) -> QueueApi:
        """Raises in a forked child."""
        self._queues.check()
        return self._queue_api

    @property
    def threads(self) -> Threads:
        return self._queues.threads

    @property
    def name(self) -> str:
        return self.handle.name

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"

    # -- putting -------------------------------------------------------------------------------------------------

    def put(self, body: bytes, *, ttl: float | None = None, priority: int = 0, persistent: bool = True) -> None:
        """One message; durable when it returns. `ttl`: seconds until it expires."""
        self._wait(self._put([checked_body(body, self._bytes_max)], ttl, priority, persistent))

    def put_many(
        self, bodies: Iterable[bytes], *, ttl: float | None = None, priority: int = 0, persistent: bool = True
    ) -> int:
        """Many messages, durable when it returns; their number. Up to `put_count_max` and `put_bytes_max` of
        `QueueSettings` they are one session: all of them or none. More are put piece by piece."""
        count, epoch = self._put_many(bodies, ttl, priority, persistent)
        self._wait(epoch)
        return count

    def put_later(
        self, body: bytes, *, ttl: float | None = None, priority: int = 0, persistent: bool = True
    ) -> Future[None]:
        """One message, without waiting for the disk: the future is done when it is durable."""
        return when_durable(self._queues, self._put([checked_body(body, self._bytes_max)], ttl, priority, persistent))

    def put_many_later(
        self, bodies: Iterable[bytes], *, ttl: float | None = None, priority: int = 0, persistent: bool = True
    ) -> Future[None]:
        return when_durable(self._queues, self._put_many(bodies, ttl, priority, persistent)[1])

    # -- getting -------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = 0.0) -> Message | None:
        """The next message; None if none arrives within `timeout` seconds (None: no limit). Waiting getters are served
        in the order of their calls."""
        delivery = self._delivered(1, timeout)
        return None if delivery is None else Message.of(self, delivery)

    def get_many(self, count: int, timeout: float | None = 0.0, *, bytes_max: int | None = None) -> MessageBatch:
        """Up to `count` messages, as soon as there is one; an empty batch if none arrives. `bytes_max`: limit of their
        bytes, unless the first message alone has more."""
        if count < 1:
            raise Misuse(f"get_many of {count} messages", "get at least one")
        return MessageBatch(self, self._delivered(count, timeout, bytes_max))

    def __iter__(self) -> Iterator[Message]:
        """Messages until none is ready. Acknowledge each."""
        while (message := self.get()) is not None:
            yield message

    def browse(self) -> Iterator[bytes]:
        """Bodies of ready messages, in order, without removing them. Ends early if the queue changes meanwhile."""
        for contents in self.queue_api.browse(self.handle):
            yield from contents

    # -- settling ------------------------------------------------------------------------------------------------

    def ack(self, what: Settled) -> int:
        """Acknowledge a message, a batch or a tag; the number of messages. Does not wait for the disk."""
        return self.queue_api.ack(self.handle, self._settling(what))

    def nack(self, what: Settled, requeue: bool = True) -> int:
        """Requeue at its old position, or with `requeue=False` drop: to the dead-letter queue, if there is one."""
        settling = self._settling(what)
        return (self.queue_api.requeue if requeue else self.queue_api.reject)(self.handle, settling)

    def sync(self) -> None:
        """Wait until all earlier operations on this queue are durable, acknowledgements too."""
        self._wait(self.handle.epoch)

    # -- all of it -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of ready messages; constant time."""
        return self.queue_api.length(self.handle)

    def __bool__(self) -> bool:
        """True also for an empty queue."""
        return True

    def purge(self) -> int:
        """Remove all ready messages; their number. Durable when it returns."""
        count, epoch = self.queue_api.purge(self.handle)
        self._wait(epoch)
        return count

    def delete(self) -> int:
        """Delete the queue with its messages; their number. Durable when it returns."""
        return self._queues.vhost.delete_queue(self.handle)

    def facts(self) -> Mapping[str, int | float | str]:
        """Figures of the backing queue, for operators."""
        self._queues.check()
        with self.handle.lock:
            return self.handle.serving().backing.facts()

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def _bytes_max(self) -> int:
        return self._queues.storage.message_bytes_max

    def _put(self, contents: list[bytes], ttl: float | None, priority: int, persistent: bool) -> Epoch:
        publication = publication_of(self._queues, contents, ttl, priority, persistent, self._origin)
        return self.queue_api.put(publication, [self.handle])

    def _put_many(
        self, bodies: Iterable[bytes], ttl: float | None, priority: int, persistent: bool
    ) -> tuple[int, Epoch]:
        count, epoch, settings = 0, Epoch(0), self._queues.settings
        for contents in pieces(bodies, self._bytes_max, settings.put_count_max, settings.put_bytes_max):
            epoch = max(epoch, self._put(contents, ttl, priority, persistent))
            count += len(contents)
        return count, epoch

    def _delivered(self, count: int, timeout: float | None, bytes_max: int | None = None) -> Delivery | None:
        return self.queue_api.get(self.handle, count, bytes_max, timeout)

    def _settling(self, what: Settled) -> SettleCall:
        if isinstance(what, DeliveryTag):
            queue, settling = what.queue, SettleCall(what.incarnation, [(what.number, what.number + 1)])
        elif isinstance(what, DeliveredMessages):
            queue, settling = what.queue_id, what.settling()
        else:
            raise Misuse(f"a message, a batch or a tag is settled, not a {type(what).__name__}")
        if queue != self.handle.id:
            raise NotYours(f"queue {self.name!r} did not deliver this message", "settle it with the queue it came from")
        return settling

    def _wait(self, epoch: Epoch) -> None:
        self._queues.storage.log.wait(epoch)


class QueueOptions(TypedDict, total=False):
    """Options of `db.queue`."""

    durable: bool  # True: the queue and its persistent messages survive a stop
    max_priority: int | None  # highest priority; higher ones are delivered first
    message_ttl: float | None  # seconds until a message expires
    max_length: int | None  # most ready messages …
    max_length_bytes: int | None  # … or bytes of them
    overflow: str  # above the limits: "drop-head" (default) or "reject-publish"
    dead_letter: str | None  # queue that receives expired, dropped and rejected messages
    expires: float | None  # seconds without a get after which the queue is deleted
    backing: str | None  # kind of backing queue


class OpenQueueNames:
    """The queues of one open database, by name."""

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
        return Queue(self.queues, self.queues.vhost.declare_queue(name, options.get("durable", True), arguments))

    def find(self, name: str) -> Queue:
        return Queue(self.queues, self.queues.vhost.find_queue(name))

    def names(self) -> list[str]:
        return self.queues.vhost.queue_names()

    def publish(
        self, bodies: bytes | Iterable[bytes], names: Iterable[str], ttl: float | None, priority: int, persistent: bool
    ) -> tuple[int, Epoch]:
        """The number of messages, and the epoch to wait for."""
        queues, settings = self.queues, self.queues.settings
        handles = [queues.vhost.find_queue(name) for name in dict.fromkeys(names)]
        if not handles:
            raise Misuse("no queue was named", "name at least one")
        bytes_max = queues.storage.message_bytes_max
        many = [checked_body(bodies, bytes_max)] if isinstance(bodies, bytes) else bodies
        count, epoch = 0, Epoch(0)
        for contents in pieces(many, bytes_max, settings.put_count_max, settings.put_bytes_max):
            publication = publication_of(queues, contents, ttl, priority, persistent, NOWHERE, len(handles))
            epoch = max(epoch, queues.queue_api.put(publication, handles))
            count += len(contents)
        return count, epoch

    def wait(self, epoch: Epoch) -> None:
        self.queues.storage.log.wait(epoch)

    def when_durable(self, epoch: Epoch) -> Future[None]:
        return when_durable(self.queues, epoch)


def _ms(name: str, seconds: float | None) -> int | None:
    value: object = seconds
    if value is not None and not (isinstance(value, int | float) and value >= 0):
        raise Misuse(f"{name} cannot be {value!r}", "seconds, as a number")
    return None if seconds is None else round(seconds * _MS)


def _overflow(name: str) -> Overflow:
    if name not in tuple(Overflow):
        raise Misuse(f"overflow cannot be {name!r}", f"it is {' or '.join(Overflow)}")
    return Overflow(name)
