"""Methods on a channel, by class: basic is only collected in the batch, queue and exchange block, channel's own are
answered at once. Other methods are refused with 540.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from warren.amqp.content import DIRECT_REPLY_TO
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import (
    AccessRequest,
    AccessRequestOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    Method,
    QueueDeclare,
)
from warren.broker.declarations.errors import plain
from warren.broker.vhost import Client
from warren.server.channel import ServerChannel
from warren.server.handlers import basic

if TYPE_CHECKING:
    from warren.server.connection import ServerConnection


_EXCHANGE, _QUEUE, _BASIC = 40, 50, 60


def handle(connection: ServerConnection, number: int, method: Method) -> None:
    if isinstance(method, ChannelOpen):
        _open(connection, number)
        return
    if isinstance(method, ChannelClose):
        connection.release(number)
        connection.send_method(number, ChannelCloseOk())
        return
    channel = connection.channels.get(number)
    if channel is None:  # closed by the broker, which waits for close-ok
        return
    kind = method.SPEC.class_id
    if kind == _BASIC:
        basic.handle(channel, method)
    elif isinstance(method, QueueDeclare) and method.queue.startswith(DIRECT_REPLY_TO):
        _declare_reply_name(channel, method)
    elif kind in (_QUEUE, _EXCHANGE):
        answer = partial(connection.served.declarations.answer, channel.client, method)
        connection.offload(answer, partial(_answered, connection, number), number)
    elif isinstance(method, ConfirmSelect):
        channel.is_confirming = True
        if not method.no_wait:
            connection.send_method(number, ConfirmSelectOk())
    elif isinstance(method, ChannelFlow):
        if not method.active:
            raise PeerError(ReplyCode.NOT_IMPLEMENTED, "active=false", 20, 20)
        connection.send_method(number, ChannelFlowOk(True))
    elif isinstance(method, AccessRequest):
        connection.send_method(number, AccessRequestOk(1))
    else:
        spec = method.SPEC
        raise PeerError(ReplyCode.NOT_IMPLEMENTED, f"{spec.name} is not implemented", spec.class_id, spec.method_id)


def _open(connection: ServerConnection, number: int) -> None:
    assert connection.access is not None, "channels are opened in a vhost"
    client = Client(connection.access, connection.owner)
    connection.channels[number] = ServerChannel(connection, number, client)
    connection.counts.channels_opened += 1
    connection.send_method(number, ChannelOpenOk())


def _declare_reply_name(channel: ServerChannel, method: QueueDeclare) -> None:
    answer = channel.connection.server.replies.declare(plain(method.queue), channel.client.access.vhost)
    channel.declared(answer.queue)
    if not method.no_wait:
        channel.connection.send_method(channel.number, answer)


def _answered(connection: ServerConnection, number: int, answer: object) -> None:
    if isinstance(answer, Method) and connection.amqp.is_open(number):
        connection.send_method(number, answer)
