"""A queue in your program: durable, ordered, acknowledged, and never larger in memory than it may be.

    jobs = db.queue("jobs")
    jobs.put(b"resize 7")                       durable when it returns
    with jobs.get(timeout=1) as message:        acknowledged at the end of the block, ready again if it raises
        work(message.body)

    jobs.put_many(bodies)                       one sync for all of them
    batch = jobs.get_many(1000)                 a list of bodies, no object for each message
    batch.ack()

What was got is nobody else's until it is acknowledged (`ack`) or given back (`nack`). An acknowledgement does not wait
for the disk: one that a crash takes back means one more delivery, flagged `redelivered`; `sync` waits for it.

Any thread may use a queue, and several may share one. Not here: coroutines (queues_async), what happens underneath
(broker/traffic).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future

from warren.app.bodies import checked_body, pieces
from warren.app.messages import DeliveredMessages, DeliveryTag, Message, MessageBatch, Settled
from warren.app.publishing import publication_of, when_durable
from warren.app.queue_assembly import OpenQueues
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.base.runs import Origin
from warren.base.threads import Threads
from warren.broker.consumers import Delivery
from warren.broker.errors import NotYours
from warren.broker.supervisor import QueueHandle
from warren.broker.traffic import QueueApi, SettleCall

__all__ = ["DeliveryTag", "Message", "MessageBatch", "Queue"]


class Queue:
    """Handed out by `db.queue(name)`."""

    def __init__(self, queues: OpenQueues, child: QueueHandle) -> None:
        self._queues = queues
        self._traffic = queues.traffic
        self.child = child
        self._origin = Origin(routing_key=child.name)

    @property
    def traffic(self) -> QueueApi:
        """Raises in a forked child."""
        self._queues.check()
        return self._traffic

    @property
    def threads(self) -> Threads:
        return self._queues.threads

    @property
    def name(self) -> str:
        return self.child.name

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"

    # -- putting -------------------------------------------------------------------------------------------------

    def put(self, body: bytes, *, ttl: float | None = None, priority: int = 0, persistent: bool = True) -> None:
        """One message; durable when it returns. `ttl`: seconds after which it is not delivered any more."""
        self._wait(self._put([checked_body(body, self._bytes_max)], ttl, priority, persistent))

    def put_many(
        self, bodies: Iterable[bytes], *, ttl: float | None = None, priority: int = 0, persistent: bool = True
    ) -> int:
        """Many messages, durable when it returns; how many. Up to `put_count_max` and `put_bytes_max` (QueueSettings)
        they are one session: all of them or none. More than that are put piece by piece."""
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
        """The next message; None if none comes within `timeout` seconds (None: wait as long as it takes). Who waits is
        served in the order of asking."""
        delivery = self._delivered(1, timeout)
        return None if delivery is None else Message.of(self, delivery)

    def get_many(self, count: int, timeout: float | None = 0.0, *, bytes_max: int | None = None) -> MessageBatch:
        """Up to so many messages, as soon as there is one; an empty batch if none comes. `bytes_max`: no more than so
        many bytes, unless the first message alone has more."""
        if count < 1:
            raise Misuse(f"{count} messages cannot be got", "ask for one at least")
        return MessageBatch(self, self._delivered(count, timeout, bytes_max))

    def __iter__(self) -> Iterator[Message]:
        """Messages until none is ready. Acknowledge each."""
        while (message := self.get()) is not None:
            yield message

    def browse(self) -> Iterator[bytes]:
        """Bodies of what is ready, in order, without taking them. Ends early if the queue changes meanwhile."""
        for contents in self.traffic.browse(self.child):
            yield from contents

    # -- settling ------------------------------------------------------------------------------------------------

    def ack(self, what: Settled) -> int:
        """Done with a message or a batch, which may be named by its tag; how many messages that were. Does not wait for
        the disk."""
        return self.traffic.ack(self.child, self._settling(what))

    def nack(self, what: Settled, requeue: bool = True) -> int:
        """Not done with it. Ready again where it stood, or with `requeue=False` gone: to the dead-letter queue, if this
        one has one."""
        settling = self._settling(what)
        return (self.traffic.requeue if requeue else self.traffic.reject)(self.child, settling)

    def sync(self) -> None:
        """Return when everything that was done to this queue so far is durable, acknowledgements too."""
        self._wait(self.child.epoch)

    # -- all of it -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many messages are ready; at once, however many that is."""
        return self.traffic.length(self.child)

    def __bool__(self) -> bool:
        """A queue is there, also when it is empty."""
        return True

    def purge(self) -> int:
        """Let go of everything that is ready; how many. Durable when it returns."""
        count, epoch = self.traffic.purge(self.child)
        self._wait(epoch)
        return count

    def delete(self) -> int:
        """The queue and everything in it; how many messages that were. Durable when it returns."""
        return self._queues.host.delete(self.child)

    def facts(self) -> Mapping[str, int | float | str]:
        """What an operator may want to know."""
        self._queues.check()
        with self.child.lock:
            return self.child.serving().backing.facts()

    # -- helpers -------------------------------------------------------------------------------------------------

    @property
    def _bytes_max(self) -> int:
        return self._queues.storage.message_bytes_max

    def _put(self, contents: list[bytes], ttl: float | None, priority: int, persistent: bool) -> Epoch:
        publication = publication_of(self._queues, contents, ttl, priority, persistent, self._origin)
        return self.traffic.put(publication, [self.child])

    def _put_many(
        self, bodies: Iterable[bytes], ttl: float | None, priority: int, persistent: bool
    ) -> tuple[int, Epoch]:
        count, epoch, settings = 0, Epoch(0), self._queues.settings
        for contents in pieces(bodies, self._bytes_max, settings.put_count_max, settings.put_bytes_max):
            epoch = max(epoch, self._put(contents, ttl, priority, persistent))
            count += len(contents)
        return count, epoch

    def _delivered(self, count: int, timeout: float | None, bytes_max: int | None = None) -> Delivery | None:
        return self.traffic.get(self.child, count, bytes_max, timeout)

    def _settling(self, what: Settled) -> SettleCall:
        if isinstance(what, DeliveryTag):
            queue, settling = what.queue, SettleCall(what.life, [(what.number, what.number + 1)])
        elif isinstance(what, DeliveredMessages):
            queue, settling = what.queue_id, what.settling()
        else:
            raise Misuse(f"a message, a batch or a tag is settled, not a {type(what).__name__}")
        if queue != self.child.id:
            raise NotYours(f"queue {self.name!r} did not deliver this message", "settle it with the queue it came from")
        return settling

    def _wait(self, epoch: Epoch) -> None:
        self._queues.storage.wait(epoch)
