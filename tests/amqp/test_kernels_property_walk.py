"""The walk over properties agrees with the decoder that opens them, compiled and pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.amqp_samples import PROPERTIES
from tests.amqp.test_types import TABLES, framed, nested
from tests.amqp.uncompiled import uncompiled
from warren.amqp import kernels, types
from warren.amqp.content import DIRECT_REPLY_TO, Properties, read_properties, write_properties
from warren.amqp.errors import PeerError

PURE = uncompiled("kernels")
BOTH = pytest.mark.parametrize("walk", [kernels, PURE], ids=["as built", "pure"])


def traits(properties: Properties) -> int:
    return (
        (properties.delivery_mode or 0)
        | (properties.priority or 0) << 8
        | (kernels.HAS_HEADERS if properties.headers is not None else 0)
        | (kernels.HAS_EXPIRATION if properties.expiration is not None else 0)
        | (kernels.HAS_USER_ID if properties.user_id is not None else 0)
        | (kernels.HAS_DIRECT_REPLY if properties.reply_to == DIRECT_REPLY_TO else 0)
    )


@BOTH
@given(PROPERTIES)
def test_traits_agree_with_the_properties(walk: Any, properties: Properties) -> None:
    raw = write_properties(properties)
    assert walk.traits_of(raw) == traits(properties)
    for wrong in [raw[:cut] for cut in range(len(raw))] + [raw + b"\x00"]:
        assert walk.traits_of(wrong) < 0


def is_read(raw: bytes) -> bool:
    try:
        types.read_table(framed(raw), 0, len(raw) + 4)
    except PeerError:
        return False
    return True


@BOTH
@given(TABLES.map(types.write_table), st.data())
def test_a_table_is_in_order_where_the_decoder_reads_it(walk: Any, raw: bytes, data: st.DataObject) -> None:
    body = bytearray(raw[4:])
    assert walk.is_table(bytes(body), 0, len(body))
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + 1] = data.draw(st.binary(max_size=2))
        assert walk.is_table(bytes(body), 0, len(body)) == is_read(bytes(body))


@BOTH
@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_where_the_decoder_reads_them(walk: Any, raw: bytes) -> None:
    assert walk.is_table(raw, 0, len(raw)) == is_read(raw)


@BOTH
@pytest.mark.parametrize("depth", [types.DEPTH_MAX, types.DEPTH_MAX + 1, 5000])
def test_tables_nest_as_deep_as_the_decoder_goes(walk: Any, depth: int) -> None:
    raw = nested(depth)[4:]
    assert walk.is_table(raw, 0, len(raw)) == is_read(raw) == (depth <= types.DEPTH_MAX)


@BOTH
def test_tables_hold_as_many_values_as_the_decoder_takes(walk: Any) -> None:
    for count in (types.VALUES_MAX - 1, types.VALUES_MAX):
        raw = b"\x01aA" + framed(b"V" * count)
        assert walk.is_table(raw, 0, len(raw)) == is_read(raw) == (count < types.VALUES_MAX)


@BOTH
@given(st.binary(max_size=40))
def test_what_the_walk_passes_is_refused_by_the_decoder_for_its_texts_only(walk: Any, raw: bytes) -> None:
    if walk.traits_of(raw) >= 0:
        try:
            read_properties(raw, 0, len(raw))
        except PeerError as error:
            if "not UTF-8" not in str(error):
                raise
    else:
        assert (raw[1:2] and raw[1] & 1) or not is_properties(raw)


def is_properties(raw: bytes) -> bool:
    try:
        read_properties(raw, 0, len(raw))
    except PeerError:
        return False
    return True


def test_the_limits_are_those_of_the_decoder() -> None:
    assert (kernels.DEPTH_MAX, kernels.VALUES_MAX) == (types.DEPTH_MAX, types.VALUES_MAX)
