"""A small AMQP 0-9-1 client of `warren move`, on the codec of `warren.amqp`: one connection, frames as they are.

    open_client(uri) ──▶ start · tune · open          call(method) ──▶ its reply; only before deliveries flow
                                                      receive()    ──▶ what arrived: methods, contents not decoded

A content passes through undecoded, so that properties and headers of every type stay what they are, byte for byte.
Client libraries decode them: pika reads a float as an integer and a u16 as an i32, and writes what it has read.

Errors: `BrokerLost` may pass (no connection, connection lost, broker stops): connect again. `Refused` does not (wrong
password, no such queue, precondition failed). Nothing waits for ever: connecting and calls have a time limit, and a
peer that is silent for two heartbeats is lost.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from warren import __version__
from warren.amqp import content, frames, methods
from warren.amqp.connection import PROTOCOL_HEADER
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import Method
from warren.base.errors import Misuse, Refused, WarrenError

CALL_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 5.0
HEARTBEAT_SECONDS = 20
FRAME_BYTES_MAX = 131_072
_READ_BYTES = 1 << 18
_PASSING = {ReplyCode.CONNECTION_FORCED, ReplyCode.RESOURCE_ERROR, ReplyCode.INTERNAL_ERROR}
_CAPABILITIES = ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")
_PROPERTIES = {
    "product": "warren move",
    "version": __version__,
    "capabilities": dict.fromkeys((*_CAPABILITIES, "authentication_failure_close"), True),
}
M = TypeVar("M", bound=Method)


class BrokerLost(WarrenError):
    """No connection to a broker: it may pass."""


class ChannelRefused(Refused):
    """The broker closed the channel."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


@dataclass(frozen=True, slots=True)
class BrokerUri:
    """`amqp://user:password@host:port/vhost`; `amqps` with `?cacertfile=`, `certfile=`, `keyfile=`, as in RabbitMQ's
    URIs. The peer's certificate is always verified."""

    role: str  # source or target, for messages
    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: Mapping[str, str] | None = None

    @property
    def address(self) -> tuple[str, int, str]:
        return self.host, self.port, self.vhost

    @property
    def name(self) -> str:
        """Without the password."""
        return f"the {self.role} {self.host}:{self.port} (vhost {self.vhost!r})"


def parse_uri(role: str, text: str) -> BrokerUri:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise Misuse(f"the URI of the {role} is not an AMQP URI", "write amqp://USER:PASSWORD@HOST:5672/VHOST")
    has_tls = parts.scheme == "amqps"
    return BrokerUri(
        role,
        parts.hostname,
        port or (5671 if has_tls else 5672),
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        unquote(parts.path[1:]) or "/",
        {name: values[-1] for name, values in parse_qs(parts.query).items()} if has_tls else None,
    )


class Received(NamedTuple):
    """A method, and the content behind it if it has one: the payload of its header frame, and the body."""

    method: Method
    header: bytes = b""
    body: bytes = b""


