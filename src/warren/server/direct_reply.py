"""Direct reply-to: replies of RPC servers go straight to a channel of their client, without a queue.

    client   consume `amq.rabbitmq.reply-to`, no-ack             ──▶ the channel has a reply name: prefix and secret
             publish, reply-to is `amq.rabbitmq.reply-to`        ──▶ the message has the reply name instead
    server   publish to the default exchange, key = reply name   ──▶ basic.deliver on the channel of the client

A reply is transient: it is not routed, queued or logged. It is dropped if the channel has closed, or its client leaves
too much output unread. As in RabbitMQ a reply counts as unroutable, so a mandatory one is returned even if it was
delivered, and a server that wants to know whether its client still waits declares the reply name first.

Invariants
* A reply name is known to its channel and to those who got a message from it: 126 random bits, looked up in a table and
  never decoded.
* Everything runs in the event loop. Publishes that are no replies and do not name the pseudo-queue cost nothing.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from warren.amqp.content import DIRECT_REPLY_TO
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.kernels import emit_deliveries
from warren.amqp.methods import QueueDeclareOk
from warren.base.environment import Random

if TYPE_CHECKING:
    from warren.server.channel import ServerChannel

NAME_PREFIX: Final = DIRECT_REPLY_TO + "."


@dataclass(frozen=True, slots=True, eq=False)
class ReplyConsumer:
    """A consumer of the pseudo-queue; a channel has one at most."""

    channel: ServerChannel
    tag: str
    name: str  # reply name

    def deliver(self, contents: list[bytes]) -> bool:
        """Whether the replies were sent."""
        channel = self.channel
        connection, count = channel.connection, len(contents)
        if not channel.is_open or connection.is_unread:
            return False
        first, key = channel.next_tags(count), self.name.encode()
        connection.write(
            emit_deliveries(channel.number, self.tag.encode(), b"", key, first, 0, contents, connection.frame_max)
        )
        channel.counts_delivery(count, is_auto_ack=True, is_redelivered=False)
        return True


class DirectReplies:
    """The reply consumers of a server, of all vhosts."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._consumers: dict[str, ReplyConsumer] = {}  # by reply name

    def add(self, channel: ServerChannel, tag: str) -> ReplyConsumer:
        secret = b"".join(self._rng.id64().to_bytes(8, "big") for _ in range(2))
        name = NAME_PREFIX + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
        consumer = self._consumers[name] = ReplyConsumer(channel, tag, name)
        return consumer

    def remove(self, consumer: ReplyConsumer) -> None:
        self._consumers.pop(consumer.name, None)

    def deliver(self, name: str, contents: list[bytes]) -> bool:
        """Whether these messages were sent to a consumer."""
        consumer = self._consumers.get(name)
        return consumer is not None and consumer.deliver(contents)

    def declare(self, name: str, vhost: str) -> QueueDeclareOk:
        """Declares of the pseudo-queue and of reply names are passive, whatever they say."""
        if name != DIRECT_REPLY_TO and name not in self._consumers:
            raise PeerError(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '{vhost}'", 50, 10)
        return QueueDeclareOk(name, 0, 1)
