"""Server connection: bytes from a socket become events, events go to channels, replies are collected into one write.

    data_received ──▶ amqp.ConnectionProtocol ──▶ events, one at a time ──▶ handlers
                                                 │
                  suspended: a call blocks in another thread (declare, login): nothing more is read or handled
                                                 │
    transport.write ◀── flush, once per batch ◀── write

An error of the client closes its channel or its connection, with AMQP's code for it. A defect of the broker closes the
connection with 541, and is logged. Other connections are not affected.

`reset` drops a connection with RST, whatever is unsent, so that the client notices: after a FIN the client's first
write succeeds, and is lost without an error.

Invariants
* Events are handled in the order of their arrival.
* The requests collected in the batch are executed before a blocking call begins.
* Once the socket is closed nothing is sent, and everything unacked is ready again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from warren.amqp.connection import (
    AcksReceived,
    ChannelViolated,
    ConnectionEnded,
    ConnectionProtocol,
    ConnectionState,
    ConnectionViolated,
    Event,
    HeartbeatReceived,
    MethodReceived,
    ProtocolHeaderReceived,
    ProtocolLimits,
    PublishesReceived,
    ResponseReady,
    Tuning,
)
from warren.amqp.errors import PeerError, ReplyCode, is_hard, reply_text
from warren.amqp.frames import HEARTBEAT_FRAME
from warren.amqp.methods import ChannelClose, ConnectionClose, Method
from warren.base.environment import Clock
from warren.base.errors import WarrenError
from warren.base.ids import UserId
from warren.broker.auth.administration import AccessUpdate
from warren.broker.auth.permissions import Access
from warren.broker.counters import MessageCounters
from warren.broker.vhost import Owner
from warren.catalog.users import UserRow
from warren.server import event_lines
from warren.server.channel import ServerChannel
from warren.server.event_lines import CloseReason
from warren.server.handlers import channel as channel_methods
from warren.server.handlers import connection as handshake
from warren.server.publish import PublishTargets
from warren.server.tls import TlsSession

if TYPE_CHECKING:
    from warren.server.server import Server
    from warren.server.vhost_loop import VhostLoop


_LINGER_NONE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds


def reset(transport: asyncio.Transport) -> None:
    socket_ = transport.get_extra_info("socket")  # None in the simulator
    if socket_ is not None:
        with suppress(OSError):  # the client has reset it already
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    transport.abort()


_LOG = logging.getLogger(__name__)
UNREAD_TIMES: Final = 4  # times `unsent_bytes_max` unsent: then the client is not read either
CLOSE_SECONDS: Final = 5.0  # time limit for the client's close-ok


class ServerConnection(asyncio.Protocol):
    """An asyncio protocol: one for each socket."""

    served: VhostLoop  # this and `targets`: set when a vhost is open
    targets: PublishTargets

    def __init__(self, server: Server) -> None:
        settings = server.settings
        self.server = server
        self.settings = settings
        self.amqp = ConnectionProtocol(
            Tuning(settings.channel_max, settings.frame_max, settings.heartbeat_seconds),
            ProtocolLimits(settings.initial_frame_max, settings.message_bytes_max),
        )
        self.counts: MessageCounters = server.counts
        self.clock: Clock = server.environment.clock
        self.channels: dict[int, ServerChannel] = {}
        self.capabilities: frozenset[str] = frozenset()
        self.client_properties: dict[str, object] = {}
        self.user = ""
        self.user_id = UserId(0)  # set at the login, as the name
        self.limits: Mapping[str, int] = {}  # of the user
        self.mechanism = ""  # of the login
        self.is_accepted = False  # its protocol header has arrived
        self.access: Access | None = None  # in the open vhost
        self.owner = Owner("")
        self.frame_max = settings.frame_max
        self.is_publisher = False
        self.is_gone = False
        self.has_room = True  # in the send buffer, for deliveries
        self.is_blocked = False  # it was sent `connection.blocked`
        self.last_received_ns = self.last_sent_ns = self._begun_ns = self.clock.monotonic_ns()
        self._suspended_ns = 0  # start of the suspension
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.peer_port = 0
        self.local_address = ("", 0)
        self.tls: TlsSession | None = None
        self.connected_ms = 0  # by the wall clock
        self.received_bytes = self.reads = self.sent_bytes = self.writes = 0  # of the socket
        self.active_ns = self._begun_ns  # last input or output, without heartbeats
        self._events: Iterator[Event] | None = None  # received and not handled yet
        self._waiting: list[bytes] = []  # received while suspended
        self._is_suspended = self._is_paused = self._is_writing_paused = False
        self._is_unread = False  # not read, since it does not read its replies
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._close_reason: CloseReason | None = None

    # -- the socket ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's own is not derived from it
        transport.set_write_buffer_limits(high=self.settings.unsent_bytes_max)
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.peer, self.peer_port = _address(peer)
        self.local_address = _address(here)
        self.tls = TlsSession.of(transport)
        self.connected_ms = self.clock.wall_ns() // 1_000_000
        self.owner.name = f"{_address_text(peer)} -> {_address_text(here)}"
        self.server.connection_opened(self)

    def data_received(self, data: bytes) -> None:
        self.last_received_ns = self.clock.monotonic_ns()
        self.received_bytes += len(data)
        self.reads += 1
        if data != HEARTBEAT_FRAME:
            self.active_ns = self.last_received_ns
        if self._is_suspended:
            self._waiting.append(data)
            return
        self._act(self.amqp.receive(data))

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self.has_room = False
        self._out.clear()
        try:
            self.release()
        finally:
            self.server.connection_closed(self)
            event_lines.closed(self, self._close_reason, error)

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self.has_room = False

    def resume_writing(self) -> None:
        self._is_writing_paused = self._is_unread = False
        self._has_room_again()
        self.resume_reading()

    # -- reading -------------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if not self._is_paused and self.transport is not None and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Unless there is another reason to pause."""
        has_reason = self._is_suspended or self._is_unread or (self.is_publisher and self.server.pressure.is_on)
        if self._is_paused and not has_reason:
            self._is_paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.last_received_ns = self.clock.monotonic_ns()
                self.transport.resume_reading()

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def _act(self, events: Iterator[Event]) -> None:
        self._events = events
        for event in events:
            try:
                _HANDLERS[type(event)](self, event)
            except PeerError as error:
                self.refuse(_channel_of(event), error)
            except Exception as error:
                self.fail(error)
            if self._is_suspended or self.is_gone:
                return
        self._events = None
        if self.is_publisher and self.server.pressure.is_on:
            self.pause_reading()

    def offload(self, call: Callable[[], object], then: Callable[[object], None], channel: int = 0) -> None:
        """Run a blocking call in another thread, then continue with its result. A `PeerError` that it raises closes the
        channel."""
        if self.access is not None:
            self.served.run()  # earlier requests of this client are executed first
        self._is_suspended, self._suspended_ns = True, self.clock.monotonic_ns()
        self.pause_reading()
        self.server.offload(call, partial(self._offloaded, then, channel), is_login=self.access is None)

    def handshake_ns(self, now_ns: int) -> int:
        """Time that the client has used since it connected, for the time limit of the handshake. The broker's own time
        (hashing a password, the delay of a refused login) does not count."""
        return (self._suspended_ns if self._is_suspended else now_ns) - self._begun_ns

    def suspend(self, seconds: float, then: Callable[[], None]) -> None:
        """Continue with `then` after a delay."""
        self._is_suspended, self._suspended_ns = True, self.clock.monotonic_ns()
        self.pause_reading()
        self.server.call_later(seconds, partial(self._offloaded, lambda _: then(), 0, None, None))

    def _offloaded(
        self, then: Callable[[object], None], channel: int, result: object, error: BaseException | None
    ) -> None:
        self._is_suspended = False
        self._begun_ns += self.clock.monotonic_ns() - self._suspended_ns
        if self.is_gone:
            return
        try:
            if error is not None:
                raise error
            if (
                self.amqp.state is not ConnectionState.CLOSE_SENT
            ):  # else there is no answer any more: the broker is stopping
                then(result)
        except PeerError as refusal:
            self.refuse(channel, refusal)
        except Exception as failure:
            self.fail(failure)
        if not self._is_suspended:
            self._resume()

    def _resume(self) -> None:
        """Handle events from before the suspension, then the bytes received meanwhile."""
        if self._events is not None:
            self._act(self._events)
        while not self._is_suspended and not self.is_gone and (self._waiting or self.amqp.waiting_bytes):
            before = self.amqp.waiting_bytes
            waiting, self._waiting = b"".join(self._waiting), []
            self._act(self.amqp.receive(waiting))
            if not self._waiting and self.amqp.waiting_bytes >= before and not waiting:
                break  # an incomplete frame
        self.resume_reading()

    def set_mechanism(self, mechanism: str) -> None:
        """The SASL mechanism of the login."""
        self.mechanism = mechanism

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Queue output; it is sent at the next flush."""
        if self.is_gone:
            return
        if not self._out:
            self.server.has_output(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= self.settings.unsent_bytes_max:
            self.has_room = False

    def send_method(self, channel: int, method: Method) -> None:
        self.write(self.amqp.send(channel, method))

    def send_content(self, channel: int, method: Method, content: bytes) -> None:
        self.write(self.amqp.send_content(channel, method, content))

    def unsent_bytes(self) -> int:
        """Output that the operating system has not accepted yet."""
        transport = self.transport
        return self._out_bytes + (transport.get_write_buffer_size() if transport is not None else 0)

    def room_bytes(self) -> int:
        return max(self.settings.unsent_bytes_max - self._out_bytes, 1)

    @property
    def is_unread(self) -> bool:
        """Whether the client leaves so much output unread that it gets nothing that can be dropped."""
        if not self._is_writing_paused or self.transport is None:
            return False
        unsent_bytes = self._out_bytes + self.transport.get_write_buffer_size()
        return unsent_bytes > UNREAD_TIMES * self.settings.unsent_bytes_max

    def flush(self) -> None:
        if not self._out or self.is_gone or self.transport is None:
            return
        self.sent_bytes += self._out_bytes
        self.writes += 1
        out, self._out, self._out_bytes = self._out, [], 0
        self.last_sent_ns = self.clock.monotonic_ns()
        if out[0] is not HEARTBEAT_FRAME:
            self.active_ns = self.last_sent_ns
        if len(out) == 1:
            self.transport.write(out[0])
        else:
            self.transport.writelines(out)
        self._check_send_buffer()
        self._has_room_again()

    def _check_send_buffer(self) -> None:
        """Deliveries pause when a client does not read. Replies cannot, so the client is not read when they pile up."""
        if self._is_writing_paused and not self._is_unread and self.transport is not None:
            self._is_unread = self.transport.get_write_buffer_size() > UNREAD_TIMES * self.settings.unsent_bytes_max
            if self._is_unread:
                self.pause_reading()

    def _has_room_again(self) -> None:
        if self.has_room or self._is_writing_paused or self.is_gone:
            return
        self.has_room = True
        for channel in self.channels.values():
            channel.schedule_deliveries()

    def heartbeat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    # -- permissions ---------------------------------------------------------------------------------------------

    def logged_in(self, user: UserRow) -> None:
        self.user, self.user_id = user.name, user.id

    def enter(self, served: VhostLoop, user: UserRow, access: Access) -> None:
        """Open a vhost, unless its user has too many connections."""
        self.limits = user.limits
        self.server.check_connections(self)
        self.served = served
        self.set_access(access)

    def update_access(self, update: AccessUpdate) -> None:
        """A user or a vhost was deleted, or permissions or limits were changed."""
        if self.user_id in update.deleted_users:
            self._force_close(f"user '{self.user}' is deleted")
        elif self.access is not None and self.served.vhost.row.id in update.deleted_vhosts:
            self._force_close(f"vhost '{self.access.vhost}' is deleted")
        elif self.user_id in update.users:
            user = update.users[self.user_id]
            self.limits = user.limits
            if self.access is not None:
                self.set_access(update.access_of(user, self.served.vhost.row))

    def set_access(self, access: Access) -> None:
        """Targets that were authorized before are forgotten."""
        self.access = access
        self.targets = PublishTargets(self.served.vhost, self.served.routes, access)
        for channel in self.channels.values():
            channel.client.set_access(access)

    def _force_close(self, reason: str) -> None:
        if self.amqp.state is not ConnectionState.CLOSE_SENT:
            text = reply_text(ReplyCode.CONNECTION_FORCED, reason)
            self.close(ConnectionClose(ReplyCode.CONNECTION_FORCED, text))

    # -- the end -------------------------------------------------------------------------------------------------

    def refuse(self, channel: int, error: PeerError) -> None:
        """Close the channel or the connection, as the code requires."""
        if self.amqp.state is ConnectionState.CLOSE_SENT:
            return
        reply = (error.code, reply_text(error.code, error.explanation), error.class_id, error.method_id)
        if channel and not is_hard(error.code):
            if self.amqp.is_open(channel):
                close = ChannelClose(*reply)
                event_lines.channel_error(self, channel, close)
                self.send_method(channel, close)
                self.release(channel)
            return
        event_lines.connection_error(self, ConnectionClose(*reply))
        self.close(ConnectionClose(*reply))

    def close(self, close: ConnectionClose) -> None:
        """Send `connection.close`; a client that does not answer in time is disconnected. A publisher that was paused
        is read again, for its close-ok: what it publishes is discarded."""
        self.set_close_reason(CloseReason("broker", close.reply_text, close.reply_code))
        self.release()
        if self.is_gone or self.transport is None:
            return
        self.is_publisher = False
        try:
            self.send_method(0, close)
        except WarrenError:  # the handshake has not begun, or it is closing already
            self.end()
            return
        self.flush()
        self.resume_reading()
        self.server.call_later(CLOSE_SECONDS, self._disconnect)

    def release(self, channel: int | None = None) -> None:
        """Close one channel, or all, and release their consumers and messages."""
        numbers = [channel] if channel is not None else list(self.channels)
        closing = [there for number in numbers if (there := self.channels.pop(number, None)) is not None]
        for there in closing:  # all of them first: closing one may run the batch that has requests of another
            there.is_open = False
        for there in closing:
            there.close()

    def fail(self, error: Exception) -> None:
        """A defect met while this client was served: its connection is closed with 541."""
        _LOG.error("request of a client failed", exc_info=error, extra={"facts": {"client": self.owner.name}})
        self.refuse(0, PeerError(ReplyCode.INTERNAL_ERROR, f"{type(error).__name__}: see the broker's log"))

    def fail_soon(self, error: Exception) -> None:
        """The same from inside a batch, which must not be disturbed: output of its channels ends now, the rest follows
        from the loop."""
        for channel in self.channels.values():
            channel.is_open = False
        self.server.call_later(0.0, partial(self.fail, error))

    def end(self) -> None:
        """Close the socket after the output is sent."""
        if self.transport is not None and not self.transport.is_closing():
            self.flush()
            self.transport.close()

    def _disconnect(self) -> None:
        """The time limit for close-ok is over. A client that does not read would keep the socket open for ever."""
        if not self.is_gone:
            self.reset("it did not answer connection.close") if self.unsent_bytes() else self.end()

    def set_close_reason(self, reason: CloseReason) -> None:
        """For the event log; the first reason counts."""
        self._close_reason = self._close_reason or reason

    def reset(self, reason: str) -> None:
        """Drop the connection at once: the client's next write fails."""
        self.set_close_reason(CloseReason("broker", reason))
        if self.transport is not None:
            reset(self.transport)

    # -- events --------------------------------------------------------------------------------------------------

    def _on_greeted(self, event: ProtocolHeaderReceived) -> None:
        self.is_accepted = True
        event_lines.accepted(self)
        handshake.greet(self)

    def _on_publishes(self, event: PublishesReceived) -> None:
        self.channels[event.channel].publishes(event)

    def _on_acks(self, event: AcksReceived) -> None:
        self.channels[event.channel].acks(event)

    def _on_method(self, event: MethodReceived) -> None:
        if event.channel:
            channel_methods.handle(self, event.channel, event.method)
        else:
            handshake.handle(self, event.method)

    def _on_channel_violated(self, event: ChannelViolated) -> None:
        event_lines.channel_error(self, event.channel, event.close)
        self.write(event.data)
        self.release(event.channel)

    def _on_connection_violated(self, event: ConnectionViolated) -> None:
        event_lines.connection_error(self, event.close)
        self.set_close_reason(CloseReason("broker", event.close.reply_text, event.close.reply_code))
        self.release()
        self.write(event.data)
        self.flush()
        self.server.call_later(CLOSE_SECONDS, self._disconnect)

    def _on_answered(self, event: ResponseReady) -> None:
        self.write(event.data)

    def _on_heartbeat(self, event: HeartbeatReceived) -> None:
        """`data_received` has noted the time already."""

    def _on_ended(self, event: ConnectionEnded) -> None:
        self.set_close_reason(CloseReason("broker", event.reason, is_error=not event.was_orderly))
        self.release()
        self.end()


def _address(address: object) -> tuple[str, int]:
    return (address[0], address[1]) if isinstance(address, tuple) else ("", 0)


def _address_text(address: object) -> str:
    if not isinstance(address, tuple):
        return "this machine"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _channel_of(event: Event) -> int:
    return getattr(event, "channel", 0)


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    ProtocolHeaderReceived: ServerConnection._on_greeted,
    PublishesReceived: ServerConnection._on_publishes,
    AcksReceived: ServerConnection._on_acks,
    MethodReceived: ServerConnection._on_method,
    ChannelViolated: ServerConnection._on_channel_violated,
    ConnectionViolated: ServerConnection._on_connection_violated,
    ResponseReady: ServerConnection._on_answered,
    HeartbeatReceived: ServerConnection._on_heartbeat,
    ConnectionEnded: ServerConnection._on_ended,
}
