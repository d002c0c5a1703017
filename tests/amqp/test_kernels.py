"""The kernels, compiled and pure, against each other and against the plain decoder."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp import streams
from tests.amqp.amqp_samples import PROPERTIES
from tests.amqp.streams import FRAME_MAX, Message
from tests.amqp.uncompiled import uncompiled
from warren.amqp import content, frames, kernels, methods
from warren.amqp.content import Properties, write_properties
from warren.amqp.errors import PeerError
from warren.base.errors import Damage, Misuse

BODY_MAX = 1000


PURE = uncompiled("kernels")
BOTH = pytest.mark.parametrize("kernel", [kernels, PURE], ids=["as built", "pure"])


def scanned(kernel: Any, data: bytes, at: int = 0) -> tuple[int, bool, list[tuple[int, int, bytes, int, list[bytes]]]]:
    stop, is_waiting, runs = kernel.scan(data, at, FRAME_MAX, BODY_MAX)
    return stop, is_waiting, [(run.start, run.stop, run.frame, run.traits, run.contents) for run in runs]


def acks(kernel: Any, data: bytes) -> tuple[int, list[tuple[int, int, bool, bool, list[int]]]]:
    stop, runs = kernel.parse_acks(data, 0)
    return stop, [(run.channel, run.method_id, run.is_multiple, run.requeue, run.tags) for run in runs]


def messages(runs: list[tuple[int, int, bytes, int, list[bytes]]]) -> list[Message]:
    return [
        Message(int.from_bytes(frame[1:3], "big"), methods.decode(frame[7:-1]), wire)
        for _, _, frame, _, contents in runs
        for wire in contents
    ]


# ------------------------------------------------------------------------------------------------------------ scan


@BOTH
@given(st.lists(streams.PUBLISH | streams.ALIKE, max_size=8).map(b"".join), st.sampled_from([b"", b"\x08"]))
def test_scan_finds_what_the_plain_decoder_finds(kernel: Any, data: bytes, rest: bytes) -> None:
    stop, is_waiting, runs = scanned(kernel, data + rest)
    assert (stop, is_waiting) == (len(data), False)
    assert messages(runs) == streams.plain_messages(data)[0]


@given(streams.STREAM | streams.damaged() | st.binary(max_size=100), st.integers(0, 50))
def test_both_modes_scan_any_bytes_alike(data: bytes, at: int) -> None:
    at = min(at, len(data))
    assert scanned(kernels, data, at) == scanned(PURE, data, at)
    assert acks(kernels, data[at:]) == acks(PURE, data[at:])


@BOTH
@given(streams.PUBLISH, streams.PUBLISH, st.data())
def test_a_publish_cut_anywhere_is_left_whole_for_the_next_read(
    kernel: Any, first: bytes, second: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(second) - 1))
    stop, is_waiting, runs = scanned(kernel, first + second[:cut])
    assert stop == len(first)
    assert len(messages(runs)) == 1
    method_size = 8 + int.from_bytes(second[3:7], "big")
    if cut < method_size:
        assert not is_waiting  # it is not known yet to be a publish
    assert messages(scanned(kernel, first + second)[2])[1:] == streams.plain_messages(second)[0]


@BOTH
@given(streams.damaged())
def test_what_scan_takes_of_a_damaged_stream_the_plain_decoder_takes_too(kernel: Any, data: bytes) -> None:
    stop, _, runs = scanned(kernel, data)
    try:
        found = messages(runs)
    except PeerError:
        return  # the method frame itself is damaged: it is decoded once for a run, by the receiver of the run
    assert found == streams.plain_messages(data[:stop])[0]


@BOTH
def test_runs_are_split_by_method_frame_and_by_kind_of_properties(kernel: Any) -> None:
    to_a, to_b = methods.BasicPublish(routing_key="a"), methods.BasicPublish(routing_key="b")
    lasting, passing = Properties(delivery_mode=2), Properties(delivery_mode=1)
    shapes = [(1, to_a, lasting), (1, to_a, lasting), (1, to_a, passing), (1, to_b, passing), (2, to_b, passing)]
    data = b"".join(streams.published(*shape, b"body", FRAME_MAX) for shape in shapes)
    stop, _, runs = scanned(kernel, data)
    assert [len(contents) for *_, contents in runs] == [2, 1, 1, 1]
    assert [start for start, *_ in runs] == [0, *(stop for _, stop, *_ in runs[:-1])]
    assert runs[-1][1] == stop == len(data)


@BOTH
def test_messages_that_differ_only_in_what_no_run_asks_for_stay_in_one_run(kernel: Any) -> None:
    data = b"".join(
        streams.published(
            1, methods.BasicPublish(), Properties(delivery_mode=2, message_id=str(n)), b"x" * n, FRAME_MAX
        )
        for n in range(50)
    )
    [run] = scanned(kernel, data)[2]
    assert len(run[4]) == 50


GOOD = streams.published(1, methods.BasicPublish(routing_key="a"), Properties(), b"hello", FRAME_MAX)
METHOD_BYTES = 8 + int.from_bytes(GOOD[3:7], "big")
HEADER_AT = METHOD_BYTES
BODY_AT = METHOD_BYTES + 8 + 14


@BOTH
@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, b"\x03"),  # not a method
        (3, b"\xff\xff\xff\xff"),  # a negative size
        (3, b"\x00\x10\x00\x00"),  # beyond frame_max
        (METHOD_BYTES - 1, b"\x00"),  # the method's end
        (HEADER_AT, b"\x03"),
        (HEADER_AT + 1, b"\x00\x02"),  # another channel
        (HEADER_AT + 3, b"\xff\xff\xff\xff"),
        (HEADER_AT + 7, b"\x00\x0a"),  # another class
        (HEADER_AT + 9, b"\x00\x01"),  # a weight
        (HEADER_AT + 11, b"\xff"),  # a negative body size
        (HEADER_AT + 11, b"\x00\x00\x00\x00\x00\x00\x04"),  # a body beyond the limit
        (HEADER_AT + 11, b"\x00\x00\x00\x00\x00\x00\x00\x04"),  # one that is shorter than its frame
        (HEADER_AT + 19, b"\x80"),  # a property that is not there
        (BODY_AT - 1, b"\x00"),
        (BODY_AT, b"\x01"),
        (BODY_AT + 1, b"\x00\x02"),
        (BODY_AT + 3, b"\xff\xff\xff\xff"),
        (BODY_AT + 3, b"\x00\x00\x00\x00"),  # an empty body frame
        (len(GOOD) - 1, b"\x00"),
    ],
)
def test_scan_stops_before_what_is_not_in_order(kernel: Any, at: int, wrong: bytes) -> None:
    bad = GOOD[:at] + wrong + GOOD[at + len(wrong) :]
    stop, is_waiting, runs = scanned(kernel, GOOD + GOOD + bad + GOOD)
    assert (stop, is_waiting) == (2 * len(GOOD), False)
    assert [len(contents) for *_, contents in runs] == [2]


@BOTH
def test_scan_stops_before_frames_larger_than_agreed(kernel: Any) -> None:
    large = streams.published(1, methods.BasicPublish(), Properties(), bytes(5000), 0)
    wordy = streams.published(1, methods.BasicPublish(), Properties(headers={"a": "x" * 5000}), b"", 0)
    for data in (large, wordy):
        assert kernel.scan(GOOD + data, 0, FRAME_MAX, 10_000)[0] == len(GOOD)
        assert kernel.scan(GOOD + data, 0, 8192, 10_000)[0] == len(GOOD + data)
        assert kernel.scan(GOOD + data, 0, 0, 10_000)[0] == len(GOOD + data)


@BOTH
def test_the_content_of_another_channel_belongs_to_another_publish(kernel: Any) -> None:
    other = content.write_content(Properties(), b"hello", 2, FRAME_MAX)
    assert scanned(kernel, GOOD + GOOD[:METHOD_BYTES] + other)[:2] == (len(GOOD), False)


@BOTH
def test_an_empty_body_frame_in_between_is_left_to_the_plain_decoder(kernel: Any) -> None:
    empty = frames.write_frame(frames.BODY, 1, b"")
    assert scanned(kernel, GOOD + GOOD[:BODY_AT] + empty + GOOD[BODY_AT:])[:2] == (len(GOOD), False)


@BOTH
def test_a_body_in_several_frames_that_is_not_whole_is_not_waited_for(kernel: Any) -> None:
    data = streams.published(1, methods.BasicPublish(), Properties(), bytes(40), 20)
    assert scanned(kernel, data)[:2] == (len(data), False)
    assert scanned(kernel, data[:-1])[:2] == (0, False)


@BOTH
def test_equal_heads_do_not_hide_a_second_body_frame(kernel: Any) -> None:
    """The quick comparison leaves out the body: it must not be tricked by frames that hide in it."""
    split = streams.published(1, methods.BasicPublish(), Properties(), bytes(24), 20)
    joined = split[:-20] + b"\x05" + split[-19:]
    stop, _, runs = scanned(kernel, split + split + joined)
    assert stop == 2 * len(split)
    assert sum(len(contents) for *_, contents in runs) == 2


# ------------------------------------------------------------------------------------------------------------ acks


@BOTH
@given(st.lists(streams.ACK, max_size=20), streams.OTHER)
def test_acks_come_out_as_the_plain_decoder_reads_them(kernel: Any, some: list[bytes], rest: bytes) -> None:
    stop, runs = acks(kernel, b"".join(some) + rest)
    small = [methods.decode(raw[7:-1]) for raw in some]
    until = next((n for n, one in enumerate(small) if getattr(one, "delivery_tag", 0) >> 63), len(some))
    assert stop == 21 * until
    flat = [(channel, kind, multiple, requeue, tag) for channel, kind, multiple, requeue, tags in runs for tag in tags]
    assert flat == [_expected_ack(raw[2], one) for raw, one in zip(some[:until], small, strict=False)]
    kinds = [run[:4] for run in runs]
    assert all(one != next_one for one, next_one in pairwise(kinds))


def _expected_ack(channel: int, method: methods.Method) -> tuple[int, int, bool, bool, int]:
    match method:
        case methods.BasicAck(tag, multiple):
            return channel, 80, multiple, False, tag
        case methods.BasicReject(tag, requeue):
            return channel, 90, False, requeue, tag
        case methods.BasicNack(tag, multiple, requeue):
            return channel, 120, multiple, requeue, tag
    raise AssertionError(method)


# ------------------------------------------------------------------------------------------------------ deliveries


@BOTH
@given(
    st.sampled_from([1, 7, 300, 40_000, 65_535]),
    st.lists(st.tuples(PROPERTIES, st.binary(max_size=100), st.sampled_from([20, 60, 0])), max_size=5),
    st.integers(0, 6),
    st.sampled_from([60, 1 << 17, 0]),
)
def test_deliveries_are_what_the_plain_encoder_makes(
    kernel: Any,
    channel: int,
    drafts: list[tuple[Properties, bytes, int]],
    redelivered: int,
    frame_max: int,
) -> None:
    contents = [content.write_content(properties, body, 1, size) for properties, body, size in drafts]
    data = kernel.emit_deliveries(channel, b"ctag", b"logs", b"key", 7, redelivered, contents, frame_max)
    at = 0
    for place, (properties, body, _) in enumerate(drafts):
        deliver = methods.BasicDeliver("ctag", 7 + place, place < redelivered, "logs", "key")
        method, at = _whole(data, at)
        assert method == frames.Frame(frames.METHOD, channel, methods.encode(deliver))
        header, at = _whole(data, at)
        assert header.channel == channel
        assert content.read_header(header.payload).properties == write_properties(properties)
        pieces = b""
        while len(pieces) < len(body):
            piece, at = _whole(data, at)
            assert (piece.kind, piece.channel) == (frames.BODY, channel)
            assert not frame_max or len(piece.payload) <= frame_max - 8
            pieces += piece.payload
        assert pieces == body
    assert at == len(data)


@BOTH
def test_a_frame_too_large_for_the_consumer_is_cut(kernel: Any) -> None:
    stored = content.write_content(Properties(), bytes(9000), 1, 0)
    data = kernel.emit_deliveries(1, b"c", b"", b"k", 1, 0, [stored], 4096)
    assert data.endswith(content.write_content(Properties(), bytes(9000), 1, 4096))


def _whole(data: bytes, at: int) -> tuple[frames.Frame, int]:
    read = frames.read_frame(data, at, 0)
    assert read is not None
    return read


@BOTH
@given(st.data())
def test_a_stored_content_that_is_damaged_is_never_delivered(kernel: Any, data: st.DataObject) -> None:
    written = content.write_content(Properties(delivery_mode=2), bytes(50), 1, 30)
    cut = data.draw(st.integers(0, len(written) - 1))
    for wrong in (written[:cut], written + written[:1], written[1:]):
        with pytest.raises(Damage):
            kernel.emit_deliveries(2, b"c", b"", b"k", 1, 0, [wrong], 4096)


@BOTH
def test_a_name_that_no_delivery_can_hold_is_the_callers_mistake(kernel: Any) -> None:
    with pytest.raises(Misuse, match="255"):
        kernel.emit_deliveries(1, b"c" * 256, b"", b"", 1, 0, [], 4096)
