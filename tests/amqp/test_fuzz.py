"""Arbitrary input: no exception, and no more memory than was sent or permitted."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp import streams
from tests.amqp.pairs import PROTOCOL_HEADER, TRIED, to_send
from tests.amqp.plain_server import PlainServer
from tests.amqp.streams import FRAME_MAX, OPENED
from warren.amqp import frames, methods
from warren.amqp.connection import ProtocolLimits
from warren.amqp.content import Properties

SEEDS = range(200)
STEPS = 60


def answers_are_whole(server: PlainServer) -> bool:
    """Whatever came, what goes out is frames that hold methods, or the header of the protocol that we speak."""
    server.out = server.out.removeprefix(PROTOCOL_HEADER)
    server.sent()
    return server.out == b""


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_random_bytes_never_raise(pieces: list[bytes]) -> None:
    for start in (b"", PROTOCOL_HEADER, OPENED):
        server = PlainServer()
        server.feed(start)
        for piece in pieces:
            server.feed(piece)
        assert answers_are_whole(server)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.binary(max_size=60)), max_size=8))
def test_random_frames_never_raise(drafts: list[tuple[int, int, bytes]]) -> None:
    server = PlainServer()
    server.feed(OPENED)
    for draft in drafts:
        server.feed(frames.write_frame(*draft))
    assert answers_are_whole(server)


@given(st.sampled_from(list(methods.METHODS)), st.integers(0, 2), st.binary(max_size=60))
def test_random_arguments_of_real_methods_never_raise(ids: tuple[int, int], channel: int, rest: bytes) -> None:
    server = PlainServer()
    server.feed(OPENED)
    payload = ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + rest
    server.feed(frames.write_frame(frames.METHOD, channel, payload))
    assert answers_are_whole(server)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_walks_through_all_pairs_never_raise(seed: int) -> None:
    rng = random.Random(seed)
    server = PlainServer()
    server.feed(OPENED if rng.random() < 0.9 else PROTOCOL_HEADER)
    for _ in range(STEPS):
        data = to_send(rng.choice(TRIED), rng.choice((0, 1, 1, 1, 2, 3)))
        if rng.random() < 0.05:
            data = data[: rng.randrange(len(data))]
        server.feed(data)
    assert answers_are_whole(server)


def _peak(server: PlainServer, pieces: list[bytes]) -> int:
    tracemalloc.start()
    for piece in pieces:
        server.feed(piece)
        server.received.clear()
        server.out = b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_an_unauthenticated_client_cannot_make_us_buffer_more_than_a_frame() -> None:
    server = PlainServer(ProtocolLimits(initial_frame_max=8192))
    server.feed(PROTOCOL_HEADER)
    claim = frames.HEAD.pack(frames.METHOD, 0, 8000)
    assert _peak(server, [claim, *[bytes(100)] * 70]) < 100_000


def test_empty_body_frames_without_end_take_no_memory() -> None:
    server = PlainServer()
    server.feed(OPENED)
    start = streams.published(1, methods.BasicPublish(), Properties(), b"x" * 5, FRAME_MAX)[: -(8 + 5)]
    empty = frames.write_frame(frames.BODY, 1, b"") * 500
    server.feed(start)
    assert _peak(server, [empty] * 40) < 100_000


def test_a_closing_channel_keeps_nothing_of_what_is_still_sent() -> None:
    server = PlainServer()
    server.feed(OPENED)
    server.send(1, methods.ChannelClose(404, "NOT_FOUND"))
    flood = streams.published(1, methods.BasicPublish(), Properties(), bytes(200_000), FRAME_MAX)
    pieces = [flood[at : at + 5000] for at in range(0, len(flood), 5000)] * 20
    assert _peak(server, pieces) < 200_000


def test_ever_new_targets_do_not_fill_the_memory() -> None:
    server = PlainServer()
    server.feed(OPENED)
    pieces = [
        streams.published(1, methods.BasicPublish(routing_key=f"key {n}"), Properties(), b"", FRAME_MAX)
        for n in range(5000)
    ]
    assert _peak(server, pieces) < 2_000_000
