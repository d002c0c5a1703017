"""Frames: whole, cut, too large, badly ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp import frames, methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.frames import Frame
from warren.base.errors import Misuse

KINDS = st.sampled_from([frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT])
FRAMES = st.builds(Frame, KINDS, st.integers(0, 65535), st.binary(max_size=300))


def read_all(data: bytes) -> list[Frame]:
    found: list[Frame] = []
    at = 0
    while read := frames.read_frame(data, at, 0):
        frame, at = read
        found.append(frame)
    assert at == len(data)
    return found


@given(st.lists(FRAMES, max_size=8))
def test_frames_that_are_written_one_behind_the_other_are_read_one_by_one(some: list[Frame]) -> None:
    assert read_all(b"".join(frames.write_frame(*frame) for frame in some)) == some


def test_a_frame_that_has_not_come_whole_is_waited_for() -> None:
    raw = frames.write_frame(frames.BODY, 1, b"abc")
    for cut in range(len(raw)):
        assert frames.read_frame(raw[:cut], 0, 4096) is None
    assert frames.read_frame(raw, 0, 4096) == (Frame(frames.BODY, 1, b"abc"), len(raw))


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    with pytest.raises(PeerError, match="has 4097 bytes, 4088 is the most") as caught:
        frames.read_frame(frames.HEAD.pack(frames.BODY, 7, 4097), 0, 4096)
    assert caught.value.code is ReplyCode.FRAME_ERROR


def test_a_peer_may_miscount_by_an_empty_frame() -> None:
    assert frames.read_frame(frames.write_frame(frames.BODY, 1, bytes(4096)), 0, 4096) is not None


def test_a_size_whose_highest_bit_is_set_is_too_large_and_not_negative() -> None:
    with pytest.raises(PeerError, match="4294967295 bytes"):
        frames.read_frame(b"\x03\x00\x01\xff\xff\xff\xff", 0, 131072)


def test_a_frame_that_ends_in_something_else_is_a_frame_error() -> None:
    raw = frames.write_frame(frames.BODY, 1, b"abc")
    with pytest.raises(PeerError, match="ends in 0x00"):
        frames.read_frame(raw[:-1] + b"\x00", 0, 4096)


def test_a_method_frame_holds_the_method() -> None:
    raw = frames.method_frame(3, methods.BasicQosOk())
    assert raw == b"\x01\x00\x03\x00\x00\x00\x04\x00\x3c\x00\x0b\xce"


def test_a_heartbeat_is_eight_bytes() -> None:
    assert frames.HEARTBEAT_FRAME == b"\x08\x00\x00\x00\x00\x00\x00\xce"


def test_a_channel_that_does_not_exist_is_the_callers_mistake() -> None:
    with pytest.raises(Misuse, match="no channel 65536"):
        frames.write_frame(frames.BODY, 65536, b"")


@given(st.binary(max_size=200), st.sampled_from([0, 4096]))
def test_whatever_bytes_come_the_answer_is_a_frame_a_wait_or_a_refusal(data: bytes, frame_max: int) -> None:
    try:
        read = frames.read_frame(data, 0, frame_max)
    except PeerError:
        return
    assert read is None or frames.write_frame(*read[0]) == data[: read[1]]
