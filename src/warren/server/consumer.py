"""Server consumer: delivers messages of a queue as frames, as far as its prefetch and its client's send buffer allow.

    room      credits: prefetch of the consumer and of its channel; none while the client does not read
    take      delivery tags, a range of unacked messages, one buffer of frames for many messages

It implements `broker.consumers.Consumer`, and is called in the event loop with the queue's lock held. A message that a
program in this process has put is a plain body: it gets a content header here.

`SharedPrefetch` (`basic.qos` with `global`): one limit on the unacked deliveries of a channel's consumers.

    room ──▶ limit reached: the consumer joins the waiting line
    ack  ──▶ free credits are granted to the line, first come first served ──▶ those queues deliver in the next batch
                                             └──▶ after that batch: unused credits are granted again

A queue with messages cannot take all credits while another one waits: a grant is reserved for one batch. A consumer
without acknowledgements takes no credit, but waits while there is none, as in RabbitMQ. Messages of `basic.get` do not
count.

Invariants
* `unacked` and the grants change in the loop's thread only; other threads may call `room`, which adds to the line by
  one atomic operation.
* The cost of an ack does not grow with the number of consumers.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from warren.amqp.content import PERSISTENT, TRANSIENT, Properties, properties_of, with_properties, write_content
from warren.amqp.kernels import emit_deliveries
from warren.amqp.types import Long
from warren.base.errors import Damage, WarrenError
from warren.base.messages import RAW, Slice
from warren.broker.queue import DeliveryCounts
from warren.broker.queue_handle import QueueHandle
from warren.broker.request_batch import Settlement
from warren.queues.backing_queue import Fetched

if TYPE_CHECKING:
    from warren.server.channel import ServerChannel


_LOG = logging.getLogger(__name__)
AT_ONCE_MAX = 4096  # messages per delivery to a consumer without a prefetch, so that others are served


class DeliverySource(NamedTuple):
    """Queue and consumer of a delivery."""

    handle: QueueHandle
    incarnation: int
    consumer: ServerConsumer | None  # None: `basic.get`


class ServerConsumer:
    __slots__ = (
        "_holder",
        "_on_cancelled",
        "arguments",
        "channel",
        "handle",
        "is_auto_ack",
        "is_exclusive",
        "prefetch",
        "priority",
        "raw_tag",
        "tag",
        "unacked",
    )

    def __init__(
        self,
        channel: ServerChannel,
        handle: QueueHandle,
        tag: str,
        is_auto_ack: bool,
        is_exclusive: bool,
        priority: int,
        on_cancelled: Callable[[ServerConsumer], None],
        arguments: Mapping[str, object],
    ) -> None:
        self.channel = channel
        self.handle = handle
        self.tag = tag
        self.raw_tag = tag.encode()
        self.is_auto_ack = is_auto_ack
        self.is_exclusive = is_exclusive
        self.priority = priority
        self.arguments = arguments
        self.prefetch = channel.prefetch
        self.unacked = 0
        self._holder = DeliverySource(handle, 0, self)
        self._on_cancelled = on_cancelled

    def room(self) -> int:
        channel = self.channel
        if not channel.may_deliver():
            return 0
        is_limited = self.prefetch and not self.is_auto_ack
        room = self.prefetch - self.unacked if is_limited else AT_ONCE_MAX
        if room > 0 and channel.shared_prefetch.limit:
            shared = channel.shared_prefetch.room(self)
            return room if self.is_auto_ack and shared else min(room, shared)
        return room

    def room_bytes(self) -> int:
        return self.channel.connection.room_bytes()

    def take(self, incarnation: int, fetched: list[Fetched]) -> None:
        if self._holder.incarnation != incarnation:
            self._holder = DeliverySource(self.handle, incarnation, self)
        for each in fetched:
            self._take(each)

    def _take(self, each: Fetched) -> None:
        channel, count = self.channel, len(each.slice)
        try:
            data = self._frames(channel.next_tag, each)
        except Damage as error:  # valid when it was published: damaged since, cannot be delivered
            if count == 1:
                self._refuse(each, error)
            else:
                half, others = each.slice.split(count // 2)  # it is found by halves: the others are delivered
                self._take(each._replace(slice=half))
                self._take(Fetched(each.tag + count // 2, others, each.is_redelivered))
            return
        except Exception as error:  # a defect: the messages are requeued when the connection is closed
            channel.connection.fail_soon(error)
            data = b""
        first = channel.next_tags(count)
        if not self.is_auto_ack:
            channel.unacked.add(first, count, each.tag, self._holder)
            self.unacked += count
            channel.shared_prefetch.delivered(self, count)
        channel.connection.write(data)
        channel.counts_delivery(count, self.is_auto_ack, each.is_redelivered)
        self.handle.counts.add_delivered(count, self.is_auto_ack, each.is_redelivered)

    def _refuse(self, each: Fetched, error: Damage) -> None:
        """Reject the messages, unless they are acknowledged already."""
        _LOG.error("delivery failed", extra={"facts": {"queue": self.handle.name, "why": error}})
        if not self.is_auto_ack:
            self.channel.connection.served.batch.settle(
                self.handle, Settlement.REJECT, self._holder.incarnation, each.tags
            )

    def _frames(self, first: int, each: Fetched) -> bytes:
        channel, origin = self.channel, each.slice.run.origin
        frame_max = channel.connection.frame_max
        contents = contents_of(each.slice, channel.number, frame_max)
        if each.is_redelivered and self.handle.queue is not None and len(self.handle.queue.delivery_counts):
            contents = _with_counts(contents, each.tag, self.handle.queue.delivery_counts)
        redelivered = len(contents) if each.is_redelivered else 0
        exchange, key = origin.exchange.encode(), origin.routing_key.encode("utf-8", "surrogateescape")
        return emit_deliveries(channel.number, self.raw_tag, exchange, key, first, redelivered, contents, frame_max)

    def cancelled(self, reason: WarrenError) -> None:
        self._on_cancelled(self)


def contents_of(slice_: Slice, channel: int, frame_max: int) -> list[bytes]:
    """Messages as AMQP contents."""
    contents = slice_.contents
    assert contents is not None, "fetched slices have contents"
    if slice_.run.origin.content_kind != RAW:
        return contents
    properties = Properties(delivery_mode=PERSISTENT if slice_.run.is_persistent else TRANSIENT)
    return [write_content(properties, body, channel, frame_max) for body in contents]


def _with_counts(contents: list[bytes], tag: int, counts: DeliveryCounts) -> list[bytes]:
    return [
        with_delivery_count(content, requeues) if (requeues := counts.of(at)) else content
        for at, content in enumerate(contents, tag)
    ]


def with_delivery_count(content: bytes, requeues: int) -> bytes:
    """With the header `x-delivery-count`, as a quorum queue of RabbitMQ sends it. The stored message is unchanged."""
    properties = properties_of(content)
    headers = {**(properties.headers or {}), "x-delivery-count": Long(requeues)}
    return with_properties(content, replace(properties, headers=headers))


class SharedPrefetch:
    __slots__ = (
        "_call_soon",
        "_granted",
        "_grants",
        "_is_round_open",
        "_schedule_delivery",
        "_waiting",
        "limit",
        "unacked",
    )

    def __init__(
        self,
        schedule_delivery: Callable[[ServerConsumer], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`schedule_delivery`: serve the consumer's queue in the next batch. `call_soon`: call behind that batch."""
        self.limit = 0  # 0: none
        self.unacked = 0  # deliveries of consumers, whether there is a limit or not
        self._schedule_delivery = schedule_delivery
        self._call_soon = call_soon
        self._waiting: OrderedDict[ServerConsumer, None] = OrderedDict()
        self._grants: dict[ServerConsumer, int] = {}
        self._granted = 0
        self._is_round_open = False

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self._waiting.clear()
        self._drop_grants()

    def room(self, consumer: ServerConsumer) -> int:
        """Credits that this consumer may use now. Called for consumers of queues with ready messages."""
        room = self._room(consumer)
        if room <= 0:
            self._waiting[consumer] = None
            room = self._room(consumer)  # credits may have been freed before this entry was added
        return max(room, 0)

    def delivered(self, consumer: ServerConsumer, count: int) -> None:
        self.unacked += count
        if consumer in self._grants:
            used = min(count, self._grants[consumer])
            self._grants[consumer] -= used
            self._granted -= used

    def settled(self, count: int) -> None:
        self.unacked -= count

    def remove(self, consumer: ServerConsumer) -> None:
        self._waiting.pop(consumer, None)
        self._granted -= self._grants.pop(consumer, 0)
        self.grant()

    def grant(self) -> None:
        """Reserve free credits for waiting consumers, an equal share for each."""
        free = self.limit - self.unacked - self._granted
        if free <= 0 or not self._waiting:
            return
        share = max(free // len(self._waiting), 1)
        while free > 0 and self._waiting:
            consumer, _ = self._waiting.popitem(last=False)
            credits_ = min(share, free)
            self._grants[consumer] = self._grants.get(consumer, 0) + credits_
            self._granted += credits_
            free -= credits_
            self._schedule_delivery(consumer)
        if not self._is_round_open:
            self._is_round_open = True
            self._call_soon(self._end_round)

    def _end_round(self) -> None:
        self._is_round_open = False
        self._drop_grants()
        self.grant()

    def _drop_grants(self) -> None:
        self._grants.clear()
        self._granted = 0

    def _room(self, consumer: ServerConsumer) -> int:
        return self.limit - self.unacked - self._granted + self._grants.get(consumer, 0)
