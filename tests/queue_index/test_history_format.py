"""History records: decoded events equal encoded ones, and invalid bytes are reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index.bad_bytes import value_or_error
from tests.queue_index.worked_rows import PLACE
from warren.base.errors import Damage, Misuse, Refused
from warren.queue_index.history_format import (
    DETAIL_BYTES_MAX,
    RANGES_MAX,
    RECORD,
    DequeueReason,
    HistoryEvent,
    HistoryRecord,
    check_detail,
    decode_event,
    encode_events,
    history_key,
)
from warren.records.format import ENTRY_BYTES_MAX

KEY = history_key(PLACE)
RANGE = st.tuples(st.integers(0, 2**63), st.integers(1, 2**62)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(
    st.sampled_from(HistoryRecord),
    st.sampled_from(DequeueReason) | st.none(),
    st.integers(0, 2**64 - 1),
    st.lists(RANGE, min_size=1, max_size=5),
    st.binary(max_size=20),
)
def test_an_event_comes_back_as_it_went(
    kind: HistoryRecord, reason: DequeueReason | None, wall_ms: int, ranges: list[tuple[int, int]], detail: bytes
) -> None:
    [raw] = encode_events(kind, reason, wall_ms, ranges, detail)
    assert decode_event(KEY, memoryview(raw)) == HistoryEvent(PLACE, kind, reason or 0, wall_ms, tuple(ranges), detail)


def test_the_numbers_of_what_happens_are_for_good() -> None:
    assert {each.name: int(each) for each in HistoryRecord} == {"DEQUEUED": 1, "REQUEUED": 2, "DELIVERED": 3}


def test_many_ranges_become_several_records_that_each_fit_an_entry() -> None:
    ranges = [(2 * at, 2 * at + 1) for at in range(RANGES_MAX + 1)]
    records = encode_events(HistoryRecord.DEQUEUED, DequeueReason.ACKED, 5, ranges, bytes(DETAIL_BYTES_MAX))
    assert [len(decode_event(KEY, record).ranges) for record in records] == [RANGES_MAX, 1]
    assert max(map(len, records)) + len(KEY) <= ENTRY_BYTES_MAX
    with pytest.raises(Misuse, match="a detail of 65536 bytes"):
        check_detail(PLACE, bytes(DETAIL_BYTES_MAX + 1))


def test_an_extension_of_a_later_version_is_skipped() -> None:
    [raw] = encode_events(HistoryRecord.DELIVERED, None, 5, [(1, 2)], b"ann")
    longer = bytearray(raw[: RECORD.size + 3] + b"later" + raw[RECORD.size + 3 :])
    longer[1], longer[2] = 0x20, 5
    assert decode_event(KEY, bytes(longer)) == decode_event(KEY, raw)


@pytest.mark.parametrize(("at", "byte"), [(0, 2), (1, 1), (4, 4)])
def test_a_record_of_another_version_is_refused_by_name(at: int, byte: int) -> None:
    raw = bytearray(encode_events(HistoryRecord.DELIVERED, None, 5, [(1, 2)], b"ann")[0])
    raw[at] = byte
    with pytest.raises(Refused, match="queue 258, level 3: a record of its history"):
        decode_event(KEY, bytes(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"\1",
        RECORD.pack(1, 0, 0, 1, 1, 0, 5, 0xFFFFFFFF),
        RECORD.pack(1, 0, 0, 1, 1, 9, 5, 0),
        RECORD.pack(1, 0, 0, 1, 1, 0, 5, 1) + bytes(16),
        RECORD.pack(1, 0, 0, 1, 1, 0, 5, 1) + bytes(17),
    ],
)
def test_a_record_that_does_not_fit_itself_is_damage(raw: bytes) -> None:
    with pytest.raises(Damage, match="queue 258, level 3: a record of its history"):
        decode_event(KEY, raw)
    with pytest.raises(Damage, match="names no queue"):
        decode_event(b"x" + KEY[1:], raw)


@given(st.binary(max_size=70) | st.binary(max_size=70).map(lambda tail: b"\1\0\0\0\1" + tail))
def test_any_bytes_are_an_event_or_an_error_of_ours(raw: bytes) -> None:
    reported = value_or_error(lambda: decode_event(KEY, raw))
    assert "queue 258, level 3" in reported if isinstance(reported, str) else reported.place == PLACE
