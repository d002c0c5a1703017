"""The bytes of AMQP 0-9-1 that a load generator needs.

frame    | kind u8 | channel u16 | size u32 | payload … | 0xCE |
method   a frame of kind 1, its payload | class u16 | method u16 | arguments … |
message  a publish method, a header frame (kind 2), body frames (kind 3) of at most frame_max
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

FRAME = struct.Struct(">BHI")
FRAME_EXTRA = FRAME.size + 1  # around a payload
FRAME_END = b"\xce"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
CHANNEL = 1
PERSISTENT = b"\x10\x00\x02"  # property flags: delivery_mode only, and it is 2

MethodId = tuple[int, int]  # class and method
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = (10, 10), (10, 11), (10, 30), (10, 31), (10, 40), (10, 41)
CLOSE, CLOSE_OK, BLOCKED = (10, 50), (10, 51), (10, 60)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 10), (20, 11), (20, 40)
DECLARE, DECLARE_OK, DELETE, DELETE_OK = (50, 10), (50, 11), (50, 40), (50, 41)
QOS, QOS_OK, CONSUME, CONSUME_OK, CANCEL, CANCEL_OK = (60, 10), (60, 11), (60, 20), (60, 21), (60, 30), (60, 31)
PUBLISH, DELIVER, ACK, NACK = (60, 40), (60, 60), (60, 80), (60, 120)
SELECT, SELECT_OK = (85, 10), (85, 11)

Table = Mapping[str, "bool | int | str | Table"]


def short(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def long(text: str | bytes) -> bytes:
    encoded = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(encoded)) + encoded


def table(fields: Table) -> bytes:
    return long(b"".join(short(name) + _field(value) for name, value in fields.items()))


def _field(value: bool | int | str | Table) -> bytes:
    match value:
        case bool():
            return b"t" + bytes([value])
        case int():
            return b"l" + struct.pack(">q", value)
        case str():
            return b"S" + long(value)
        case _:
            return b"F" + table(value)


def frame(kind: int, payload: bytes, channel: int = CHANNEL) -> bytes:
    return FRAME.pack(kind, channel, len(payload)) + payload + FRAME_END


def method(which: MethodId, arguments: bytes = b"", channel: int = CHANNEL) -> bytes:
    return frame(METHOD, struct.pack(">HH", *which) + arguments, channel)


def ack(tag: int) -> bytes:
    """All up to this delivery."""
    return method(ACK, struct.pack(">QB", tag, 1))


def message(queue: str, body: bytes, frame_bytes_max: int) -> tuple[bytes, int]:
    """A persistent publish to a queue by its name, and where its body begins."""
    publish = method(PUBLISH, b"\0\0" + short("") + short(queue) + b"\0")
    header = frame(HEADER, struct.pack(">HHQ", 60, 0, len(body)) + PERSISTENT)
    step = frame_bytes_max - FRAME_EXTRA
    parts = [frame(BODY, body[at : at + step]) for at in range(0, len(body), step)]
    return publish + header + b"".join(parts), len(publish) + len(header) + FRAME.size
