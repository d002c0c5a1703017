"""Streams of frames for tests: publishes in all shapes, acknowledgements, and the plain way to read them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.amqp.amqp_samples import PROPERTIES
from tests.amqp.pairs import STATES
from warren.amqp import content, frames, methods
from warren.amqp.content import Properties

FRAME_MAX = 4096
HANDSHAKE = b"".join(STATES["running 0"][0])
OPENED = HANDSHAKE + b"".join(frames.method_frame(number, methods.ChannelOpen()) for number in (1, 2))

CHANNELS = st.sampled_from([1, 2])
TARGETS = st.builds(
    methods.BasicPublish,
    exchange=st.sampled_from(["", "logs"]),
    routing_key=st.sampled_from(["a", "b"]),
    mandatory=st.booleans(),
)
SIMPLE = st.sampled_from([Properties(), Properties(delivery_mode=2), Properties(delivery_mode=1, priority=5)])
BODIES = st.binary(max_size=40) | st.sampled_from([b"", b"same", b"also"])
BODY_FRAME_MAX = st.sampled_from([10, 20, FRAME_MAX])


def published(channel: int, publish: methods.BasicPublish, properties: Properties, body: bytes, size: int) -> bytes:
    return frames.method_frame(channel, publish) + content.write_content(properties, body, channel, size)


PUBLISH = st.builds(published, CHANNELS, TARGETS, SIMPLE | PROPERTIES, BODIES, BODY_FRAME_MAX)
ALIKE = st.builds(lambda one, count: one * count, PUBLISH, st.integers(2, 5))
TAGS = st.integers(0, 9) | st.integers(0, (1 << 64) - 1)
ACK = st.builds(
    frames.method_frame,
    CHANNELS,
    st.builds(methods.BasicAck, TAGS, st.booleans())
    | st.builds(methods.BasicReject, TAGS, st.booleans())
    | st.builds(methods.BasicNack, TAGS, st.booleans(), st.booleans()),
)
OTHER = st.sampled_from(
    [
        frames.HEARTBEAT_FRAME,
        frames.method_frame(1, methods.BasicQos()),
        frames.method_frame(2, methods.ConfirmSelect()),
    ]
)
STREAM = st.lists(PUBLISH | ALIKE | ACK | OTHER, max_size=12).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stream of which some bytes are others, or gone."""
    stream = bytearray(draw(STREAM))
    for _ in range(draw(st.integers(1, 3))):
        if stream:
            at = draw(st.integers(0, len(stream) - 1))
            stream[at : at + 1] = draw(st.binary(max_size=2))
    return bytes(stream)


@dataclass(frozen=True, slots=True)
class Message:
    channel: int
    publish: methods.Method
    wire: bytes


def plain_messages(data: bytes) -> tuple[list[Message], int]:
    """The publishes that stand whole and in order from the start on, read frame by frame; and where they end."""
    found: list[Message] = []
    stop = 0
    while True:
        at = stop
        method, at = _frame(data, at)
        if method is None or method.kind != frames.METHOD or method.payload[:4] != b"\x00\x3c\x00\x28":
            return found, stop
        start = at
        header, at = _frame(data, at)
        if header is None or header.kind != frames.HEADER or header.channel != method.channel:
            return found, stop
        left = content.read_header(header.payload).body_bytes
        while left > 0:
            body, at = _frame(data, at)
            if body is None or body.kind != frames.BODY or body.channel != method.channel:
                return found, stop
            left -= len(body.payload)
        found.append(Message(method.channel, methods.decode(method.payload), data[start:at]))
        stop = at


def _frame(data: bytes, at: int) -> tuple[frames.Frame | None, int]:
    return frames.read_frame(data, at, FRAME_MAX) or (None, at)
