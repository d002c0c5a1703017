"""A connection from its first byte to its last: events, answers, discarded input."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp import streams
from tests.amqp.pairs import PROTOCOL_HEADER, STATES, to_send
from tests.amqp.plain_server import OFFER, PlainServer
from tests.amqp.streams import FRAME_MAX, HANDSHAKE, OPENED
from warren.amqp import connection as events
from warren.amqp import content, frames, methods
from warren.amqp.connection import RECEIVED, SENT, ConnectionProtocol, ConnectionState, ProtocolLimits, Tuning, offered
from warren.amqp.content import Properties
from warren.base.errors import Misuse

PUBLISH = methods.BasicPublish(routing_key="a")


def opened(limits: ProtocolLimits | None = None) -> PlainServer:
    """Running, channels 1 and 2 open."""
    server = PlainServer(limits) if limits else PlainServer()
    server.feed(OPENED)
    server.sent()
    return server


def flat(received: list[events.Event]) -> list[object]:
    """Events with runs taken apart, so that it does not matter how many messages stand in one."""
    found: list[object] = []
    for event in received:
        match event:
            case events.PublishesReceived(channel, publish, frame, traits, contents):
                found += [(channel, publish, frame, traits, wire) for wire in contents]
            case events.AcksReceived(channel, run):
                found += [(channel, run.method_id, run.is_multiple, run.requeue, tag) for tag in run.tags]
            case _:
                found.append(event)
    return found


def bodies(received: list[events.Event]) -> list[bytes]:
    runs = [event for event in received if isinstance(event, events.PublishesReceived)]
    return [content.body_of(wire) for run in runs for wire in run.contents]


# ------------------------------------------------------------------------------------------------------- handshake


def test_a_handshake_goes_from_the_first_bytes_to_running() -> None:
    server = PlainServer()
    server.feed(HANDSHAKE)
    assert server.connection.state is ConnectionState.RUNNING
    assert server.connection.tuning == Tuning(100, 4096, 0)
    assert server.sent() == [methods.ConnectionStart(), offered(OFFER), methods.ConnectionOpenOk()]


def test_what_is_sent_ahead_waits_until_we_have_answered() -> None:
    connection = ConnectionProtocol(OFFER)
    assert list(connection.receive(HANDSHAKE)) == [events.ProtocolHeaderReceived()]
    waiting = connection.waiting_bytes
    assert waiting == len(HANDSHAKE) - 8
    assert list(connection.receive(b"")) == []
    connection.send(0, methods.ConnectionStart())
    [received] = connection.receive(b"")
    assert isinstance(received, events.MethodReceived)
    assert isinstance(received.method, methods.ConnectionStartOk)
    assert connection.waiting_bytes < waiting


@pytest.mark.parametrize("wrong", [b"AMQP\x00\x00\x09\x00", b"GET / HTTP/1.1\r\n", bytes(9)])
def test_another_protocol_is_answered_with_ours_and_ended(wrong: bytes) -> None:
    server = PlainServer()
    answered, ended = server.feed(wrong)
    assert answered == events.ResponseReady(PROTOCOL_HEADER)
    assert isinstance(ended, events.ConnectionEnded)
    assert server.feed(HANDSHAKE) == []
    assert server.connection.waiting_bytes == 0


def test_the_header_of_0_9_is_near_enough() -> None:
    assert PlainServer().feed(b"AMQP\x01\x01\x00\x09") == [events.ProtocolHeaderReceived()]


def test_an_answer_beyond_the_offer_is_reported_though_the_handshake_is_not_over() -> None:
    server = PlainServer()
    for step in STATES["tuning 0"][0]:
        server.feed(step)
    [received] = server.feed(frames.method_frame(0, methods.ConnectionTuneOk(100, 1 << 20, 0)))
    assert isinstance(received, events.ConnectionViolated)
    assert received.close.reply_code == 530
    assert (received.close.class_id, received.close.method_id) == (10, 30)


def test_an_unauthenticated_client_may_not_send_frames_of_any_size() -> None:
    server = PlainServer(ProtocolLimits(initial_frame_max=4096))
    server.feed(PROTOCOL_HEADER)
    [ended] = server.feed(frames.HEAD.pack(frames.METHOD, 0, 1 << 20))
    assert isinstance(ended, events.ConnectionEnded)


# ---------------------------------------------------------------------------------------------------- cut anywhere


def cut_at(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in cuts if cut < len(stream)}), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


@given(streams.STREAM, st.lists(st.integers(0, 400), max_size=6))
def test_it_does_not_matter_where_a_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    whole = opened()
    whole.feed(stream)
    pieces = opened()
    for piece in cut_at(stream, cuts):
        pieces.feed(piece)
    assert flat(pieces.received) == flat(whole.received)
    assert pieces.connection.waiting_bytes == 0


@given(streams.STREAM)
def test_byte_by_byte_gives_the_same_events_as_all_at_once(stream: bytes) -> None:
    whole, slow = opened(), opened()
    whole.feed(stream)
    for place in range(len(stream)):
        slow.feed(stream[place : place + 1])
    assert flat(slow.received) == flat(whole.received)


@given(streams.damaged(), st.lists(st.integers(0, 400), max_size=4))
def test_a_damaged_stream_is_answered_alike_wherever_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    whole = opened()
    whole.feed(stream)
    pieces = opened()
    for piece in cut_at(stream, cuts):
        pieces.feed(piece)
    assert flat(pieces.received) == flat(whole.received)
    assert pieces.connection.state is whole.connection.state


# --------------------------------------------------------------------------------------------------------- contents


def test_publishes_that_came_together_are_one_event() -> None:
    server = opened()
    one = streams.published(1, PUBLISH, Properties(delivery_mode=2), b"x", FRAME_MAX)
    [received] = server.feed(one * 500)
    assert isinstance(received, events.PublishesReceived)
    assert (received.channel, received.publish, len(received.contents)) == (1, PUBLISH, 500)


def test_a_large_body_comes_frame_by_frame_and_is_one_content() -> None:
    server = opened()
    body = bytes(range(256)) * 1000
    stream = streams.published(1, PUBLISH, Properties(), body, FRAME_MAX)
    most = 0
    for at in range(0, len(stream), 1000):
        server.feed(stream[at : at + 1000])
        most = max(most, server.connection.waiting_bytes)
    assert bodies(server.received) == [body]
    assert most <= FRAME_MAX + 8


def test_contents_of_two_channels_may_interleave() -> None:
    server = opened()
    first = streams.published(1, PUBLISH, Properties(), b"a" * 30, 20)
    second = streams.published(2, PUBLISH, Properties(), b"b" * 30, 20)
    mixed = b"".join(one + two for one, two in zip(in_frames(first), in_frames(second), strict=True))
    server.feed(mixed)
    assert bodies(server.received) == [b"a" * 30, b"b" * 30]


def in_frames(data: bytes) -> list[bytes]:
    found, at = [], 0
    while read := frames.read_frame(data, at, 0):
        found.append(data[at : read[1]])
        at = read[1]
    return found


def test_a_publish_inside_of_another_one_is_an_unexpected_frame() -> None:
    server = opened()
    whole = streams.published(1, PUBLISH, Properties(), b"a" * 30, 20)
    server.feed(b"".join(in_frames(whole)[:3]))
    [received] = server.feed(whole)
    assert isinstance(received, events.ConnectionViolated)
    assert received.close.reply_code == 505


def test_empty_body_frames_are_legal_and_leave_no_trace() -> None:
    server = opened()
    method, header, body = in_frames(streams.published(1, PUBLISH, Properties(), b"hello", FRAME_MAX))
    empty = frames.write_frame(frames.BODY, 1, b"")
    [received] = server.feed(method + header + empty * 1000 + body)
    assert isinstance(received, events.PublishesReceived)
    assert received.contents == [header + body]


def test_a_body_longer_than_its_header_says_is_a_frame_error() -> None:
    server = opened()
    method, header, _ = in_frames(streams.published(1, PUBLISH, Properties(), b"hello", FRAME_MAX))
    [received] = server.feed(method + header + frames.write_frame(frames.BODY, 1, b"hello!"))
    assert isinstance(received, events.ConnectionViolated)
    assert (received.close.reply_code, received.close.class_id, received.close.method_id) == (501, 60, 40)


def test_a_message_that_is_too_large_closes_its_channel_only_and_is_not_kept() -> None:
    server = opened(ProtocolLimits(body_bytes_max=100))
    large = streams.published(1, PUBLISH, Properties(), bytes(300), 60)
    small = streams.published(2, PUBLISH, Properties(), b"small", 60)
    received = server.feed(large + large + small)
    violated = [event for event in received if isinstance(event, events.ChannelViolated)]
    assert [event.close.reply_code for event in violated] == [406]
    assert "message size 300 is larger than configured max size 100" in violated[0].close.reply_text
    assert bodies(received) == [b"small"]
    server.feed(frames.method_frame(1, methods.ChannelCloseOk()) + frames.method_frame(1, methods.ChannelOpen()))
    assert server.connection.is_open(1)


def test_properties_that_make_no_sense_are_a_syntax_error() -> None:
    server = opened()
    header = frames.write_frame(frames.HEADER, 1, content.HEADER_HEAD.pack(60, 0, 0) + b"\x80\x00\x09x")
    [received] = server.feed(frames.method_frame(1, PUBLISH) + header)
    assert isinstance(received, events.ConnectionViolated)
    assert received.close.reply_code == 501


def test_headers_that_no_consumer_could_read_are_refused_when_they_are_published() -> None:
    server = opened()
    good = streams.published(1, PUBLISH, Properties(headers={"a": 1}), b"", FRAME_MAX)
    bad = good.replace(b"\x01aI", b"\x01aQ")
    before, violated = server.feed(good + bad + good)
    assert isinstance(before, events.PublishesReceived)
    assert len(before.contents) == 1
    assert isinstance(violated, events.ConnectionViolated)
    assert violated.close.reply_code == 502


# --------------------------------------------------------------------------------------------------------- channels


def test_a_channel_that_the_server_closes_gets_no_more_of_what_was_sent_already() -> None:
    connection = opened().connection
    stream = b"".join(
        streams.published(channel, methods.BasicPublish(routing_key=key), Properties(), b"x", FRAME_MAX)
        for channel, key in ((1, "a"), (1, "b"), (2, "c"), (1, "d"))
    )
    seen: list[str] = []
    for event in connection.receive(stream + frames.method_frame(1, methods.BasicAck(7))):
        assert isinstance(event, events.PublishesReceived)
        seen.append(event.publish.routing_key)
        if event.channel == 1:
            connection.send(1, methods.ChannelClose(404, "NOT_FOUND"))
    assert seen == ["a", "c"]


def test_closes_of_a_channel_may_cross() -> None:
    server = opened()
    server.send(1, methods.ChannelClose(404, "NOT_FOUND"))
    assert server.feed(to_send("channel.close", 1)) == [
        events.ResponseReady(frames.method_frame(1, methods.ChannelCloseOk()))
    ]
    server.feed(to_send("channel.close-ok", 1))
    server.feed(to_send("channel.open", 1))
    assert server.connection.is_open(1)


def test_closes_of_a_connection_may_cross() -> None:
    server = opened()
    server.send(0, methods.ConnectionClose(320, "CONNECTION_FORCED"))
    assert server.feed(to_send("connection.close", 0)) == [
        events.ResponseReady(frames.method_frame(0, methods.ConnectionCloseOk()))
    ]
    [ended] = server.feed(to_send("connection.close-ok", 0))
    assert isinstance(ended, events.ConnectionEnded)
    assert ended.was_orderly


def test_one_channel_more_than_was_agreed_is_not_allowed() -> None:
    """Channels are counted; their numbers may be any."""
    server = opened()
    for number in range(40_003, 40_101):
        [opening] = server.feed(frames.method_frame(number, methods.ChannelOpen()))
        assert isinstance(opening, events.MethodReceived)
    [received] = server.feed(frames.method_frame(3, methods.ChannelOpen()))
    assert isinstance(received, events.ConnectionViolated)
    assert received.close.reply_code == 530
    assert server.connection.open_channels == []


def test_a_connection_that_closes_lets_its_channels_go() -> None:
    server = opened()
    assert server.connection.open_channels == [1, 2]
    server.feed(to_send("connection.close", 0))
    assert server.connection.open_channels == []
    assert server.connection.state is ConnectionState.CLOSED


def test_lost_frame_boundaries_end_the_connection_with_a_close() -> None:
    server = opened()
    violated, ended = server.feed(b"\x01\x00\x01\x00\x00\x00\x00\x00")
    assert isinstance(violated, events.ConnectionViolated)
    assert violated.close.reply_code == 501
    assert isinstance(ended, events.ConnectionEnded)
    assert server.feed(to_send("connection.close", 0)) == []


def test_a_heartbeat_is_reported() -> None:
    assert opened().feed(frames.HEARTBEAT_FRAME) == [events.HeartbeatReceived()]


def test_a_tag_above_all_that_we_give_out_arrives_like_any_other() -> None:
    [received] = opened().feed(frames.method_frame(1, methods.BasicNack((1 << 64) - 1, multiple=True, requeue=False)))
    assert isinstance(received, events.AcksReceived)
    assert (received.run.tags, received.run.is_multiple, received.run.requeue) == ([(1 << 64) - 1], True, False)


# ---------------------------------------------------------------------------------------------------------- sending


@pytest.mark.parametrize(
    ("channel", "method"),
    [
        (0, methods.ConnectionTune()),
        (0, methods.BasicQosOk()),
        (1, methods.BasicPublish()),
        (1, methods.ChannelCloseOk()),
        (3, methods.BasicQosOk()),
    ],
)
def test_sending_an_illegal_method_is_misuse(channel: int, method: methods.Method) -> None:
    with pytest.raises(Misuse, match=method.SPEC.name):
        opened().connection.send(channel, method)


def test_a_content_is_sent_behind_its_method_in_frames_of_the_agreed_size() -> None:
    stored = content.write_content(Properties(), bytes(10_000), 7, 0)
    data = opened().connection.send_content(1, methods.BasicGetOk(1), stored)
    method, *rest = in_frames(data)
    assert method == frames.method_frame(1, methods.BasicGetOk(1))
    assert b"".join(rest) == content.write_content(Properties(), bytes(10_000), 1, 4096)
    with pytest.raises(Misuse, match="no content"):
        opened().connection.send_content(1, methods.BasicQosOk(), stored)


def test_every_state_has_its_row_in_both_tables() -> None:
    assert RECEIVED.keys() == SENT.keys() == set(ConnectionState)
    assert {after for moves in (*RECEIVED.values(), *SENT.values()) for after in moves.values()} == set(
        ConnectionState
    ) - {
        ConnectionState.PREFACE,
        ConnectionState.GREETING,
    }