async def open_client(uri: BrokerUri) -> AmqpClient:
    """Connect, log in, open the vhost."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            context = _tls_context(uri)
            reader, writer = await asyncio.open_connection(uri.host, uri.port, ssl=context, limit=_READ_BYTES)
            client = AmqpClient(uri, reader, writer)
            try:
                await client.log_in()
            except BaseException:
                await client.abandon()
                raise
            return client
    except ssl.SSLCertVerificationError as error:
        raise Refused(f"the certificate of {uri.name} is not trusted: {error.verify_message}") from error
    except (OSError, TimeoutError) as error:
        raise BrokerLost(f"no connection to {uri.name}: {str(error) or 'timed out'}") from error


def _tls_context(uri: BrokerUri) -> ssl.SSLContext | None:
    if uri.tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=uri.tls.get("cacertfile"))
        if "certfile" in uri.tls:
            context.load_cert_chain(uri.tls["certfile"], uri.tls.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"a certificate for {uri.name} cannot be read: {error}") from error
    return context


class AmqpClient:
    def __init__(self, uri: BrokerUri, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = uri.name
        self.frame_max = FRAME_BYTES_MAX
        self._uri = uri
        self._reader = reader
        self._writer = writer
        self._heartbeat_seconds = HEARTBEAT_SECONDS
        self._heartbeats: asyncio.Task[None] | None = None
        self._received_at = time.monotonic()
        self._data = b""
        self._content: tuple[Method, bytes, int, list[bytes]] | None = None  # method, header, bytes missing, body

    async def log_in(self) -> None:
        self._writer.write(PROTOCOL_HEADER)
        uri = self._uri
        await self._reply_of(methods.ConnectionStart)
        login = f"\0{uri.user}\0{uri.password}".encode()
        self.send(frames.method_frame(0, methods.ConnectionStartOk(client_properties=_PROPERTIES, response=login)))
        tune = await self._reply_of(methods.ConnectionTune)
        self.frame_max = min(tune.frame_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        self._heartbeat_seconds = min(tune.heartbeat or HEARTBEAT_SECONDS, HEARTBEAT_SECONDS)
        self.send(
            frames.method_frame(0, methods.ConnectionTuneOk(tune.channel_max, self.frame_max, self._heartbeat_seconds))
        )
        self._heartbeats = asyncio.create_task(self._send_heartbeats())
        await self.call(0, methods.ConnectionOpen(uri.vhost), methods.ConnectionOpenOk)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the peer has read enough of what was sent."""
        try:
            await self._writer.drain()
        except OSError as error:
            raise BrokerLost(f"lost {self.name}: {error}") from error

    async def call(self, channel: int, method: Method, reply: type[M]) -> M:
        """Send a method and wait for its reply. Whatever else arrives meanwhile is dropped."""
        self.send(frames.method_frame(channel, method))
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                return await self._reply_of(reply)
        except TimeoutError as error:
            raise BrokerLost(f"{self.name} does not answer {method.SPEC.name}") from error

    async def _reply_of(self, reply: type[M]) -> M:
        while True:
            for received in await self.receive():
                if isinstance(received.method, reply):
                    return received.method

    async def receive(self, seconds: float | None = None) -> list[Received]:
        """All that arrived, nothing after `seconds`. Raises what the peer closed the channel or the connection with."""
        silence_max = 2.0 * self._heartbeat_seconds
        try:
            async with asyncio.timeout(silence_max if seconds is None else seconds) as limit:
                data = await self._reader.read(_READ_BYTES)
            self._received_at = time.monotonic()
        except OSError as error:  # a TimeoutError is one
            if limit.expired():
                if time.monotonic() - self._received_at < silence_max:
                    return []
                raise BrokerLost(f"lost {self.name}: silent for {silence_max:g} seconds") from error
            raise BrokerLost(f"lost {self.name}: {error}") from error
        if not data:
            raise BrokerLost(f"lost {self.name}: it closed the connection")
        try:
            return self._parsed(data)
        except PeerError as error:
            raise Refused(f"{self.name} broke the protocol: {error}") from error

    def _parsed(self, data: bytes) -> list[Received]:
        self._data += data
        found: list[Received] = []
        at = 0
        while (read := frames.read_frame(self._data, at, self.frame_max)) is not None:
            frame, at = read
            if (received := self._next(frame)) is not None:
                found.append(received)
        self._data = self._data[at:]
        for received in found:
            self._raise_if_closed(received.method)
        return found

    def _next(self, frame: frames.Frame) -> Received | None:
        """The method that is complete with this frame."""
        if frame.kind == frames.HEARTBEAT:
            return None
        if frame.kind == frames.METHOD:
            method = methods.decode(frame.payload)
            if not method.SPEC.has_content:
                return Received(method)
            self._content = method, b"", -1, []
            return None
        if self._content is None:
            raise PeerError(ReplyCode.UNEXPECTED_FRAME, "a content without a method")
        method, header, missing, body = self._content
        if frame.kind == frames.HEADER:
            header, missing = frame.payload, content.read_header(frame.payload).body_bytes
        else:
            body.append(frame.payload)
            missing -= len(frame.payload)
        if missing < 0:
            raise PeerError(ReplyCode.UNEXPECTED_FRAME, "a body that is larger than its header says")
        self._content = method, header, missing, body
        if missing:
            return None
        self._content = None
        return Received(method, header, body[0] if len(body) == 1 else b"".join(body))

    def _raise_if_closed(self, method: Method) -> None:
        if isinstance(method, methods.ChannelClose):
            self.send(frames.method_frame(1, methods.ChannelCloseOk()))
            raise ChannelRefused(f"refused by {self.name}: {method.reply_text}", method.reply_code)
        if isinstance(method, methods.ConnectionClose):
            self.send(frames.method_frame(0, methods.ConnectionCloseOk()))
            if method.reply_code in _PASSING:
                raise BrokerLost(f"lost {self.name}: {method.reply_text}")
            raise Refused(f"refused by {self.name}: {method.reply_text}")

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds / 2)
            self.send(frames.HEARTBEAT_FRAME)

    async def close(self) -> None:
        """Orderly: when it returns, the broker has processed every method sent before."""
        await self.call(1, methods.ChannelClose(ReplyCode.SUCCESS), methods.ChannelCloseOk)
        with suppress(BrokerLost):
            await self.call(0, methods.ConnectionClose(ReplyCode.SUCCESS), methods.ConnectionCloseOk)
        await self.abandon()

    async def abandon(self) -> None:
        """Close the socket; the broker requeues what was not acknowledged."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._writer.wait_closed()
