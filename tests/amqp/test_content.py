"""Contents: header and body frames, cut anew for another channel or frame size without a byte of them lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.amqp_samples import PROPERTIES
from warren.amqp import content, frames
from warren.amqp.content import Properties
from warren.amqp.errors import PeerError, ReplyCode

BODIES = st.binary(max_size=100)
FRAME_MAX = st.integers(9, 60) | st.just(0)


@given(PROPERTIES, BODIES, st.integers(1, 9), FRAME_MAX)
def test_a_content_holds_its_properties_and_its_body(
    properties: Properties, body: bytes, channel: int, frame_max: int
) -> None:
    written = content.write_content(properties, body, channel, frame_max)
    assert content.properties_of(written) == properties
    assert content.body_of(written) == body
    assert content.header_of(written).body_bytes == len(body)


@given(PROPERTIES, BODIES, FRAME_MAX, FRAME_MAX, st.integers(1, 65535))
def test_a_content_that_is_cut_anew_is_the_one_that_would_have_been_made(
    properties: Properties, body: bytes, before: int, after: int, channel: int
) -> None:
    written = content.write_content(properties, body, 1, before)
    assert content.reframed(written, channel, after) == content.write_content(properties, body, channel, after)


def test_an_empty_body_has_no_frame() -> None:
    written = content.write_content(Properties(), b"", 1, 4096)
    assert len(written) == frames.EMPTY_FRAME_BYTES + content.HEADER_HEAD.size + 2


def test_a_body_of_just_a_frame_is_one_frame() -> None:
    assert len(content.body_frames(bytes(4088), 1, 4096)) == 4096
    assert len(content.body_frames(bytes(4089), 1, 4096)) == 4096 + 9


@given(PROPERTIES, PROPERTIES, BODIES)
def test_another_header_leaves_the_body_as_it_is(first: Properties, second: Properties, body: bytes) -> None:
    changed = content.with_properties(content.write_content(first, body, 1, 30), second)
    assert changed == content.write_content(second, body, 1, 30)


def test_contents_that_do_not_add_up_are_refused_and_not_delivered() -> None:
    written = content.write_content(Properties(), b"hello", 1, 4096)
    for wrong in [
        written[: -len(b"hello") - 8],
        written[:-1],
        written + b"\x00",
        written[8:],
        b"",
        written[:-1] + b"\x00",
    ]:
        with pytest.raises(PeerError) as caught:
            content.reframed(wrong, 2, 4096)
        assert caught.value.code is ReplyCode.FRAME_ERROR


def test_a_header_with_a_weight_is_unexpected() -> None:
    with pytest.raises(PeerError, match="weight 1") as caught:
        content.read_header(b"\x00\x3c\x00\x01" + bytes(10))
    assert caught.value.code is ReplyCode.UNEXPECTED_FRAME


@given(st.binary(max_size=120))
def test_whatever_bytes_a_content_is_made_of_it_is_opened_or_refused(raw: bytes) -> None:
    for opened in (content.properties_of, content.body_of):
        try:
            found = opened(raw)
        except PeerError:
            continue
        assert found is not None
