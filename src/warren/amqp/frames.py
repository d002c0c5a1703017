"""Frames: the unit of everything but the first eight bytes of a connection.

    | kind u8 | channel u16 | size u32 | payload … | 0xCE |        1 method  2 content header  3 body  8 heartbeat

Invariants: a frame that is too large is refused by its head, before its payload arrives; a frame that does not end in
0xCE is refused, since the start of the next one is unknown. As in RabbitMQ a peer may exceed frame_max by the eight
bytes of an empty frame: clients differ in whether they count them.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import Method, encode
from warren.base.errors import Misuse

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8

FRAME_END: Final = 0xCE
HEAD: Final = struct.Struct(">BHI")
assert HEAD.size == 7
EMPTY_FRAME_BYTES: Final = HEAD.size + 1
FRAME_BYTES_MIN: Final = 4096  # of the negotiated frame_max; also the limit before tuning
FUDGE_BYTES: Final = EMPTY_FRAME_BYTES
CHANNEL_MAX: Final = 65535

_END: Final = bytes((FRAME_END,))


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


def read_frame(data: bytes, at: int, frame_max: int) -> tuple[Frame, int] | None:
    """The frame that starts there and its end; None if it is incomplete. A frame_max of 0 is no limit."""
    if len(data) - at < HEAD.size:
        return None
    kind, channel, size = HEAD.unpack_from(data, at)
    if frame_max and size > frame_max - EMPTY_FRAME_BYTES + FUDGE_BYTES:
        raise PeerError(
            ReplyCode.FRAME_ERROR,
            f"a frame of type {kind} on channel {channel} has {size} bytes, "
            f"{frame_max - EMPTY_FRAME_BYTES} is the most that was agreed",
        )
    stop = at + EMPTY_FRAME_BYTES + size
    if stop > len(data):
        return None
    if data[stop - 1] != FRAME_END:
        raise PeerError(
            ReplyCode.FRAME_ERROR,
            f"a frame of type {kind} on channel {channel} with {size} bytes ends in {data[stop - 1]:#04x}, not in 0xce",
        )
    return Frame(kind, channel, data[at + HEAD.size : stop - 1]), stop


def write_frame(kind: int, channel: int, payload: bytes) -> bytes:
    if not 0 <= channel <= CHANNEL_MAX:
        raise Misuse(f"there is no channel {channel}")
    return b"".join((HEAD.pack(kind, channel, len(payload)), payload, _END))


def method_frame(channel: int, method: Method) -> bytes:
    return write_frame(METHOD, channel, encode(method))


HEARTBEAT_FRAME: Final = write_frame(HEARTBEAT, 0, b"")
assert len(HEARTBEAT_FRAME) == EMPTY_FRAME_BYTES
