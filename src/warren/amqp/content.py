"""A content: header frame and body frames of one message, as bytes, the way it came off the wire and lies on disk.

    | 2 | channel | size | class u16 | weight u16 = 0 | body size u64 | properties | CE |      header frame
    | 3 | channel | size | bytes … | CE |  | 3 | …                                           as many as it took, or none

A content is delivered as it is when channel and frame size suit; otherwise its frames get another channel, or the body
is cut anew (rule 23). Whoever only stores or forwards it never opens it.

Always true of what is made here: no body frame is empty, the sizes of the body frames add up to the body size. What
comes from disk is looked at as closely as what comes from the network: each function below refuses frames that do not
add up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from warren.amqp import frames
from warren.amqp.errors import Malformed, PeerError, ReplyCode, Truncated
from warren.amqp.properties import Properties, read_properties, write_properties

BASIC: Final = 60
HEADER_HEAD: Final = struct.Struct(">HHQ")
assert HEADER_HEAD.size == 12
UNLIMITED: Final = 0


@dataclass(frozen=True, slots=True)
class ContentHeader:
    """The payload of a header frame, its properties not opened yet."""

    class_id: int
    body_bytes: int
    properties: bytes


def read_header(payload: bytes) -> ContentHeader:
    if len(payload) < HEADER_HEAD.size + 2:
        raise Truncated("a content header is cut off", 0)
    class_id, weight, size = HEADER_HEAD.unpack_from(payload)
    if weight:
        raise Malformed(f"a content header has the weight {weight}", 2, ReplyCode.UNEXPECTED_FRAME)
    return ContentHeader(class_id, size, payload[HEADER_HEAD.size :])


def write_content(properties: Properties, body: bytes, channel: int, frame_max: int) -> bytes:
    payload = HEADER_HEAD.pack(BASIC, 0, len(body)) + write_properties(properties)
    return frames.write_frame(frames.HEADER, channel, payload) + body_frames(body, channel, frame_max)


def body_frames(body: bytes, channel: int, frame_max: int) -> bytes:
    """The body cut into frames; none for an empty body."""
    step = frame_max - frames.EMPTY_FRAME_BYTES if frame_max else len(body) or 1
    pieces = [body] if 0 < len(body) <= step else [body[at : at + step] for at in range(0, len(body), step)]
    return b"".join([frames.write_frame(frames.BODY, channel, piece) for piece in pieces])


def header_of(content: bytes) -> ContentHeader:
    return read_header(_first(content)[0].payload)


def properties_of(content: bytes) -> Properties:
    raw = header_of(content).properties
    return read_properties(raw, 0, len(raw))


def body_of(content: bytes) -> bytes:
    """The body in one piece."""
    header = header_of(content)
    body = b"".join(_body_pieces(content))
    if len(body) != header.body_bytes:
        raise PeerError(
            ReplyCode.FRAME_ERROR, f"a content has {len(body)} bytes of body, its header says {header.body_bytes}"
        )
    return body


def with_properties(content: bytes, properties: Properties) -> bytes:
    """The same body under another header, the body frames untouched."""
    first, at = _first(content)
    header = read_header(first.payload)
    payload = HEADER_HEAD.pack(header.class_id, 0, header.body_bytes) + write_properties(properties)
    return frames.write_frame(frames.HEADER, first.channel, payload) + content[at:]


def reframed(content: bytes, channel: int, frame_max: int) -> bytes:
    """The content for a channel whose frames are at most that large, its properties not opened."""
    first, _ = _first(content)
    read_header(first.payload)
    return frames.write_frame(frames.HEADER, channel, first.payload) + body_frames(body_of(content), channel, frame_max)


def _first(content: bytes) -> tuple[frames.Frame, int]:
    read = frames.read_frame(content, 0, UNLIMITED)
    if read is None or read[0].kind != frames.HEADER:
        raise PeerError(ReplyCode.FRAME_ERROR, "a content does not start with a header frame")
    return read


def _body_pieces(content: bytes) -> Iterator[bytes]:
    _, at = _first(content)
    while at < len(content):
        read = frames.read_frame(content, at, UNLIMITED)
        if read is None or read[0].kind != frames.BODY:
            raise PeerError(ReplyCode.FRAME_ERROR, f"a content has no whole body frame at byte {at}")
        yield read[0].payload
        at = read[1]
