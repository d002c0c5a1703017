"""The fourteen properties and their flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.amqp_samples import PROPERTIES
from warren.amqp.content import Properties, read_properties, write_properties
from warren.amqp.errors import PeerError
from warren.base.errors import Misuse


@given(PROPERTIES)
def test_properties_that_are_written_read_the_same(properties: Properties) -> None:
    raw = write_properties(properties)
    assert read_properties(raw, 0, len(raw)) == properties


def test_flags_stand_from_the_highest_bit_down() -> None:
    assert write_properties(Properties(content_type="a")) == b"\x80\x00\x01a"
    assert write_properties(Properties(delivery_mode=2, priority=9)) == b"\x18\x00\x02\x09"
    assert write_properties(Properties(cluster_id="")) == b"\x00\x04\x00"
    assert write_properties(Properties(timestamp=1)) == b"\x00\x40" + bytes(7) + b"\x01"


def test_a_further_word_of_flags_may_follow_if_it_says_nothing() -> None:
    assert read_properties(b"\x10\x01\x00\x00\x02", 0, 5) == Properties(delivery_mode=2)
    with pytest.raises(PeerError, match="not known"):
        read_properties(b"\x10\x01\x80\x00\x02", 0, 5)


def test_the_bit_that_nothing_uses_is_ignored() -> None:
    assert read_properties(b"\x10\x02\x02", 0, 3) == Properties(delivery_mode=2)


@given(PROPERTIES)
def test_properties_cut_anywhere_or_too_long_are_refused(properties: Properties) -> None:
    raw = write_properties(properties)
    for wrong in [raw[:cut] for cut in range(len(raw))] + [raw + b"\x00"]:
        with pytest.raises(PeerError):
            read_properties(wrong, 0, len(wrong))


@given(st.binary(max_size=120))
def test_whatever_bytes_come_the_answer_is_properties_or_a_refusal(raw: bytes) -> None:
    try:
        properties = read_properties(raw, 0, len(raw))
    except PeerError:
        return
    assert read_properties(write_properties(properties), 0, len(write_properties(properties))) == properties


@pytest.mark.parametrize("wrong", [Properties(priority=256), Properties(timestamp=-1), Properties(type="x" * 256)])
def test_a_property_that_does_not_fit_is_the_callers_mistake(wrong: Properties) -> None:
    with pytest.raises(Misuse):
        write_properties(wrong)


def test_only_delivery_mode_two_is_persistent() -> None:
    assert Properties(delivery_mode=2).is_persistent
    assert not Properties(delivery_mode=1).is_persistent
    assert not Properties().is_persistent
