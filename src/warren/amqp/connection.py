"""A connection on the server side: bytes in, events out; methods in, bytes out.

    for event in connection.receive(data): …          what the peer did, or an answer to write
    connection.send(channel, method) → bytes          write them

    PREFACE ─header─▶ GREETING ─start─▶ STARTING ─start-ok─▶ AUTHENTICATING ─tune─▶ TUNING ─tune-ok─▶ OPENING
                                           SECURING ◀─secure─┘ ▲                                        │ open
                                               └───secure-ok───┘                                        ▼
    CLOSED ◀─close-ok─ CLOSE_SENT ◀─close─ RUNNING ◀──────────────open-ok────────────────────── AUTHORIZING
       ▲                                      │ close
       └────────────close-ok──── CLOSE_RECEIVED ◀┘

In GREETING, AUTHENTICATING and AUTHORIZING the server has to send next: bytes that the peer sends ahead stay unread
until it has answered, so that checking a password may take time. Whatever is not in the tables has one answer, by
state: before the peer is authenticated the connection is dropped without an answer, as in RabbitMQ and the standard.

Events, in the order in which the peer caused them:

    Greeted              the peer speaks AMQP 0-9-1: send connection.start
    MethodReceived       a method that is legal now: execute and answer it
    PublishesReceived    messages with one target and one kind of properties, contents as received
    AcksReceived         acks, rejects or nacks that differ only in their tags
    HeartbeatReceived
    ChannelViolated      a protocol error: write the bytes, release the channel; close-ok is awaited here
    ConnectionViolated   write the bytes, release all channels
    Answered             write the bytes; nothing else to do
    ConnectionEnded      close the socket: nothing more will be read

Events come one at a time, and the server acts on each before the next is created: a channel that it closes because of
one message gets no more of the messages behind it. Bytes that had to wait are processed by `receive(b"")`.

Tuning: the server offers channel_max, frame_max and heartbeat, the client answers with its values; an answer above the
offer ends the connection, as in RabbitMQ. Zero means "no limit", so an answer of zero is above every other offer.

Invariants
* No byte from the peer raises an exception. Errors of the peer become ChannelViolated, ConnectionViolated or
  ConnectionEnded; only an illegal `send` of the server is raised, as `Misuse`.
* Publishes and acknowledgements pass through the kernels, everything else frame by frame; both paths produce the same
  events, except for the number of messages in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from warren.amqp import frames, kernels
from warren.amqp import kernels as property_walk
from warren.amqp.channel import ChannelProtocol, ChannelState, Content, MethodVerdict
from warren.amqp.content import DIRECT_REPLY_TO, Properties, read_properties, reframed
from warren.amqp.errors import PeerError, ReplyCode, is_hard, reply_text
from warren.amqp.frames import CHANNEL_MAX, FRAME_BYTES_MIN
from warren.amqp.kernels import ACK, NACK, REJECT, AckRun
from warren.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
    MethodSpec,
    encode,
    read_fields,
    spec_of,
)
from warren.base.errors import Misuse


@dataclass(frozen=True, slots=True)
class Tuning:
    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat: int = 60  # seconds

    @property
    def channel_number_max(self) -> int:
        return self.channel_max or CHANNEL_MAX


def offered(tuning: Tuning) -> ConnectionTune:
    return ConnectionTune(tuning.channel_max, tuning.frame_max, tuning.heartbeat)


def agreed(offer: Tuning, answer: ConnectionTuneOk) -> Tuning:
    """The client's values; raises a `PeerError` if one is above the offer."""
    _check("frame_max", offer.frame_max, answer.frame_max, FRAME_BYTES_MIN)
    _check("channel_max", offer.channel_max, answer.channel_max, 1)
    return Tuning(answer.channel_max, answer.frame_max, answer.heartbeat)


