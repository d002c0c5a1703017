"""Keys, ack rows and counters rows: their bytes, which never change, and the handling of invalid bytes."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index.bad_bytes import value_or_error
from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import QueueId, SequenceId
from warren.base.messages import QueuePlace
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.row_format import (
    ACK_ROW,
    RUN_COUNT_MAX,
    RUN_ROW,
    Counters,
    ack_key,
    check_place,
    counters_key,
    decode_counters,
    decode_gone,
    encode_counters,
    encode_gone,
    read_key,
    run_key,
)

PLACE = QueuePlace(QueueId(7), 2)
COUNTERS = Counters(SequenceId(300), SequenceId(258), 30, 5000, SequenceId(260), is_clean=True)


def test_the_bytes_of_keys_are_golden() -> None:
    assert run_key(2, 0x0102) == b"r\x02" + bytes(6) + b"\x01\x02\x00"
    assert ack_key(2, 0x0102) == b"r\x02" + bytes(6) + b"\x01\x02\x01"
    assert counters_key(2) == b"c\x02"


def test_runs_lie_in_the_order_of_their_sequence_ids_each_with_its_ack_row_behind_it() -> None:
    firsts = [0, 1, 255, 256, 65535, 1 << 32, (1 << 64) - 1]
    keys = [key(2, first) for first in firsts for key in (run_key, ack_key)]
    assert keys == sorted(keys)
    assert [read_key(PLACE, key) for key in keys] == [(first, kind) for first in firsts for kind in (RUN_ROW, ACK_ROW)]


@pytest.mark.parametrize("key", [b"", b"c\x02", b"x\x02" + bytes(9), b"r\x03" + bytes(9), b"r\x02" + bytes(8) + b"\2"])
def test_a_key_that_is_no_runs_is_damage_and_names_the_queue(key: bytes) -> None:
    with pytest.raises(Damage, match="queue 7, level 2 has a row with the key"):
        read_key(PLACE, key)


@pytest.mark.parametrize("level", [-1, 256])
def test_a_level_that_no_key_can_hold_is_misuse(level: int) -> None:
    with pytest.raises(Misuse, match="a level is from 0 to 255"):
        check_place(QueuePlace(QueueId(7), level))


def test_the_numbers_of_reasons_are_for_good() -> None:
    assert [(reason.name, int(reason)) for reason in DequeueReason] == [
        ("ACKED", 1),
        ("EXPIRED", 2),
        ("OVER_LIMIT", 3),
        ("REJECTED", 4),
        ("PURGED", 5),
        ("QUEUE_DELETED", 6),
        ("MOVED", 7),
        ("TRANSACTION", 9),
        ("DELIVERY_LIMIT", 10),
    ]


# -- what is gone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "raw"),
    [
        (0, "01 00 0000 00000000"),
        (0b111, "01 00 0000 03000000"),
        (0b1010_0000_0111, "01 00 0000 03000000 4001"),
        (1 << 9, "01 00 0000 00000000 0002"),
    ],
)
def test_the_bytes_of_an_ack_row_are_golden(gone: int, raw: str) -> None:
    assert encode_gone(gone) == bytes.fromhex(raw)
    assert decode_gone(PLACE, 5, 12, bytes.fromhex(raw)) == gone


def test_what_is_acknowledged_in_order_takes_eight_bytes_however_much_it_is() -> None:
    assert len(encode_gone((1 << 16000) - 1)) == 8


@given(st.integers(1, RUN_COUNT_MAX).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, (1 << n) - 1))))
def test_a_bitmap_comes_back_as_it_went(case: tuple[int, int]) -> None:
    count, gone = case
    assert decode_gone(PLACE, 0, count, memoryview(encode_gone(gone))) == gone


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\1\0\0\0" + tail), st.integers(1, 70))
def test_any_bytes_are_a_bitmap_within_the_run_or_an_error_of_ours(raw: bytes, count: int) -> None:
    reported = value_or_error(lambda: decode_gone(PLACE, 5, count, raw))
    assert "queue 7, level 2, sequence id 5" in reported if isinstance(reported, str) else 0 <= reported < 1 << count


@pytest.mark.parametrize("raw", ["", "01 00", "01 00 0000 0d000000", "01 00 0000 ffffffff", "01 00 0000 04000000 0001"])
def test_an_ack_row_with_more_messages_than_there_are_is_damage(raw: str) -> None:
    with pytest.raises(Damage, match="queue 7, level 2, sequence id 5: the ack row"):
        decode_gone(PLACE, 5, 12, bytes.fromhex(raw))


# -- counters --------------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_counters_row_are_golden() -> None:
    raw = struct.pack("<BBHQQQQQ", 1, 1, 0, 300, 258, 30, 5000, 260)
    assert encode_counters(COUNTERS) == raw
    assert decode_counters(PLACE, raw) == COUNTERS
    assert decode_counters(PLACE, memoryview(encode_counters(replace(COUNTERS, is_clean=False)))).is_clean is False


def test_what_a_later_version_adds_is_skipped() -> None:
    raw = bytearray(encode_counters(COUNTERS))
    raw[1] |= 0x80
    raw[2] = 3
    assert decode_counters(PLACE, bytes(raw) + b"new") == COUNTERS
    ack = bytearray(encode_gone(0b1010))
    ack[1], ack[2] = 0x40, 2
    assert decode_gone(PLACE, 5, 12, bytes(ack[:8]) + b"xy" + bytes(ack[8:])) == 0b1010


@pytest.mark.parametrize("change", [(0, 2), (0, 0), (1, 0x02), (1, 0x08)])
def test_an_incompatible_later_version_is_refused_by_name(change: tuple[int, int]) -> None:
    raw = bytearray(encode_counters(COUNTERS))
    raw[change[0]] = change[1]
    with pytest.raises(Refused, match="queue 7, level 2: the counters row"):
        decode_counters(PLACE, bytes(raw))


@pytest.mark.parametrize("fields", [(5, 6, 0, 0, 0), (5, 0, 6, 0, 0), (5, 5, 1, 0, 0), (5, 0, 0, 0, 6)])
def test_counters_that_contradict_themselves_are_damage(fields: tuple[int, ...]) -> None:
    raw = struct.pack("<BBHQQQQQ", 1, 0, 0, *fields)
    with pytest.raises(Damage, match="contradicts itself"):
        decode_counters(PLACE, raw)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\1\0\0\0" + tail))
def test_any_bytes_are_counters_or_an_error_of_ours(raw: bytes) -> None:
    reported = value_or_error(lambda: decode_counters(PLACE, raw))
    assert "queue 7, level 2" in reported if isinstance(reported, str) else reported.head <= reported.next
