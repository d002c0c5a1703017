"""Connections, channels and consumers of the server as plain facts, and closing connections, for other threads.

    management, any thread ──▶ Clients ──copies──▶ ConnectionFacts, ChannelFacts, ConsumerFacts
                                  └──close──▶ the event loop ──▶ connection.close 320 ──▶ close-ok, or a time limit

A connection is listed from `connection.open` until its socket is closed, as in RabbitMQ; one that is still in its
handshake is not.

Facts are read in the caller's thread, not in the event loop, so that a long list delays no message. Every container is
copied by one operation of the interpreter and every number is read once: the facts of one connection may be some
microseconds apart. Changes happen in the event loop only (`Server.call_in_loop`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from warren.amqp.connection import ConnectionState
from warren.amqp.errors import ReplyCode, reply_text
from warren.amqp.methods import ConnectionClose
from warren.broker.queue_handle import QueueHandle
from warren.server.channel import ServerChannel
from warren.server.connection import ServerConnection
from warren.server.consumer import ServerConsumer
from warren.server.tls import TlsSession

if TYPE_CHECKING:
    from warren.server.server import Server

_LOG = logging.getLogger(__name__)
IDLE_NS: Final = 1_000_000_000  # without input and output for this long, a connection is idle


class ClientIdentity(NamedTuple):
    """The connection that a channel or consumer belongs to."""

    name: str  # 127.0.0.1:40312 -> 127.0.0.1:5672
    user: str
    vhost: str
    peer_host: str
    peer_port: int


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    client: ClientIdentity
    host: str
    port: int
    mechanism: str
    state: str  # running, blocking, blocked, flow, closing
    connected_ms: int  # by the wall clock
    heartbeat_seconds: int
    frame_max: int
    channel_max: int
    channel_count: int
    client_properties: Mapping[str, object]
    received_bytes: int
    reads: int
    sent_bytes: int
    writes: int
    unsent_bytes: int
    tls: TlsSession | None


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    client: ClientIdentity
    number: int
    state: str  # running, flow
    is_confirming: bool
    consumer_count: int
    prefetch: int
    shared_prefetch: int
    unacked: int
    unconfirmed: int
    idle_since_ms: int | None  # of the whole connection, by the wall clock; None: it is not idle

    @property
    def name(self) -> str:
        return channel_name(self.client, self.number)


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    client: ClientIdentity
    channel: int
    tag: str
    queue: str
    is_auto_ack: bool
    is_exclusive: bool
    prefetch: int
    is_active: bool
    activity_status: str  # up; with a single active consumer: single_active, waiting
    arguments: Mapping[str, object]

    @property
    def channel_name(self) -> str:
        return channel_name(self.client, self.channel)


def channel_name(client: ClientIdentity, number: int) -> str:
    return f"{client.name} ({number})"


class Clients:
    """Thread-safe. Except for `close` nothing waits for the event loop."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connections(self, name: str | None = None) -> list[ConnectionFacts]:
        """All of them, or those of this name."""
        has_alarm, is_under_pressure = bool(self._server.pressure.alarms), self._server.pressure.is_on
        return [
            _connection_facts(client, connection, _state(connection, has_alarm, is_under_pressure))
            for client, connection in self._opened(name)
        ]

    def channels(self, connection_name: str | None = None) -> list[ChannelFacts]:
        clock, is_under_pressure = self._server.environment.clock, self._server.pressure.is_on
        wall_ns, now_ns = clock.wall_ns(), clock.monotonic_ns()
        found: list[ChannelFacts] = []
        for client, connection in self._opened(connection_name):
            silent_ns = now_ns - connection.active_ns
            idle_since_ms = (wall_ns - silent_ns) // 1_000_000 if silent_ns >= IDLE_NS else None
            state = "flow" if is_under_pressure and connection.is_publisher else "running"
            found += [
                _channel_facts(client, channel, state, idle_since_ms) for channel in list(connection.channels.values())
            ]
        return found

    def consumers(self, connection_name: str | None = None) -> list[ConsumerFacts]:
        return [
            _consumer_facts(client, consumer)
            for client, connection in self._opened(connection_name)
            for channel in list(connection.channels.values())
            for consumer in list(channel.consumers.values())
        ]

    def consumers_of(self, handle: QueueHandle) -> list[ConsumerFacts]:
        """Consumers of a queue, in the order in which they are served."""
        with handle.lock:
            consumers = [consumer for consumer in handle.consumers if isinstance(consumer, ServerConsumer)]
        found = [(_identity(consumer.channel.connection), consumer) for consumer in consumers]
        return [_consumer_facts(client, consumer) for client, consumer in found if client is not None]

    def close(self, connections: Collection[ConnectionFacts], reason: str, closed_by: str) -> None:
        """Send `connection.close` with the reason to those that are still there. Returns when it is sent; a client that
        does not answer, or does not read, is disconnected some seconds after it."""
        if connections:
            self._server.call_in_loop(lambda: self._close(connections, reason, closed_by))

    def _close(self, connections: Collection[ConnectionFacts], reason: str, closed_by: str) -> None:
        closing = {(each.client.name, each.connected_ms) for each in connections}
        close = ConnectionClose(ReplyCode.CONNECTION_FORCED, reply_text(ReplyCode.CONNECTION_FORCED, reason))
        for client, connection in list(self._opened()):
            is_running = connection.amqp.state is ConnectionState.RUNNING
            if is_running and (client.name, connection.connected_ms) in closing:
                facts = {"client": client.name, "user": client.user, "by": closed_by, "reason": reason}
                _LOG.info("closing connection on request", extra={"facts": facts})
                try:
                    connection.close(close)
                except Exception as error:
                    self._server.cut_off(connection, error)

    def _opened(self, name: str | None = None) -> Iterator[tuple[ClientIdentity, ServerConnection]]:
        for connection in list(self._server.connections):
            if name is None or connection.owner.name == name:
                client = _identity(connection)
                if client is not None:
                    yield client, connection


