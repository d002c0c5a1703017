"""Field tables: every type both ways, and whatever bytes come, an answer within bounds."""

from __future__ import annotations

import struct
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp import types
from warren.amqp.errors import Malformed, ReplyCode, Truncated
from warren.base.errors import Misuse

FLOAT32 = st.floats(width=32, allow_nan=False)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-128, 127).map(types.Byte),
    st.integers(0, 255).map(types.UnsignedByte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(types.Short),
    st.integers(0, (1 << 16) - 1).map(types.UnsignedShort),
    st.integers(0, (1 << 32) - 1).map(types.UnsignedInt),
    st.integers(-(1 << 63), (1 << 63) - 1).map(types.Long),
    st.integers(0, (1 << 64) - 1).map(types.Timestamp),
    FLOAT32.map(types.Float),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.binary().map(lambda raw: types.RawString(b"\xff" + raw)),
    st.builds(lambda n, p: Decimal((0, tuple(map(int, str(n))), -p)), st.integers(0, (1 << 32) - 1), st.integers(0, 9)),
)
NAMES = st.text(max_size=60)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(NAMES, v, max_size=4), max_leaves=20)
TABLES = st.dictionaries(NAMES, VALUES, max_size=8)


def read(raw: bytes) -> dict[str, Any]:
    table, stop = types.read_table(raw, 0, len(raw))
    assert stop == len(raw)
    return table


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: kinds(each) for name, each in value.items()}
    return [kinds(each) for each in value] if isinstance(value, list) else type(value)


@given(TABLES)
def test_a_table_that_is_written_reads_the_same_with_its_types(table: dict[str, Any]) -> None:
    raw = types.write_table(table)
    back = read(raw)
    assert back == table
    assert kinds(back) == kinds(table)
    assert types.write_table(back) == raw


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (b"t\x02", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", (1 << 32) - 1),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),  # not unsigned: RabbitMQ reads both letters alike
        (b"T" + b"\xff" * 8, (1 << 64) - 1),
        (b"f\x3f\x80\x00\x00", 1.0),
        (b"d\x3f\xf0" + bytes(6), 1.0),
        (b"D\x02\x00\x00\x00\x96", Decimal("1.50")),
        (b"D\x00\xff\xff\xff\xff", Decimal((1 << 32) - 1)),  # unsigned, unlike the letter of the standard
        (b"S\x00\x00\x00\x02hi", "hi"),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
        (b"x\x00\x00\x00\x02hi", b"hi"),
        (b"V", None),
        (b"A\x00\x00\x00\x03Vt\x01", [None, True]),
        (b"F\x00\x00\x00\x03\x01kV", {"k": None}),
    ],
)
def test_each_type_is_read_as_rabbitmq_reads_it(wire: bytes, value: Any) -> None:
    assert read(framed(b"\x01a" + wire)) == {"a": value}


def test_a_plain_number_takes_as_much_room_as_it_needs() -> None:
    assert types.write_table({"a": 7})[4:] == b"\x01aI\x00\x00\x00\x07"
    assert types.write_table({"a": 1 << 31})[4:] == b"\x01al\x00\x00\x00\x00\x80\x00\x00\x00"


def test_of_two_entries_with_one_name_the_first_counts() -> None:
    assert read(framed(b"\x01at\x01\x01at\x00")) == {"a": True}


def test_a_name_that_is_not_text_comes_back_as_it_was() -> None:
    raw = framed(b"\x02\xff\xfeV")
    assert types.write_table(read(raw)) == raw


def nested(depth: int) -> bytes:
    raw = framed(b"")
    for _ in range(depth - 1):
        raw = framed(b"\x01aF" + raw)
    return raw


def test_tables_nest_thirty_two_deep_and_no_deeper() -> None:
    read(nested(types.DEPTH_MAX))
    with pytest.raises(Malformed, match="nested deeper than 32") as caught:
        read(nested(types.DEPTH_MAX + 1))
    assert caught.value.code is ReplyCode.RESOURCE_ERROR


def test_nesting_beyond_the_stack_of_calls_is_refused_like_any_other() -> None:
    with pytest.raises(Malformed, match="nested deeper"):
        read(nested(20_000))


def test_an_array_of_more_values_than_allowed_is_refused() -> None:
    with pytest.raises(Malformed, match="more than 65536 values"):
        read(framed(b"\x01aA" + framed(b"V" * types.VALUES_MAX)))


@pytest.mark.parametrize(
    ("body", "what", "at"),
    [
        (b"\x01aQ", "no type of a table's value", 6),
        (b"\x01a", "a value is missing", 6),
        (b"\x09a", "the name of a value is cut off", 4),
        (b"\x01aI\x00", "'I' is cut off", 6),
        (b"\x01aS\x00\x00\x00\x09x", "a string of 9 bytes is cut off", 7),
        (b"\x01aS\x00", "the size of a string is missing", 7),
        (b"\x01aF\x00\x00\x00\x09x", "a table or array of 9 bytes is cut off", 7),
        (b"\x01aA\x00", "the size of a table or array is missing", 7),
        (b"\x01aD\x00", "a decimal is cut off", 6),
    ],
)
def test_an_error_in_a_table_names_its_offset(body: bytes, what: str, at: int) -> None:
    with pytest.raises(Malformed, match=what) as caught:
        read(framed(body))
    assert caught.value.at == at
    assert f"at byte {at}" in str(caught.value)


def test_a_value_may_not_reach_beyond_the_table_it_is_in() -> None:
    inner = struct.pack(">I", 3) + b"\x01aI"  # its four bytes would come from the outer table
    with pytest.raises(Truncated):
        read(framed(b"\x01bF" + inner + b"\x01ct\x01"))


@given(st.binary(max_size=300))
def test_whatever_bytes_come_the_answer_is_a_table_or_a_refusal(body: bytes) -> None:
    try:
        table, _ = types.read_table(framed(body), 0, len(body) + 4)
    except Malformed:
        return
    written = types.write_table(table)
    assert types.write_table(types.read_table(written, 0, len(written))[0]) == written


def test_memory_stays_within_bounds_for_the_widest_table() -> None:
    raw = framed(b"\x01aA" + framed(b"V" * (types.VALUES_MAX - 1)))
    tracemalloc.start()
    read(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * len(raw)


@pytest.mark.parametrize(
    "value",
    [1 << 63, types.Byte(200), object(), Decimal("-1"), Decimal("1e5"), Decimal("NaN"), Decimal(1 << 40), 1j, "\ud800"],
)
def test_what_a_table_cannot_hold_is_the_callers_mistake(value: Any) -> None:
    with pytest.raises(Misuse):
        types.write_table({"a": value})


def test_what_is_nested_too_deep_to_be_read_is_not_written() -> None:
    table: dict[str, Any] = {}
    for _ in range(types.DEPTH_MAX):
        table = {"a": table}
    with pytest.raises(Misuse, match="nested"):
        types.write_table(table)


def test_a_short_string_holds_255_bytes() -> None:
    assert types.read_short_string(types.write_short_string("é" * 127), 0, 255) == ("é" * 127, 255)
    with pytest.raises(Misuse, match="255"):
        types.write_short_string("é" * 128)


@pytest.mark.parametrize("raw", [b"", b"\x02a", b"\x01\xff"])
def test_a_short_string_that_is_cut_or_no_text_is_a_frame_error(raw: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        types.read_short_string(raw, 0, len(raw))
    assert caught.value.code is ReplyCode.FRAME_ERROR
