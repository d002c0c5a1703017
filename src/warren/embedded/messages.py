"""Message bodies of an embedded queue: checked on the way in, delivered as one message or one batch on the way out.

* In: bodies are checked and split into the sizes of one session. A thousand bodies take a few microseconds: types and
  sizes are checked in bulk, and one by one only to name the wrong one.
* Out: a message or a batch is settled once, by `ack` or `nack`. As a `with` block it is acknowledged at the end of the
  block, and requeued if the block raises, unless the block has settled it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeAlias

from warren.amqp.content import body_of
from warren.base.errors import Misuse, Refused
from warren.base.ids import QueueId
from warren.base.messages import RAW, Slice
from warren.broker.consumers import Delivery
from warren.broker.errors import NotYours
from warren.broker.queue_api import SettleCall
from warren.queues.backing_queue import TagRange


def plain_bodies(slice_: Slice) -> list[bytes]:
    """The bodies of a slice; of a message published over AMQP only the body."""
    assert slice_.contents is not None, "a fetched slice has contents"
    if slice_.run.origin.content_kind == RAW:
        return slice_.contents
    return [body_of(content) for content in slice_.contents]


def checked_body(body: bytes, bytes_max: int) -> bytes:
    if not isinstance(body, bytes):
        raise Misuse(f"a message is bytes, not {type(body).__name__}", "encode it: text.encode()")
    if len(body) > bytes_max:
        raise Refused(
            f"a message of {len(body)} bytes: at most {bytes_max} are taken",
            "put its parts, or raise `max_message_size` (MessageStoreSettings)",
        )
    return body


def pieces(bodies: Iterable[bytes], bytes_max: int, count_max: int, piece_bytes_max: int) -> Iterator[list[bytes]]:
    """Pieces of at most `count_max` messages and `piece_bytes_max` bytes, or one larger message. A list is checked as a
    whole before the first piece; an iterator as far as it was read."""
    if isinstance(bodies, bytes | bytearray | memoryview | str):
        raise Misuse("put_many takes a list of bytes, not a single one", "use put() for one")
    if isinstance(bodies, list | tuple):
        bodies = list(bodies)  # a copy: the caller may change the list meanwhile
        if _checked_bytes(bodies, bytes_max) <= piece_bytes_max and len(bodies) <= count_max:
            if bodies:
                yield bodies
            return
    left = iter(bodies)
    while piece := list(islice(left, count_max)):
        if _checked_bytes(piece, bytes_max) <= piece_bytes_max:
            yield piece
        else:
            yield from _cut(piece, piece_bytes_max)


def _checked_bytes(bodies: list[bytes], bytes_max: int) -> int:
    """Their total size. If the total is within the limit of one body, each body is."""
    size_bytes = sum(list(map(len, bodies))) if list(map(type, bodies)).count(bytes) == len(bodies) else bytes_max + 1
    if size_bytes > bytes_max:
        for body in bodies:
            checked_body(body, bytes_max)
        size_bytes = sum(map(len, bodies))
    return size_bytes


def _cut(bodies: list[bytes], piece_bytes_max: int) -> Iterator[list[bytes]]:
    begin, size_bytes = 0, 0
    for at, body in enumerate(bodies):
        if size_bytes + len(body) > piece_bytes_max and at > begin:
            yield bodies[begin:at]
            begin, size_bytes = at, 0
        size_bytes += len(body)
    yield bodies[begin:]


class DeliveryTag(NamedTuple):
    """Identifies a delivered message until it is settled: plain data that can be stored. A message that is requeued and
    delivered again has the same tag."""

    queue: QueueId
    incarnation: int
    number: int


Settled: TypeAlias = "DeliveredMessages | DeliveryTag"


class Settler(Protocol):
    """The queue that delivered a message."""

    @property
    def name(self) -> str: ...

    def ack(self, what: Settled) -> int: ...

    def nack(self, what: Settled, requeue: bool = True) -> int: ...


class DeliveredMessages:
    """Common part of a message and a batch."""

    __slots__ = ("_incarnation", "_is_settled", "_queue", "_tags", "queue_id")

    def __init__(self, queue: Settler, queue_id: QueueId, incarnation: int, tags: list[TagRange]) -> None:
        self._queue = queue
        self.queue_id = queue_id
        self._incarnation = incarnation
        self._tags = tags
        self._is_settled = not tags

    def ack(self) -> None:
        """Acknowledge."""
        if self._tags:
            self._queue.ack(self)

    def nack(self, requeue: bool = True) -> None:
        """Requeue, or with `requeue=False` drop (to the dead-letter queue, if there is one)."""
        if self._tags:
            self._queue.nack(self, requeue)

    @property
    def is_settled(self) -> bool:
        return self._is_settled

    def settling(self) -> SettleCall:
        """The call that settles its tags; allowed once. Used by the queue."""
        if self._is_settled and self._tags:
            raise NotYours(f"queue {self._queue.name!r}: this was settled before", "settle each message once")
        self._is_settled = True
        return SettleCall(self._incarnation, self._tags)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_settled:
            if error is None:
                self.ack()
            else:
                self.nack()


class Message(DeliveredMessages):
    """One delivered message, not settled yet."""

    __slots__ = ("body", "redelivered")

    def __init__(
        self, queue: Settler, queue_id: QueueId, incarnation: int, tag: int, body: bytes, redelivered: bool
    ) -> None:
        super().__init__(queue, queue_id, incarnation, [(tag, tag + 1)])
        self.body = body
        self.redelivered = redelivered  # it was, or may have been, delivered before

    @classmethod
    def of(cls, queue: Settler, delivery: Delivery) -> Message:
        [fetched] = delivery.fetched
        [body] = plain_bodies(fetched.slice)
        return cls(queue, delivery.queue, delivery.incarnation, fetched.tag, body, fetched.is_redelivered)

    @property
    def tag(self) -> DeliveryTag:
        return DeliveryTag(self.queue_id, self._incarnation, self._tags[0][0])

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 32 else self.body[:32] + b"..."
        return f"<message {body!r}{', redelivered' if self.redelivered else ''}>"


class MessageBatch(DeliveredMessages):
    """Messages delivered together: their bodies in a list, settled together."""

    __slots__ = ("bodies", "fetched")

    def __init__(self, queue: Settler, delivery: Delivery | None) -> None:
        fetched = delivery.fetched if delivery is not None else []
        id_, incarnation = (delivery.queue, delivery.incarnation) if delivery is not None else (QueueId(0), 0)
        super().__init__(queue, id_, incarnation, [each.tags for each in fetched])
        self.fetched = fetched
        self.bodies: list[bytes] = []
        for each in fetched:
            self.bodies += plain_bodies(each.slice)

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.bodies)

    def __repr__(self) -> str:
        return f"<batch of {len(self)} messages>"

    @property
    def redelivered(self) -> list[bool]:
        """For each message whether it was, or may have been, delivered before."""
        return [each.is_redelivered for each in self.fetched for _ in range(len(each.slice))]

    @property
    def tags(self) -> list[DeliveryTag]:
        """For each message, to settle some of them alone."""
        ranges = (each.tags for each in self.fetched)
        return [
            DeliveryTag(self.queue_id, self._incarnation, number)
            for first, stop in ranges
            for number in range(first, stop)
        ]
