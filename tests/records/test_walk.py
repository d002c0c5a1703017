"""From block to block: how far good ones go, what stopped them, and the way again behind it."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.samples import OTHER_LIFE, OURS, Row, entries_block, plain_block, three_blocks
from warren.records.format import BlockVerdict
from warren.records.walk import BlockWalk, extent, next_good, walk

WHOLE = three_blocks()
ENDS = [header.end for header in walk(memoryview(WHOLE), OURS).headers]


def walked(raw: bytes, start: int = 0, stop: int | None = None) -> BlockWalk:
    return walk(memoryview(raw), OURS, start, stop)


def test_a_walk_finds_every_block_in_order() -> None:
    found = walked(WHOLE)
    assert [header.offset for header in found.headers] == [0, *ENDS[:-1]]
    assert [header.epoch for header in found.headers] == [1, 1, 2]
    assert (found.end, found.stopped_by) == (len(WHOLE), BlockVerdict.EMPTY)


def test_the_running_checksum_runs_over_the_checksums_of_the_blocks() -> None:
    found = walked(WHOLE)
    running = 0
    for header, reported in zip(found.headers, found.runnings, strict=True):
        running = crc32(header.checksum.to_bytes(4, "little"), running)
        assert reported == running
    assert found.running == running
    assert walked(b"").running == 0


def test_a_walk_may_begin_and_stop_in_between() -> None:
    first = walked(WHOLE, stop=ENDS[0])
    assert (len(first.headers), first.end, first.stopped_by) == (1, ENDS[0], BlockVerdict.GOOD)
    rest = walk(memoryview(WHOLE), OURS, ENDS[0], running=first.running)
    assert rest.running == walked(WHOLE).running


@settings(deadline=None)
@given(st.integers(0, len(WHOLE)))
def test_a_cut_leaves_the_blocks_before_it(size: int) -> None:
    found = walked(WHOLE[:size])
    assert [header.end for header in found.headers] == [end for end in ENDS if end <= size]
    assert found.stopped_by is (BlockVerdict.EMPTY if size in (0, *ENDS) else BlockVerdict.TORN)


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_a_flipped_bit_stops_the_walk_at_its_block_and_the_next_good_one_is_found(bit: int) -> None:
    raw = bytearray(WHOLE)
    raw[bit // 8] ^= 1 << (bit % 8)
    index = next(i for i, end in enumerate(ENDS) if bit // 8 < end)
    found = walked(bytes(raw))
    assert len(found.headers) == index
    assert found.stopped_by is BlockVerdict.TORN
    behind = next_good(memoryview(raw), OURS, found.end + 8)
    assert (behind.end if behind else None) == (ENDS[index + 1] if index + 1 < len(ENDS) else None)


def test_blocks_of_an_earlier_life_stop_the_walk_and_are_passed_over() -> None:
    stale = plain_block(b"old", len(WHOLE), identity=OTHER_LIFE)
    raw = WHOLE + stale + plain_block(b"new", len(WHOLE) + len(stale))
    assert walked(raw).stopped_by is BlockVerdict.STALE
    behind = next_good(memoryview(raw), OURS, walked(raw).end + 8)
    assert behind is not None
    assert behind.offset == len(WHOLE) + len(stale)


@pytest.mark.parametrize("gap", [8, 4096, (1 << 20) - 8, 1 << 20, (1 << 20) + 8, 3 << 20])
def test_a_good_block_is_found_however_far_behind_it_stands(gap: int) -> None:
    raw = b"\xff" * gap + plain_block(b"far", gap)
    found = next_good(memoryview(raw), OURS, 0)
    assert found is not None
    assert found.offset == gap


def test_a_block_inside_a_value_is_not_found() -> None:
    """A value of the log is a copy of a log: its blocks have another offset in their headers."""
    raw = bytearray(entries_block([Row(key=b"backup", value=WHOLE)]))
    assert raw.find(WHOLE) > 0
    raw[0] ^= 1
    assert next_good(memoryview(raw), OURS, 8) is None


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 30), st.integers(0, 60))
def test_the_extent_is_the_end_of_what_was_written(data: bytes, zeros: int, start: int) -> None:
    raw = data + bytes(zeros)
    ends = [i + 1 for i, byte in enumerate(raw) if byte and i >= start]
    assert extent(memoryview(raw), start) == max(ends, default=start)


@pytest.mark.parametrize("place", [0, (1 << 20) - 1, 1 << 20, (5 << 19) - 1])
def test_the_extent_is_found_in_long_files(place: int) -> None:
    raw = bytearray(5 << 19)
    raw[place] = 1
    assert extent(memoryview(raw), 0) == place + 1
    assert extent(memoryview(raw), place + 1) == place + 1


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 40))
def test_random_bytes_are_walked_without_an_error(raw: bytes, start: int) -> None:
    found = walked(raw, start)
    assert not found.headers
    assert next_good(memoryview(raw), OURS, start) is None
