"""A client's line to a broker: logged in as guest, with one channel, one call after the other.

The first frame that was asked for is returned; heartbeats and notices are passed over, and a close is an error with the
broker's own words. What the shapes do at full speed is more than calls: they send and receive bytes.
"""

from __future__ import annotations

import struct
from types import TracebackType

from tools.bench.generators import wire
from tools.bench.generators.order import BrokerFailed
from tools.bench.generators.plug import Plug
from tools.bench.generators.wire import MethodId, Table, long, method, short, table

AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_BYTES_MAX = 131_072
_CAPABILITIES: Table = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True}


class BrokerConnection(Plug):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.unread = b""  # of what was received
        try:
            self.frame_bytes_max = self._log_in()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.call(wire.CLOSE, struct.pack(">H", 200) + short("") + bytes(4), wire.CLOSE_OK, channel=0)
        self.close()

    def call(self, which: MethodId, arguments: bytes, answer: MethodId, channel: int = wire.CHANNEL) -> bytes:
        self.send(method(which, arguments, channel))
        return self.expect(answer)

    def declare(self, queue: str, arguments: Table | None = None) -> int:
        """A durable one; how many messages are ready."""
        return self._declare(queue, 0b00010, arguments or {})

    def depth(self, queue: str) -> int:
        return self._declare(queue, 0b00001, {})

    def delete(self, queue: str) -> None:
        self.call(wire.DELETE, b"\0\0" + short(queue) + b"\0", wire.DELETE_OK)

    def select_confirms(self) -> None:
        self.call(wire.SELECT, b"\0", wire.SELECT_OK)

    def consume(self, queue: str, prefetch: int) -> None:
        """Deliveries may stand behind what is answered."""
        self.call(wire.QOS, struct.pack(">IHB", 0, prefetch, 0), wire.QOS_OK)
        self.call(wire.CONSUME, b"\0\0" + short(queue) + short("bench") + b"\0" + table({}), wire.CONSUME_OK)

    def receive(self) -> bytes:
        received = super().receive()
        if not received:
            raise BrokerFailed("the broker hung up")
        return received

    def expect(self, wanted: MethodId) -> bytes:
        """The arguments of the next method of this kind."""
        while True:
            kind, payload = self._next_frame()
            if kind == wire.METHOD:
                found = struct.unpack_from(">HH", payload)
                if found == wanted:
                    return payload[4:]
                refuse_close(found, payload[4:])

    def _next_frame(self) -> tuple[int, bytes]:
        while True:
            data = self.unread
            if len(data) >= wire.FRAME_EXTRA:
                kind, _, size = wire.FRAME.unpack_from(data)
                if len(data) >= size + wire.FRAME_EXTRA:
                    self.unread = data[size + wire.FRAME_EXTRA :]
                    return kind, data[wire.FRAME.size : wire.FRAME.size + size]
            self.unread = data + self.receive()

    def _declare(self, queue: str, bits: int, arguments: Table) -> int:
        answer = self.call(wire.DECLARE, b"\0\0" + short(queue) + bytes([bits]) + table(arguments), wire.DECLARE_OK)
        ready: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
        return ready

    def _log_in(self) -> int:
        """The largest frame that both take."""
        self.send(AMQP_HEADER)
        self.expect(wire.START)
        properties = table({"product": "warren bench", "capabilities": _CAPABILITIES})
        login = properties + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
        tuned = self.call(wire.START_OK, login, wire.TUNE, channel=0)
        channels, offered, _ = struct.unpack_from(">HIH", tuned)
        frame_bytes_max = min(offered or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        self.send(method(wire.TUNE_OK, struct.pack(">HIH", channels, frame_bytes_max, 0), channel=0))
        self.call(wire.OPEN, short("/") + short("") + b"\0", wire.OPEN_OK, channel=0)
        self.call(wire.CHANNEL_OPEN, short(""), wire.CHANNEL_OPEN_OK)
        return frame_bytes_max


def refuse_close(which: tuple[int, ...], arguments: bytes) -> None:
    """An error, if this method closes the channel or the connection."""
    if which in (wire.CLOSE, wire.CHANNEL_CLOSE):
        code, size = struct.unpack_from(">HB", arguments)
        raise BrokerFailed(f"the broker closed: {code} {arguments[3 : 3 + size].decode(errors='replace')}")
