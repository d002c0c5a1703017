# mypyc: compile
"""Kernels: the three loops that process every message: publishes in, acknowledgements in, deliveries out.

    scan              buffer → runs of publishes with one method frame and one kind of properties, contents as received
    parse_acks        buffer → runs of ack, reject and nack frames that differ only in their tags
    emit_deliveries   contents → one buffer of basic.deliver frames, each followed by its content

Each takes what it fully understands and stops at the first thing it does not: another method, an error, an incomplete
frame. The plain decoder reads on from there, and only it refuses input. So both give the same results by construction,
and a test compares them.

`traits_of` checks the properties of a message without decoding them, and returns their traits.

    traits   | direct reply? | user-id? | expiration? | headers? | priority u8 | delivery mode u8 |

Messages with equal traits need the same treatment: a run of publishes has one value for all its messages. Strings are
skipped. A table of headers is walked to its last value, with bounds, types and depth, because the next reader may be a
consumer, which must not be the first to find it broken. A negative result means: only the plain decoder can decide. It
refuses the properties, or knows something that the kernel does not.

Written for mypyc (native integers, readers of librt) and good as plain Python too: the readers are C in both modes.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i64_be
from mypy_extensions import i64, u8

from warren.amqp.content import reframed
from warren.amqp.frames import write_frame
from warren.base.errors import Damage, Misuse

HAS_HEADERS: Final = 1 << 16
HAS_EXPIRATION: Final = 1 << 17
HAS_USER_ID: Final = 1 << 18
HAS_DIRECT_REPLY: Final = 1 << 19  # its reply-to is the pseudo-queue of direct replies

# Copied from types: a constant of another module would be folded in at compile time, and grow stale. A test compares.
DEPTH_MAX: Final = 32
VALUES_MAX: Final = 65_536

_UNKNOWN: Final[i64] = -1
_DIRECT_REPLY: Final = b"\x15amq.rabbitmq.reply-to"  # as a short string
_STRING: Final = 100
_CONTAINER: Final = 101
_NO_TYPE: Final = 102
_ARRAY: Final[i64] = 0x41
_WIDTH_OF: Final = {
    "t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "l": 8, "L": 8, "d": 8, "T": 8, "D": 5, "V": 0,
    "S": _STRING, "x": _STRING, "F": _CONTAINER, "A": _CONTAINER,
}  # fmt: skip
_WIDTHS: Final[bytes] = bytes([_WIDTH_OF.get(chr(code), _NO_TYPE) for code in range(256)])


def traits_of(properties: bytes) -> int:
    """The traits of properties, flags first."""
    end: i64 = len(properties)
    return walk_properties(properties, 0, end)


def walk_properties(data: bytes, at: i64, end: i64) -> i64:
    if end - at < 2:
        return _UNKNOWN
    flags: i64 = i64(read_i16_be(data, at)) & 0xFFFF
    at += 2
    traits: i64 = 0
    if flags == 0:
        return traits if at == end else _UNKNOWN
    if flags & 1:
        return _UNKNOWN
    if flags & 0xC000:  # content-type, content-encoding
        at = _over_texts(data, at, end, flags, 0x8000, 0x4000)
    if flags & 0x2000:  # headers
        at = _over_table(data, at, end)
        traits = HAS_HEADERS
    if flags & 0x1000:  # delivery-mode
        traits |= i64(data[at]) if at < end else 0
        at += 1
    if flags & 0x0800:  # priority
        traits |= i64(data[at]) << 8 if at < end else 0
        at += 1
    if flags & 0x0700:  # correlation-id, reply-to, expiration
        if flags & 0x0200 and data.startswith(_DIRECT_REPLY, _over_texts(data, at, end, flags, 0x0400, 0x0400)):
            traits |= HAS_DIRECT_REPLY
        at = _over_texts(data, at, end, flags, 0x0400, 0x0100)
        if flags & 0x0100:
            traits |= HAS_EXPIRATION
    if flags & 0x0080:  # message-id
        at = _over_texts(data, at, end, flags, 0x0080, 0x0080)
    if flags & 0x0040:  # timestamp
        at += 8
    if flags & 0x003C:  # type, user-id, app-id, cluster-id
        at = _over_texts(data, at, end, flags, 0x0020, 0x0004)
        if flags & 0x0010:
            traits |= HAS_USER_ID
    return traits if at == end else _UNKNOWN


def _over_texts(data: bytes, at: i64, end: i64, flags: i64, first: i64, last: i64) -> i64:
    """The offset behind the short strings whose flags are set; beyond the end, for good, if one does not fit."""
    flag: i64 = first
    while flag >= last:
        if flags & flag:
            at = at + 1 + i64(data[at]) if at < end else end + 1
        flag >>= 1
    return at


def _over_table(data: bytes, at: i64, end: i64) -> i64:
    """The offset behind a table with its size prefix; beyond the end if it is not valid."""
    if end - at < 4:
        return end + 1
    size: i64 = i64(read_i32_be(data, at))
    if size < 0 or size > end - at - 4 or not is_table(data, at + 4, at + 4 + size):
        return end + 1
    return at + 4 + size


def is_table(data: bytes, at: i64, end: i64) -> bool:
    """Whether the range is a list of table entries that the plain decoder would accept."""
    ends: list[int] = []  # of the containers around this one
    are_arrays: list[bool] = []
    is_array = False
    left: i64 = VALUES_MAX
    while True:
        if at == end:
            if not ends:
                return True
            end = ends.pop()
            is_array = are_arrays.pop()
            continue
        left -= 1
        if not is_array:
            at += 1 + i64(data[at])
        if left < 0 or at >= end:
            return False
        code: i64 = i64(data[at])
        width: i64 = i64(_WIDTHS[code])
        at += 1
        if width >= _STRING:
            size: i64 = i64(read_i32_be(data, at)) if end - at >= 4 else -1
            if width == _NO_TYPE or size < 0 or size > end - at - 4:
                return False
            if width == _CONTAINER:
                if len(ends) + 1 >= DEPTH_MAX:
                    return False
                ends.append(end)
                are_arrays.append(is_array)
                is_array = code == _ARRAY
                end = at + 4 + size
                size = 0
            at += 4 + size
        else:
            at += width
            if at > end:
                return False


ACK: Final = 80
REJECT: Final = 90
NACK: Final = 120

_METHOD: Final = 1  # copied: see above
_END: Final[i64] = 0xCE
_PUBLISH: Final[i64] = 0x003C0028
_HEADER_HEAD: Final[i64] = 0x003C0000  # class basic, weight 0
_UNLIMITED: Final[i64] = 1 << 40
_NOT_OURS: Final[i64] = -1  # for the plain decoder
_NOT_WHOLE: Final[i64] = -2  # wait for more bytes


@final
class PublishRun:
    """Consecutive publishes of a buffer."""

    def __init__(self, start: int, frame: bytes, traits: int, contents: list[bytes]) -> None:
        self.start = start
        self.stop = start
        self.frame = frame  # the method frame that all of them have, channel included
        self.traits = traits
        self.contents = contents


@final
class AckRun:
    """Consecutive acknowledgements that differ only in their tags."""

    def __init__(self, channel: int, method_id: int, is_multiple: bool, requeue: bool, tags: list[int]) -> None:
        self.channel = channel
        self.method_id = method_id
        self.is_multiple = is_multiple
        self.requeue = requeue
        self.tags = tags


def scan(data: bytes, at: int, frame_max: int, body_bytes_max: int) -> tuple[int, bool, list[PublishRun]]:
    """The offset where it stopped, whether an incomplete publish is there, and the runs before it.

    An incomplete publish with several body frames is left to the plain decoder, frame by frame: so at most three frames
    wait in the buffer, and they are not scanned repeatedly.
    """
    pos: i64 = at
    end: i64 = len(data)
    size_max: i64 = frame_max if frame_max > 0 else _UNLIMITED
    body_max: i64 = body_bytes_max
    runs: list[PublishRun] = []
    frame: bytes = b""
    header: bytes = b""
    body: i64 = 0
    now: i64 = -1
    traits: i64 = -1
    contents: list[bytes] = []
    is_waiting = False
    while True:
        start: i64 = _header_start(data, pos, end, size_max)
        if start < 0:
            is_waiting = start == _NOT_WHOLE
            break
        stop: i64 = start + 8 + i64(read_i32_be(data, start + 3))
        its_header: bytes = data[start:stop]
        is_repeated = its_header == header
        if not is_repeated:
            now = _header_traits(data, start, stop, body_max)
            if now < 0:
                break
            header = its_header
            body = read_i64_be(data, start + 11)
        if body > 0:
            stop = _body_stop(data, start, stop, end, body, size_max)
            if stop < 0:
                is_waiting = stop == _NOT_WHOLE
                break
        its_frame: bytes = data[pos:start]
        if its_frame != frame or now != traits:
            if runs:
                runs[-1].stop = pos
            contents = []
            runs.append(PublishRun(pos, its_frame, now, contents))
            frame = its_frame
            traits = now
            is_repeated = False
        contents.append(data[start:stop])
        method: i64 = start - pos
        pos = stop
        if is_repeated and stop - start == len(header) + (8 + body if body > 0 else 0):
            pos = _alike(data, pos, end, stop - start, method, body, contents)
    if runs:
        runs[-1].stop = pos
    return pos, is_waiting, runs


def _alike(data: bytes, pos: i64, end: i64, content: i64, method: i64, body: i64, contents: list[bytes]) -> i64:
    """Take publishes that equal the one before `pos` in everything but the body: one comparison for each.

    The one before has at most one body frame, so only the body and the byte behind it are not compared.
    """
    size: i64 = method + content
    template: bytes = data[pos - size : pos - body - 1]
    while end - pos >= size and data.startswith(template, pos) and data[pos + size - 1] == _END:
        contents.append(data[pos + method : pos + size])
        pos += size
    return pos


def _header_start(data: bytes, pos: i64, end: i64, size_max: i64) -> i64:
    """The offset of the complete header frame of the publish at `pos`."""
    if end - pos < 7:
        return _NOT_OURS
    size: i64 = i64(read_i32_be(data, pos + 3))
    start: i64 = pos + 8 + size
    if size < 9 or size > size_max or data[pos] != 1 or start > end:
        return _NOT_OURS
    if read_i32_be(data, pos + 7) != _PUBLISH or data[start - 1] != _END:
        return _NOT_OURS
    if end - start < 7:
        return _NOT_WHOLE
    if data[start] != 2 or data[start + 1] != data[pos + 1] or data[start + 2] != data[pos + 2]:
        return _NOT_OURS
    size = i64(read_i32_be(data, start + 3))
    if size < 14 or size > size_max:
        return _NOT_OURS
    if start + 8 + size > end:
        return _NOT_WHOLE
    return start


def _header_traits(data: bytes, start: i64, stop: i64, body_max: i64) -> i64:
    """The traits in the header, if it is valid."""
    if data[stop - 1] != _END or read_i32_be(data, start + 7) != _HEADER_HEAD:
        return _NOT_OURS
    body: i64 = read_i64_be(data, start + 11)
    if body < 0 or body > body_max:
        return _NOT_OURS
    return walk_properties(data, start + 19, stop - 1)


def _body_stop(data: bytes, header: i64, at: i64, end: i64, body: i64, size_max: i64) -> i64:
    """The end of the last body frame."""
    left: i64 = body
    while left > 0:
        if end - at < 7:
            return _NOT_WHOLE if left == body else _NOT_OURS
        size: i64 = i64(read_i32_be(data, at + 3))
        if data[at] != 3 or data[at + 1] != data[header + 1] or data[at + 2] != data[header + 2]:
            return _NOT_OURS
        if size <= 0 or size > size_max or size > left:
            return _NOT_OURS
        if at + 8 + size > end:
            return _NOT_WHOLE if size == body else _NOT_OURS
        at += 8 + size
        if data[at - 1] != _END:
            return _NOT_OURS
        left -= size
    return at


def parse_acks(data: bytes, at: int) -> tuple[int, list[AckRun]]:
    """The offset where it stopped, and the runs before it. All three frames have 21 bytes: tag at 11, bits at 19."""
    pos: i64 = at
    end: i64 = len(data)
    runs: list[AckRun] = []
    tags: list[int] = []
    last: i64 = -1
    while end - pos >= 21:
        if data[pos] != 1 or read_i32_be(data, pos + 3) != 13 or data[pos + 20] != _END:
            break
        method: i64 = i64(read_i32_be(data, pos + 7)) - 0x003C0000
        if method != 80 and method != 90 and method != 120:
            break
        tag: i64 = read_i64_be(data, pos + 11)
        if tag < 0:
            break
        bits: i64 = i64(data[pos + 19]) & (3 if method == 120 else 1)
        channel: i64 = i64(read_i16_be(data, pos + 1)) & 0xFFFF
        kind: i64 = channel << 16 | method << 8 | bits
        if kind != last:
            last = kind
            tags = []
            is_multiple = method != 90 and (bits & 1) == 1
            requeue = (bits & 1) == 1 if method == 90 else (bits & 2) == 2
            runs.append(AckRun(channel, method, is_multiple, requeue, tags))
        tags.append(tag)
        pos += 21
    return pos, runs


def emit_deliveries(
    channel: int,
    consumer_tag: bytes,
    exchange: bytes,
    routing_key: bytes,
    first_tag: int,
    redelivered_count: int,
    contents: list[bytes],
    frame_max: int,
) -> bytes:
    """The bytes that deliver the contents to one consumer, with ascending tags; the first ones are redeliveries."""
    if len(consumer_tag) > 255 or len(exchange) > 255 or len(routing_key) > 255:
        raise Misuse("a name of a delivery has more than 255 bytes")
    target = bytes((len(exchange),)) + exchange + bytes((len(routing_key),)) + routing_key
    prefix = bytes((0, 60, 0, 60, len(consumer_tag))) + consumer_tag
    whole = write_frame(_METHOD, channel, prefix + bytes(9) + target)
    before = whole[: 7 + len(prefix)]
    behind = b"\x00" + whole[7 + len(prefix) + 9 :]
    redelivered = b"\x01" + behind[1:]
    size_max: i64 = frame_max - 8 if frame_max > 0 else _UNLIMITED
    number: i64 = channel
    tag: i64 = first_tag
    left: i64 = redelivered_count
    out = BytesWriter()
    for content in contents:
        out.write(before)
        write_i64_be(out, tag)
        out.write(redelivered if left > 0 else behind)
        at: i64 = len(out)
        out.write(content)
        if not _patched(out, content, at, number, size_max):
            out.truncate(at)
            out.write(reframed(content, channel, frame_max))
        tag += 1
        left -= 1
    return out.getvalue()


def _patched(out: BytesWriter, content: bytes, base: i64, channel: i64, size_max: i64) -> bool:
    """Write the channel number into every frame of a content; False if a frame exceeds the consumer's frame_max."""
    end: i64 = len(content)
    if end < 22 or content[0] != 2:
        raise Damage("a stored content does not start with a header frame")
    high: u8 = u8(channel >> 8)
    low: u8 = u8(channel & 0xFF)
    is_other = content[1] != high or content[2] != low
    fits = True
    at: i64 = 0
    left: i64 = read_i64_be(content, 11)
    while at < end:
        size: i64 = i64(read_i32_be(content, at + 3)) if end - at >= 8 else -1
        if size < 0 or at + 8 + size > end or content[at + 7 + size] != _END or (at > 0 and content[at] != 3):
            raise Damage(f"a stored content has no whole frame at byte {at}")
        if at > 0:
            left -= size
            fits = fits and size <= size_max
        if is_other:
            out[base + at + 1] = high
            out[base + at + 2] = low
        at += 8 + size
    if left != 0:
        raise Damage(f"a stored content has {left} bytes of body less than its header says")
    return fits
