"""Server channel: publishes, deliveries, and the unacked messages of its client.

    publishes ──▶ target (exchange and key, looked up once) ──▶ request batch       or returned, if there is no route
    acks      ──▶ unacked ──▶ request batch
    batch     ──▶ consumers ──▶ connection

Everything runs in the event loop. Requests are collected in the vhost's batch, and executed together; a channel in
confirm mode gets its confirms when the batch is durable.

Invariants
* Tags of publishes and of deliveries only grow.
* A message is returned before it is confirmed.
* A delivery that is not acknowledged within the consumer timeout closes the channel. Its age is known from periodic
  checks, not from a time for each delivery; only the oldest delivery is checked, as in RabbitMQ.
* A closed channel has no unacked messages and no consumers.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from warren.amqp.connection import AcksReceived, PublishesReceived
from warren.amqp.content import PERSISTENT
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.kernels import ACK, HAS_DIRECT_REPLY, HAS_EXPIRATION, HAS_HEADERS, HAS_USER_ID, NACK
from warren.amqp.methods import BasicPublish, BasicReturn
from warren.broker.auth.permissions import Access
from warren.broker.request_batch import Route, Settlement
from warren.broker.vhost import Client
from warren.server.consumer import DeliverySource, ServerConsumer, SharedPrefetch
from warren.server.direct_reply import NAME_PREFIX, ReplyConsumer
from warren.server.publish import OpenedMessages, PublishTarget, special_of
from warren.server.unacked import OldestDelivery, Unacked, UnackedRange, UnknownTag

if TYPE_CHECKING:
    from warren.server.connection import ServerConnection

_LOG = logging.getLogger(__name__)
TIMEOUT_STEPS: Final = 32  # a delivery times out late by its consumer timeout divided by this, at most
_SETTLED: Final = struct.Struct(">BHIHHQBB")  # basic.ack and basic.nack have the same layout
_SPECIAL: Final = HAS_HEADERS | HAS_EXPIRATION | HAS_USER_ID | HAS_DIRECT_REPLY
_IDS: Final = (BasicPublish.SPEC.class_id, BasicPublish.SPEC.method_id)


class ServerChannel:
    __slots__ = (
        "_refused",
        "client",
        "confirmed",
        "connection",
        "consumers",
        "is_confirming",
        "is_open",
        "next_tag",
        "number",
        "oldest_delivery",
        "pending_gets",
        "prefetch",
        "published",
        "reply_consumer",
        "shared_prefetch",
        "unacked",
    )

    def __init__(self, connection: ServerConnection, number: int, client: Client) -> None:
        self.connection = connection
        self.number = number
        self.client = client
        self.is_open = True
        self.is_confirming = False
        self.published = 0  # tag of the last message, in confirm mode
        self.confirmed = 0
        self.prefetch = 0  # of new consumers; 0: no limit
        self.shared_prefetch = SharedPrefetch(self._schedule_delivery, connection.server.loop.call_soon)
        self.consumers: dict[str, ServerConsumer] = {}
        self.reply_consumer: ReplyConsumer | None = None
        self.unacked: Unacked[DeliverySource] = Unacked()
        self.next_tag = 1  # of deliveries
        self.oldest_delivery = OldestDelivery()
        self.pending_gets = 0  # in the current batch
        self._refused: set[int] = set()  # nacked tags that `confirm` has not passed yet

    def declared(self, queue: str) -> None:
        """The queue of later methods that name none."""
        self.client = replace(self.client, last_queue=queue)

    def renew_access(self, access: Access) -> None:
        self.client = replace(self.client, access=access)

    # -- messages in ---------------------------------------------------------------------------------------------

    def publishes(self, event: PublishesReceived) -> None:
        self.run_pending_gets()
        connection, contents = self.connection, event.contents
        target = connection.targets.find(event.publish, event.frame)
        connection.is_publisher = True
        counts = connection.counts
        counts.received += len(contents)
        first = 0
        if self.is_confirming:
            first = self.published + 1
            self.published += len(contents)
            counts.received_confirm += len(contents)
            connection.served.confirms(self, first)
        traits = event.traits
        if traits & _SPECIAL:
            reply_name = self.reply_consumer.name if self.reply_consumer is not None else ""
            for part in special_of(target, contents, traits, connection.served.routes, connection.clock, reply_name):
                self._publish(target, first, part.route, part.contents, traits, part)
                first += len(part.contents) if first else 0
        else:
            self._publish(target, first, target.route, contents, traits, None)

    def _publish(
        self,
        target: PublishTarget,
        first: int,
        route: Route,
        contents: list[bytes],
        traits: int,
        special: OpenedMessages | None,
    ) -> None:
        counts, count = self.connection.counts, len(contents)
        if route.handles:
            counts.routed += count
            expires_ms = special.expires_ms if special is not None else 0
            is_persistent, priority = traits & 0xFF == PERSISTENT, traits >> 8 & 0xFF
            batch = self.connection.served.batch
            batch.publish(self, first, route, contents, is_persistent, priority, expires_ms)
        else:
            self._unroutable(target.publish, contents)

    def _unroutable(self, publish: BasicPublish, contents: list[bytes]) -> None:
        """Return mandatory messages, and deliver direct replies: no queue has their names."""
        connection, exchange, key = self.connection, publish.exchange, publish.routing_key
        counts = connection.counts
        is_reply = not exchange and key.startswith(NAME_PREFIX) and connection.server.replies.deliver(key, contents)
        if publish.mandatory:
            counts.unroutable_returned += len(contents)
            for content in contents:
                returned = BasicReturn(ReplyCode.NO_ROUTE, "NO_ROUTE", exchange, key)
                connection.send_content(self.number, returned, content)
        elif not is_reply:
            counts.unroutable_dropped += len(contents)

    def refused(self, tag: int, count: int) -> None:
        """A queue has refused these messages: nacks in confirm mode, otherwise only counted."""
        self.connection.counts.refused += count
        if tag and self.is_open:
            tags = [each for each in range(tag, tag + count) if each not in self._refused]
            self._refused.update(tags)
            nacks = [_SETTLED.pack(1, self.number, 13, 60, NACK, each, 0, 0xCE) for each in tags]
            self.connection.write(b"".join(nacks))

    def confirm(self, tag: int) -> None:
        """Everything up to this tag is durable, or was nacked before and is skipped here."""
        if not self.is_open or tag <= self.confirmed:
            return
        count, last = tag - self.confirmed, tag
        if self._refused:
            nacked = {each for each in self._refused if each <= tag}
            self._refused -= nacked
            count -= len(nacked)
            while last in nacked:
                last -= 1
        self.confirmed = tag
        self.connection.counts.confirmed += count
        if count:
            self.connection.write(_SETTLED.pack(1, self.number, 13, 60, ACK, last, count > 1, 0xCE))

    # -- messages out --------------------------------------------------------------------------------------------

    def may_deliver(self) -> bool:
        return self.is_open and self.connection.has_room

    def next_tags(self, count: int) -> int:
        """Reserve `count` delivery tags; returns the first."""
        first = self.next_tag
        self.next_tag += count
        return first

    def counts_delivery(self, count: int, is_auto_ack: bool, is_redelivered: bool) -> None:
        counts = self.connection.counts
        if is_auto_ack:
            counts.delivered_auto_ack += count
        else:
            counts.delivered_manual_ack += count
        if is_redelivered:
            counts.redelivered += count

    def run_pending_gets(self) -> None:
        """A batch executes gets after publishes and settlements, and serves consumers first: what follows a get on its
        channel belongs to the next batch."""
        if self.pending_gets:
            self.connection.served.run()

    # -- settling ------------------------------------------------------------------------------------------------

    def acks(self, event: AcksReceived) -> None:
        self.run_pending_gets()
        run = event.run
        settlement = (
            Settlement.ACK if run.method_id == ACK else Settlement.REQUEUE if run.requeue else Settlement.REJECT
        )
        removed: list[UnackedRange[DeliverySource]] = []
        try:
            if run.is_multiple:
                for tag in run.tags:
                    removed += self.unacked.take_to(tag)
            else:
                self.unacked.take(run.tags, removed)
        except UnknownTag as error:
            raise PeerError(ReplyCode.PRECONDITION_FAILED, error.what, 60, run.method_id) from error
        finally:
            self.settle(removed, settlement)
            if settlement is Settlement.ACK:
                self.connection.counts.acknowledged += sum([piece.length for piece in removed])

    def settle(self, pieces: Iterable[UnackedRange[DeliverySource]], settlement: Settlement) -> None:
        batch, shared = self.connection.served.batch, self.shared_prefetch
        for piece in pieces:
            handle, incarnation, consumer = piece.holder
            batch.settle(handle, settlement, incarnation, (piece.tag, piece.tag + piece.length))
            if consumer is not None:
                consumer.unacked -= piece.length
                shared.settled(piece.length)
        if shared.limit:
            shared.grant()

    def schedule_deliveries(self) -> None:
        """For all consumers: credit or send buffer may be free again."""
        batch = self.connection.served.batch
        for consumer in self.consumers.values():
            batch.schedule_delivery(consumer.handle)

    def _schedule_delivery(self, consumer: ServerConsumer) -> None:
        self.connection.served.batch.schedule_delivery(consumer.handle)

    def check_oldest_delivery(self, now_ns: int, default_ms: int) -> None:
        """Raises a `PeerError` if the oldest unacked delivery is older than its queue permits; 0 ms: no limit."""
        oldest = self.unacked.oldest()
        if oldest is None:
            self.oldest_delivery.clear()
            return
        handle, consumer = oldest.holder.handle, oldest.holder.consumer
        own_ms = handle.queue.arguments.consumer_timeout_ms if handle.queue is not None else None
        timeout_ms = default_ms if own_ms is None else own_ms
        timeout_ns = timeout_ms * 1_000_000
        waited_ns = self.oldest_delivery.waited_ns(oldest.first, self.next_tag, now_ns, timeout_ns // TIMEOUT_STEPS)
        if (not timeout_ms and own_ms is None) or waited_ns < max(timeout_ns, 1):
            return
        facts = {"client": self.connection.owner.name, "channel": self.number, "queue": handle.name}
        tag = consumer.tag if consumer is not None else ""
        _LOG.warning("delivery not acknowledged in time", extra={"facts": {**facts, "consumer": tag, "ms": timeout_ms}})
        raise PeerError(
            ReplyCode.PRECONDITION_FAILED,
            f"delivery acknowledgement on channel {self.number} timed out. Timeout value used: {timeout_ms} ms. "
            "This timeout value can be configured, see consumers doc guide to learn more",
        )

    def recover(self) -> None:
        """Requeue all unacked messages."""
        self.settle(self.unacked.take_all(), Settlement.REQUEUE)

    # -- consumers -----------------------------------------------------------------------------------------------

    def set_prefetch(self, count: int, is_global: bool) -> None:
        """Also for existing consumers: clients such as Celery depend on it, see docs/compatibility.md."""
        if is_global:
            self.shared_prefetch.set_limit(count)
        else:
            self.prefetch = count
            for consumer in self.consumers.values():
                consumer.prefetch = count
        self.schedule_deliveries()

    def remove_consumer(self, consumer: ServerConsumer) -> bool:
        """Its unacked messages stay with the channel. Returns whether it was the last consumer of its queue."""
        self.consumers.pop(consumer.tag, None)
        self.shared_prefetch.remove(consumer)
        handle = consumer.handle
        with handle.lock:
            is_last = handle.consumers.remove(consumer) and not len(handle.consumers)
            if is_last and handle.queue is not None:
                handle.queue.last_consumer_removed()
        if not is_last:
            self.connection.served.batch.schedule_delivery(handle)
        return is_last

    def set_reply_consumer(self, tag: str) -> None:
        self.reply_consumer = self.connection.server.replies.add(self, tag)

    def remove_reply_consumer(self) -> None:
        if self.reply_consumer is not None:
            self.connection.server.replies.remove(self.reply_consumer)
            self.reply_consumer = None

    def close(self) -> None:
        """Remove the consumers and requeue all unacked messages."""
        self.is_open = False
        self.remove_reply_consumer()
        without_consumers = [
            consumer.handle for consumer in list(self.consumers.values()) if self.remove_consumer(consumer)
        ]
        self.recover()
        self.connection.counts.channels_closed += 1
        for handle in without_consumers:
            self.connection.served.last_consumer_removed(handle)


def tags_of(pieces: Sequence[UnackedRange[DeliverySource]]) -> int:
    """Number of messages in these ranges."""
    return sum([piece.length for piece in pieces])
