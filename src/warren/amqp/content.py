"""Contents: the header frame and body frames of one message, as received and as stored; and the fourteen properties.

    | 2 | channel | size | class u16 | weight u16 = 0 | body size u64 | properties | CE |      header frame
    | 3 | channel | size | bytes … | CE |  | 3 | …                                           body frames, or none

    properties: | flags u16 | properties whose flag is set, in order |       bit 15: content-type … bit 2: cluster-id
                                                                             bit 0: another word of flags follows

A content is delivered unchanged if channel and frame size fit; otherwise its frames get another channel, or the body is
split anew (rule 23). Storing and forwarding do not decode it.

Absent and empty properties differ: None is not written. A property that is not in this table is refused, because its
length is unknown.

Invariants: no body frame is empty; the sizes of the body frames add up to the body size. Bytes from disk are checked
like bytes from the network: each function refuses frames that do not add up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from warren.amqp import frames, types
from warren.amqp.errors import Malformed, PeerError, ReplyCode, Truncated
from warren.base.errors import Misuse

_KINDS: Final[dict[str, str]] = {
    "content_type": "shortstr",
    "content_encoding": "shortstr",
    "headers": "table",
    "delivery_mode": "octet",
    "priority": "octet",
    "correlation_id": "shortstr",
    "reply_to": "shortstr",
    "expiration": "shortstr",
    "message_id": "shortstr",
    "timestamp": "longlong",
    "type": "shortstr",
    "user_id": "shortstr",
    "app_id": "shortstr",
    "cluster_id": "shortstr",
}
_FLAGS: Final = struct.Struct(">H")
_TIME: Final = struct.Struct(">Q")
_MORE: Final = 1
_UNUSED: Final = 2

TRANSIENT: Final = 1
PERSISTENT: Final = 2
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"  # a pseudo-queue: replies go to the channel of the publisher


@dataclass(frozen=True, slots=True)
class Properties:
    content_type: str | None = None
    content_encoding: str | None = None
    headers: types.Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    @property
    def is_persistent(self) -> bool:
        return self.delivery_mode == PERSISTENT


_ORDER: Final = tuple((each.name, _KINDS[each.name], 1 << 15 - place) for place, each in enumerate(fields(Properties)))
assert [name for name, _, _ in _ORDER] == list(_KINDS)


def read_properties(data: bytes, at: int, end: int) -> Properties:
    """The properties in this range; extra bytes are refused."""
    flags, at = _read_flags(data, at, end)
    values: dict[str, Any] = {}
    for name, kind, flag in _ORDER:
        if flags & flag:
            values[name], at = _read(kind, data, at, end)
    if at != end:
        raise Malformed(f"{end - at} bytes too many behind the properties", at)
    return Properties(**values)


def write_properties(properties: Properties) -> bytes:
    flags = 0
    parts = [b""]
    for name, kind, flag in _ORDER:
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            parts.append(_written(name, kind, value))
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def _read_flags(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The first word of flags; further words must be empty. The unused bit is ignored."""
    flags, at = _read_word(data, at, end)
    more = flags & _MORE
    while more:
        further, at = _read_word(data, at, end)
        if further & ~_MORE:
            raise Malformed("a flag of a property that is not known", at - 2)
        more = further
    return flags & ~(_MORE | _UNUSED), at


def _read_word(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise Truncated("the flags of the properties are cut off", at)
    return _FLAGS.unpack_from(data, at)[0], at + 2


def _read(kind: str, data: bytes, at: int, end: int) -> tuple[Any, int]:
    if kind == "shortstr":
        return types.read_short_string(data, at, end)
    if kind == "table":
        return types.read_table(data, at, end)
    size = 1 if kind == "octet" else _TIME.size
    if at + size > end:
        raise Truncated(f"a property of {size} bytes is cut off", at)
    return (data[at] if size == 1 else _TIME.unpack_from(data, at)[0]), at + size


def _written(name: str, kind: str, value: Any) -> bytes:
    if kind == "shortstr":
        return types.write_short_string(value)
    if kind == "table":
        return types.write_table(value)
    try:
        return bytes((value,)) if kind == "octet" else _TIME.pack(value)
    except (ValueError, struct.error) as error:
        raise Misuse(f"{value!r} is no {name} of a message") from error


BASIC: Final = 60
HEADER_HEAD: Final = struct.Struct(">HHQ")
assert HEADER_HEAD.size == 12
UNLIMITED: Final = 0


@dataclass(frozen=True, slots=True)
class ContentHeader:
    """The payload of a header frame, properties not decoded."""

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
    """The body split into frames; none for an empty body."""
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
    """The content with another header; the body frames are unchanged."""
    first, at = _first(content)
    header = read_header(first.payload)
    payload = HEADER_HEAD.pack(header.class_id, 0, header.body_bytes) + write_properties(properties)
    return frames.write_frame(frames.HEADER, first.channel, payload) + content[at:]


def reframed(content: bytes, channel: int, frame_max: int) -> bytes:
    """The content for another channel and frame_max; properties are not decoded."""
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