def _check(what: str, offer: int, answer: int, least: int) -> None:
    unlimited = " (no limit)" if answer == 0 else ""
    if 0 < answer < least:
        fault = f"is lower than the minimum allowed value ({least})"
    elif offer and (answer == 0 or answer > offer):
        fault = f"is higher than the maximum allowed value ({offer})"
    else:
        return
    raise PeerError(ReplyCode.NOT_ALLOWED, f"negotiated {what} = {answer}{unlimited} {fault}", 10, 30)


@dataclass(frozen=True, slots=True)
class ProtocolHeaderReceived:
    pass


@dataclass(frozen=True, slots=True)
class MethodReceived:
    channel: int
    method: Method


class PublishesReceived(NamedTuple):
    channel: int
    publish: BasicPublish
    frame: bytes  # the method frame: equal frames have equal targets, so it is a cache key for routing
    traits: int  # common traits of the properties, see kernels.traits_of
    contents: list[bytes]


class AcksReceived(NamedTuple):
    channel: int
    run: AckRun


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    pass


@dataclass(frozen=True, slots=True)
class ChannelViolated:
    channel: int
    close: ChannelClose
    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionViolated:
    close: ConnectionClose
    data: bytes


@dataclass(frozen=True, slots=True)
class ResponseReady:
    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    reason: str
    was_orderly: bool = False  # by close and close-ok; otherwise the peer is delayed before it may retry


Event = (
    ProtocolHeaderReceived
    | MethodReceived
    | PublishesReceived
    | AcksReceived
    | HeartbeatReceived
    | ChannelViolated
    | ConnectionViolated
    | ResponseReady
    | ConnectionEnded
)


class ConnectionState(Enum):
    PREFACE = auto()
    GREETING = auto()
    STARTING = auto()
    SECURING = auto()
    AUTHENTICATING = auto()
    TUNING = auto()
    OPENING = auto()
    AUTHORIZING = auto()
    RUNNING = auto()
    CLOSE_SENT = auto()
    CLOSE_RECEIVED = auto()
    CLOSED = auto()


_Moves = dict[type[Method], ConnectionState]

