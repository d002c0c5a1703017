"""A raw client: it sends any bytes, one at a time if needed, and returns the frames that arrive."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TypeVar

from warren.amqp import frames, methods
from warren.amqp.content import Properties, write_content
from warren.amqp.methods import Method

HEADER = b"AMQP\x00\x00\x09\x01"
SECONDS_MAX = 10.0
Expected = TypeVar("Expected", bound=Method)


class Closed(Exception):
    """The server has closed the socket."""


class RawClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._buffer = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_method(self, channel: int, *sent: Method) -> None:
        self.send(b"".join(frames.method_frame(channel, method) for method in sent))

    def publish(
        self, channel: int, queue: str, *bodies: bytes, properties: Properties | None = None, exchange: str = ""
    ) -> None:
        method = methods.BasicPublish(exchange=exchange, routing_key=queue)
        self.send(b"".join(self.message(channel, method, body, properties) for body in bodies))

    def message(
        self, channel: int, method: methods.BasicPublish, body: bytes, properties: Properties | None = None
    ) -> bytes:
        wanted = properties or Properties(delivery_mode=2)
        return frames.method_frame(channel, method) + write_content(wanted, body, channel, 131_072)

    # -- receiving -----------------------------------------------------------------------------------------------

    def frame(self) -> frames.Frame:
        while (read := frames.read_frame(self._buffer, 0, 0)) is None:
            data = self.socket.recv(1 << 16)
            if not data:
                raise Closed
            self._buffer += data
        frame, stop = read
        self._buffer = self._buffer[stop:]
        return frame

    def method(self) -> Method:
        """The next one of this kind; frames before it are skipped."""
        while True:
            frame = self.frame()
            if frame.kind == frames.METHOD:
                return methods.read_fields(methods.spec_of(frame.payload), frame.payload)

    def expect(self, kind: type[Expected]) -> Expected:
        method = self.method()
        assert isinstance(method, kind), f"{kind.__name__} was expected, and not {method}"
        return method

    def body(self) -> bytes:
        """Of the content that comes next."""
        while (header := self.frame()).kind != frames.HEADER:
            continue
        left = int.from_bytes(header.payload[4:12], "big")
        pieces = []
        while left > 0:
            piece = self.frame()
            assert piece.kind == frames.BODY
            pieces.append(piece.payload)
            left -= len(piece.payload)
        return b"".join(pieces)

    def is_closed(self) -> bool:
        """Whether the server closes the socket, after any frames."""
        try:
            while True:
                self.frame()
        except (Closed, ConnectionResetError):
            return True
        except TimeoutError:
            return False

    # -- the usual way -------------------------------------------------------------------------------------------

    def log_in(
        self, user: str = "guest", password: str = "guest", vhost: str = "/", heartbeat: int = 0, **capabilities: bool
    ) -> RawClient:
        self.send(HEADER)
        self.expect(methods.ConnectionStart)
        client_properties = {"capabilities": {name.replace("__", "."): value for name, value in capabilities.items()}}
        response = b"\0" + user.encode() + b"\0" + password.encode()
        self.send_method(0, methods.ConnectionStartOk(client_properties, "PLAIN", response))
        tune = self.expect(methods.ConnectionTune)
        self.send_method(0, methods.ConnectionTuneOk(tune.channel_max, tune.frame_max, heartbeat))
        self.send_method(0, methods.ConnectionOpen(vhost))
        self.expect(methods.ConnectionOpenOk)
        return self

    def channel(self, number: int = 1, confirms: bool = False) -> RawClient:
        self.send_method(number, methods.ChannelOpen())
        self.expect(methods.ChannelOpenOk)
        if confirms:
            self.send_method(number, methods.ConfirmSelect())
            self.expect(methods.ConfirmSelectOk)
        return self

    def declare(self, queue: str, channel: int = 1, **more: object) -> methods.QueueDeclareOk:
        self.send_method(channel, methods.QueueDeclare(queue=queue, **more))  # type: ignore[arg-type]
        return self.expect(methods.QueueDeclareOk)