def _identity(connection: ServerConnection) -> ClientIdentity | None:
    """None before a vhost is open."""
    access, name = connection.access, connection.owner.name
    if access is None:
        return None
    return ClientIdentity(name, connection.user, access.vhost, connection.peer, connection.peer_port)


def _state(connection: ServerConnection, has_alarm: bool, is_under_pressure: bool) -> str:
    """In RabbitMQ's words: an alarm blocks publishers, and is about to block the others. Without an alarm, a publisher
    that is not read for a moment is under flow control."""
    if connection.amqp.state is not ConnectionState.RUNNING:
        return "closing"
    if has_alarm:
        return "blocked" if connection.is_publisher else "blocking"
    return "flow" if is_under_pressure and connection.is_publisher else "running"


def _connection_facts(client: ClientIdentity, connection: ServerConnection, state: str) -> ConnectionFacts:
    tuning, (host, port) = connection.amqp.tuning, connection.local_address
    return ConnectionFacts(
        client,
        host,
        port,
        connection.mechanism,
        state,
        connection.connected_ms,
        tuning.heartbeat,
        tuning.frame_max,
        tuning.channel_max,
        len(connection.channels),
        connection.client_properties,
        connection.received_bytes,
        connection.reads,
        connection.sent_bytes,
        connection.writes,
        connection.unsent_bytes(),
        connection.tls,
    )


def _channel_facts(
    client: ClientIdentity, channel: ServerChannel, state: str, idle_since_ms: int | None
) -> ChannelFacts:
    return ChannelFacts(
        client,
        channel.number,
        state,
        channel.is_confirming,
        len(channel.consumers),
        channel.prefetch,
        channel.shared_prefetch.limit,
        len(channel.unacked),
        channel.unconfirmed,
        idle_since_ms,
    )


def _consumer_facts(client: ClientIdentity, consumer: ServerConsumer) -> ConsumerFacts:
    handle = consumer.handle
    with handle.lock:
        is_single, is_active = handle.consumers.is_single_active, handle.consumers.is_active(consumer)
    return ConsumerFacts(
        client,
        consumer.channel.number,
        consumer.tag,
        handle.name,
        consumer.is_auto_ack,
        consumer.is_exclusive,
        consumer.prefetch,
        is_active,
        ("single_active" if is_active else "waiting") if is_single else "up",
        consumer.arguments,
    )