RECEIVED: Final[dict[ConnectionState, _Moves]] = {
    ConnectionState.PREFACE: {},
    ConnectionState.GREETING: {},
    ConnectionState.STARTING: {ConnectionStartOk: ConnectionState.AUTHENTICATING},
    ConnectionState.SECURING: {ConnectionSecureOk: ConnectionState.AUTHENTICATING},
    ConnectionState.AUTHENTICATING: {},
    ConnectionState.TUNING: {ConnectionTuneOk: ConnectionState.OPENING},
    ConnectionState.OPENING: {ConnectionOpen: ConnectionState.AUTHORIZING},
    ConnectionState.AUTHORIZING: {},
    ConnectionState.RUNNING: {
        ConnectionClose: ConnectionState.CLOSE_RECEIVED,
        ConnectionUpdateSecret: ConnectionState.RUNNING,
    },
    ConnectionState.CLOSE_SENT: {
        ConnectionClose: ConnectionState.CLOSE_SENT,
        ConnectionCloseOk: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSE_RECEIVED: {},
    ConnectionState.CLOSED: {},
}

SENT: Final[dict[ConnectionState, _Moves]] = {
    ConnectionState.PREFACE: {},
    ConnectionState.GREETING: {ConnectionStart: ConnectionState.STARTING},
    ConnectionState.STARTING: {},
    ConnectionState.SECURING: {},
    ConnectionState.AUTHENTICATING: {
        ConnectionSecure: ConnectionState.SECURING,
        ConnectionTune: ConnectionState.TUNING,
        ConnectionClose: ConnectionState.CLOSE_SENT,
    },
    ConnectionState.TUNING: {ConnectionClose: ConnectionState.CLOSE_SENT},
    ConnectionState.OPENING: {ConnectionClose: ConnectionState.CLOSE_SENT},
    ConnectionState.AUTHORIZING: {
        ConnectionOpenOk: ConnectionState.RUNNING,
        ConnectionClose: ConnectionState.CLOSE_SENT,
    },
    ConnectionState.RUNNING: {
        ConnectionClose: ConnectionState.CLOSE_SENT,
        ConnectionBlocked: ConnectionState.RUNNING,
        ConnectionUnblocked: ConnectionState.RUNNING,
        ConnectionUpdateSecretOk: ConnectionState.RUNNING,
    },
    ConnectionState.CLOSE_SENT: {},
    ConnectionState.CLOSE_RECEIVED: {ConnectionCloseOk: ConnectionState.CLOSED},
    ConnectionState.CLOSED: {},
}

OUR_TURN: Final = frozenset({ConnectionState.GREETING, ConnectionState.AUTHENTICATING, ConnectionState.AUTHORIZING})
WAITING: Final = OUR_TURN | {ConnectionState.CLOSED}  # nothing is read in these states
UNKNOWN: Final = frozenset(
    {ConnectionState.PREFACE, ConnectionState.STARTING, ConnectionState.SECURING, ConnectionState.TUNING}
)  # errors are not answered in these states
ENDING: Final = frozenset(
    {ConnectionState.CLOSE_SENT, ConnectionState.CLOSE_RECEIVED, ConnectionState.CLOSED}
)  # errors are ignored in these states


PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
SUPPORTED_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")  # 0-9 is compatible enough
KNOWN_PUBLISHES_MAX: Final = 1024  # cached decoded method frames

ACKS: Final[dict[int, type[Method]]] = {ACK: BasicAck, REJECT: BasicReject, NACK: BasicNack}
CLOSES: Final = (
    encode(ConnectionCloseOk()),
    encode(ConnectionClose())[:4],
)  # ids of the methods that a closing connection accepts


@dataclass(frozen=True, slots=True)
class ProtocolLimits:
    initial_frame_max: int = 65_536  # before tuning
    body_bytes_max: int = 128 * 1024 * 1024


DEFAULT_LIMITS: Final = ProtocolLimits()


class ConnectionProtocol:
    __slots__ = ("_agreed", "_at", "_buffer", "_channels", "_known", "_limits", "_offer", "_state")

    def __init__(self, offer: Tuning, limits: ProtocolLimits = DEFAULT_LIMITS) -> None:
        self._offer = offer
        self._agreed = Tuning(offer.channel_max, limits.initial_frame_max, offer.heartbeat)
        self._limits = limits
        self._state = ConnectionState.PREFACE
        self._channels: dict[int, ChannelProtocol] = {}
        self._buffer = b""
        self._at = 0
        self._known: dict[bytes, BasicPublish] = {}

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def tuning(self) -> Tuning:
        """The negotiated values; before tuning, the initial ones."""
        return self._agreed

    @property
    def waiting_bytes(self) -> int:
        """Bytes received but not processed: an incomplete frame, or bytes sent ahead."""
        return len(self._buffer) - self._at

    def is_open(self, channel: int) -> bool:
        there = self._channels.get(channel)
        return there is not None and there.is_open

    @property
    def open_channels(self) -> list[int]:
        return [number for number, channel in self._channels.items() if channel.is_open]

    # ------------------------------------------------------------------------------------------------------ sending

    def send(self, channel: int, method: Method) -> bytes:
        """The bytes of a method without content; changes the state accordingly."""
        kind = type(method)
        if channel:
            there = self._channels.get(channel)
            if self._state is not ConnectionState.RUNNING or there is None or not there.may_send(kind):
                raise Misuse(f"{method.SPEC.name} may not be sent on channel {channel} now")
            there.sent(kind)
            if there.state is ChannelState.UNOPENED:
                del self._channels[channel]
        else:
            if kind not in SENT[self._state]:
                raise Misuse(f"{method.SPEC.name} may not be sent while the connection is {self._state.name}")
            self._state = SENT[self._state][kind]
        return frames.method_frame(channel, method)

    def send_content(self, channel: int, method: Method, content: bytes) -> bytes:
        """The bytes of a method with its content, split into frames."""
        if not method.SPEC.has_content:
            raise Misuse(f"{method.SPEC.name} has no content")
        return self.send(channel, method) + reframed(content, channel, self._agreed.frame_max)

    # ---------------------------------------------------------------------------------------------------- receiving

    def receive(self, data: bytes) -> Iterator[Event]:
        self._buffer = self._buffer[self._at :] + data if self._at < len(self._buffer) else data
        self._at = 0
        while self._at < len(self._buffer):
            before = self._at
            try:
                if self._state is ConnectionState.RUNNING:  # the usual case; comparing an enum is faster than a look-up
                    yield from self._running()
                elif self._state in WAITING:
                    break
                else:
                    yield from self._next()
            except PeerError as error:
                yield from self._refused(error, 0)
            if self._at == before:
                break
        if self._state is ConnectionState.CLOSED:
            self._buffer, self._at = b"", 0

    def _next(self) -> Iterator[Event]:
        """Process the next unit, if it is complete."""
        if self._state is ConnectionState.PREFACE:
            yield from self._preface()
            return
        try:
            read = frames.read_frame(self._buffer, self._at, self._agreed.frame_max)
        except PeerError as error:
            yield from self._lost(error)
            return
        if read is None:
            return
        frame, stop = read
        wire = self._buffer[self._at : stop]
        self._at = stop
        if frame.channel == 0:
            yield from self._on_connection(frame)
            return
        try:
            yield from self._on_channel(frame, wire)
        except PeerError as error:
            yield from self._refused(error, frame.channel)

    def _preface(self) -> Iterator[Event]:
        header = self._buffer[: len(PROTOCOL_HEADER)]
        if header in SUPPORTED_HEADERS:
            self._at = len(PROTOCOL_HEADER)
            self._state = ConnectionState.GREETING
            yield ProtocolHeaderReceived()
        elif len(header) == len(PROTOCOL_HEADER):
            self._state = ConnectionState.CLOSED
            yield ResponseReady(PROTOCOL_HEADER)
            yield ConnectionEnded(f"the peer started with {header!r}, which is not AMQP 0-9-1")

    def _running(self) -> Iterator[Event]:
        """Run the kernels, then process the frame that they do not handle, if it is complete."""
        frame_max, body_max = self._agreed.frame_max, self._limits.body_bytes_max
        _, is_waiting, runs = kernels.scan(self._buffer, self._at, frame_max, body_max)
        for run in runs:
            self._at = run.stop
            channel = int.from_bytes(run.frame[1:3], "big")
            there = self._channels.get(channel)
            if (there is not None and there.is_ready) or self._passes(channel, BasicPublish):
                yield PublishesReceived(channel, self._publish(run.frame), run.frame, run.traits, run.contents)
            if self._state is not ConnectionState.RUNNING:
                return
        if self._at == len(self._buffer) or (is_waiting and self._may_wait()):
            return
        if not is_waiting:
            yield from self._ack_runs()
        if self._state is ConnectionState.RUNNING and self._at < len(self._buffer):
            yield from self._next()

    def _ack_runs(self) -> Iterator[Event]:
        self._at, acks = kernels.parse_acks(self._buffer, self._at)
        for run_of_acks in acks:
            if self._passes(run_of_acks.channel, ACKS[run_of_acks.method_id]):
                yield AcksReceived(run_of_acks.channel, run_of_acks)
            if self._state is not ConnectionState.RUNNING:
                break

    def _may_wait(self) -> bool:
        """Whether the next, incomplete publish is legal so far; otherwise it is refused at once."""
        channel = self._channels.get(int.from_bytes(self._buffer[self._at + 1 : self._at + 3], "big"))
        return channel is not None and channel.is_open and not channel.is_assembling

    def _passes(self, number: int, kind: type[Method]) -> bool:
        """Whether a run of such methods is processed, or discarded because the channel is closing."""
        if number == 0:
            raise self._illegal(kind.SPEC)
        return self._channel(number).received(kind) is MethodVerdict.ACCEPTED

    def _channel(self, number: int) -> ChannelProtocol:
        """The channel of this number; one that is not open is created without being stored."""
        there, count = self._channels.get(number), len(self._channels)
        if there is None and count >= (most := self._agreed.channel_number_max):
            what = f"number of channels opened ({count}) has reached the negotiated channel_max ({most})"
            raise PeerError(ReplyCode.NOT_ALLOWED, what)
        return there or ChannelProtocol(number)

    def _publish(self, frame: bytes) -> BasicPublish:
        """The method in a frame, cached: the same targets repeat."""
        known = self._known.get(frame)
        if known is not None:
            return known
        publish = read_fields(BasicPublish.SPEC, frame[frames.HEAD.size : -1])
        assert isinstance(publish, BasicPublish)
        if len(self._known) >= KNOWN_PUBLISHES_MAX:
            self._known.clear()
        self._known[frame] = publish
        return publish

    # --------------------------------------------------------------------------------------------- frame by frame

    def _on_connection(self, frame: frames.Frame) -> Iterator[Event]:
        if frame.kind == frames.METHOD:
            yield from self._method_on_connection(frame.payload)
        elif self._state in ENDING:
            return
        elif frame.kind == frames.HEARTBEAT and not frame.payload:
            yield HeartbeatReceived()
        else:
            raise _unexpected(frame)

    def _method_on_connection(self, payload: bytes) -> Iterator[Event]:
        if self._state in ENDING and payload[:4] not in CLOSES:
            return
        spec = spec_of(payload)
        after = RECEIVED[self._state].get(spec.made_by)
        if after is None:
            raise self._illegal(spec)
        method = read_fields(spec, payload)
        if isinstance(method, ConnectionTuneOk):
            self._agreed = agreed(self._offer, method)
        if self._state is ConnectionState.CLOSE_SENT and isinstance(method, ConnectionClose):
            yield ResponseReady(frames.method_frame(0, ConnectionCloseOk()))
            return
        self._state = after
        if after is ConnectionState.CLOSED:
            yield ConnectionEnded("closed by us, and the peer agreed", was_orderly=True)
            return
        if after is ConnectionState.CLOSE_RECEIVED:
            self._channels.clear()
        yield MethodReceived(0, method)

    def _on_channel(self, frame: frames.Frame, wire: bytes) -> Iterator[Event]:
        if self._state in ENDING:
            return
        if self._state is not ConnectionState.RUNNING or frame.kind not in (frames.METHOD, frames.HEADER, frames.BODY):
            raise _unexpected(frame, is_early=self._state is not ConnectionState.RUNNING)
        channel = self._channel(frame.channel)
        if frame.kind == frames.METHOD:
            yield from self._method_on_channel(channel, frame.payload, wire)
            return
        if frame.kind == frames.HEADER:
            whole = channel.header_frame(frame, wire, self._limits.body_bytes_max)
        else:
            whole = channel.body_frame(frame, wire)
        if whole is not None:
            yield self._published(channel.number, whole)

    def _method_on_channel(self, channel: ChannelProtocol, payload: bytes, wire: bytes) -> Iterator[Event]:
        spec = spec_of(payload)
        verdict = channel.received(spec.made_by)
        method = read_fields(spec, payload)
        if spec.has_content:
            channel.expect_content(wire)
        elif verdict is MethodVerdict.CROSSED:
            yield ResponseReady(frames.method_frame(channel.number, ChannelCloseOk()))
        elif verdict is MethodVerdict.ACCEPTED:
            if channel.state is ChannelState.UNOPENED:
                del self._channels[channel.number]
            else:
                self._channels[channel.number] = channel
            yield _acks(channel.number, method) or MethodReceived(channel.number, method)

    def _published(self, channel: int, whole: Content) -> PublishesReceived:
        raw = whole.header.properties
        traits = property_walk.traits_of(raw)
        if traits < 0:
            traits = _traits(read_properties(raw, 0, len(raw)))
        return PublishesReceived(channel, self._publish(whole.frame), whole.frame, traits, [whole.wire])

    # ----------------------------------------------------------------------------------------------------- refusing

    def _illegal(self, spec: MethodSpec) -> PeerError:
        explanation = f"unexpected method in connection state {self._state.name.lower()}"
        return PeerError(ReplyCode.CHANNEL_ERROR, explanation, spec.class_id, spec.method_id)

    def _refused(self, error: PeerError, channel: int) -> Iterator[Event]:
        """Answer an error of the peer, if the state permits an answer."""
        reply = (error.code, reply_text(error.code, error.explanation), error.class_id, error.method_id)
        is_answered = self._state is ConnectionState.TUNING and error.code is ReplyCode.NOT_ALLOWED
        if self._state in ENDING:
            return
        if self._state in UNKNOWN and not is_answered:
            self._state = ConnectionState.CLOSED
            yield ConnectionEnded(f"the peer broke the handshake: {error}")
        elif channel == 0 or is_hard(error.code):
            self._state = ConnectionState.CLOSE_SENT
            self._channels.clear()
            close = ConnectionClose(*reply)
            yield ConnectionViolated(close, frames.method_frame(0, close))
        else:
            self._channels[channel].sent(ChannelClose)
            closed = ChannelClose(*reply)
            yield ChannelViolated(channel, closed, frames.method_frame(channel, closed))

    def _lost(self, error: PeerError) -> Iterator[Event]:
        """Frame boundaries are lost: send connection.close if the state permits it, and read no more."""
        yield from self._refused(error, 0)
        if self._state is not ConnectionState.CLOSED:
            self._state = ConnectionState.CLOSED
            yield ConnectionEnded(f"frame boundaries are lost: {error}")


def _unexpected(frame: frames.Frame, is_early: bool = False) -> PeerError:
    is_known = frame.kind in (frames.METHOD, frames.HEADER, frames.BODY)
    is_heartbeat = frame.kind == frames.HEARTBEAT and not frame.payload
    code = ReplyCode.UNEXPECTED_FRAME if is_known or is_heartbeat or is_early else ReplyCode.FRAME_ERROR
    start = frame.payload[:16].hex(" ")
    return PeerError(code, f"type {frame.kind} on channel {frame.channel}, {len(frame.payload)} octets: {start}")


def _acks(channel: int, method: Method) -> AcksReceived | None:
    """An acknowledgement that was decoded frame by frame, as the kernel would report it."""
    match method:
        case BasicAck(tag, is_multiple):
            return AcksReceived(channel, AckRun(channel, ACK, is_multiple, False, [tag]))
        case BasicReject(tag, requeue):
            return AcksReceived(channel, AckRun(channel, REJECT, False, requeue, [tag]))
        case BasicNack(tag, is_multiple, requeue):
            return AcksReceived(channel, AckRun(channel, NACK, is_multiple, requeue, [tag]))
    return None


def _traits(properties: Properties) -> int:
    """The same as `kernels.traits_of`, from decoded properties."""
    traits = (properties.delivery_mode or 0) | (properties.priority or 0) << 8
    traits |= property_walk.HAS_HEADERS if properties.headers is not None else 0
    traits |= property_walk.HAS_EXPIRATION if properties.expiration is not None else 0
    traits |= property_walk.HAS_DIRECT_REPLY if properties.reply_to == DIRECT_REPLY_TO else 0
    return traits | (property_walk.HAS_USER_ID if properties.user_id is not None else 0)
