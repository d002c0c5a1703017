"""Blocks: drafted, placed, checked; and every verdict but GOOD."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.records.samples import (
    OTHER_LIFE,
    OTHER_TIMELINE,
    OURS,
    Row,
    entries_block,
    header_of,
    plain_block,
)
from warren.base.errors import Misuse
from warren.base.ids import StreamId
from warren.records.block import Header, check_block, draft
from warren.records.format import BLOCK_BYTES_MAX, CHECKSUM_AT, HEADER, BlockKind, BlockVerdict


def checked(raw: bytes, offset: int = 0) -> Header | BlockVerdict:
    return check_block(memoryview(raw), offset, OURS)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=5), st.integers(0, 100).map(lambda n: 8 * n))
def test_a_block_is_found_where_it_was_placed(pieces: list[bytes], offset: int) -> None:
    drafted = draft(BlockKind.ENTRIES, list(pieces), entries=3, stream=StreamId(5))
    raw, checksum = drafted.place(OURS, offset, epoch=header_of(plain_block()).epoch, first=17)
    view = bytes(offset) + raw + b"".join(drafted.pieces)
    found = checked(view, offset)
    assert isinstance(found, Header)
    assert (found.checksum, found.kind, found.entries, found.stream) == (checksum, BlockKind.ENTRIES, 3, 5)
    assert (found.timeline, found.incarnation) == OURS
    assert (found.offset, found.epoch, found.first) == (offset, 9, 17)
    assert found.end == len(view)
    assert found.end % 8 == 0
    assert view[found.body_at : found.end].startswith(b"".join(pieces))
    assert not any(view[found.body_at + sum(map(len, pieces)) :]), "the padding is zeros"


def test_every_bit_of_a_block_is_under_its_checksum() -> None:
    """X-09: every record has its length and its checksum, header included; whichever bit flips, the block is torn."""
    whole = entries_block([Row(key=b"key", value=b"value", major=1 << 40, undo_prev=77), Row(kind=2, key=b"k")])
    assert isinstance(checked(whole), Header)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert checked(bytes(flipped)) is BlockVerdict.TORN, f"bit {bit % 8} of byte {bit // 8}"


def test_every_bit_of_a_block_is_under_its_checksum_for_those_who_take_any_life() -> None:
    whole = plain_block(b"a content")
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert check_block(memoryview(flipped), 0, None) is BlockVerdict.TORN, f"bit {bit % 8} of byte {bit // 8}"


def test_a_cut_block_is_torn_at_every_length() -> None:
    whole = plain_block(b"sixteen bytes ok")
    assert checked(b"") is BlockVerdict.EMPTY
    for size in range(1, len(whole)):
        assert checked(whole[:size]) is BlockVerdict.TORN, size
        assert checked(whole[:size] + bytes(len(whole) - size)) is BlockVerdict.TORN or not any(whole[size:]), size


def test_zeros_and_the_end_of_the_file_are_empty() -> None:
    assert checked(bytes(4096)) is BlockVerdict.EMPTY
    assert checked(bytes(4096), 4088) is BlockVerdict.EMPTY
    assert checked(plain_block(), 4096) is BlockVerdict.EMPTY


@pytest.mark.parametrize(
    "foreign",
    [plain_block(identity=OTHER_LIFE), plain_block(identity=OTHER_TIMELINE), plain_block(offset=4096)],
    ids=["another life", "another timeline", "another place"],
)
def test_a_whole_block_of_elsewhere_is_stale(foreign: bytes) -> None:
    assert checked(foreign) is BlockVerdict.STALE
    damaged = foreign[:-1] + bytes([foreign[-1] ^ 1])
    assert checked(damaged) is BlockVerdict.TORN, "its identity can no longer be trusted"


def test_inspection_takes_a_block_of_any_life() -> None:
    assert isinstance(check_block(memoryview(plain_block(identity=OTHER_LIFE)), 0, None), Header)


def test_a_body_longer_than_any_block_is_not_believed() -> None:
    """Its checksum may be right: the limit is what keeps a reader from taking whatever a header claims."""
    drafted = draft(BlockKind.EDIT, [bytes(BLOCK_BYTES_MAX)])
    drafted.pieces.append(bytes(8))
    drafted.body_bytes += 8
    drafted.body_checksum = crc32(bytes(8), drafted.body_checksum)
    raw, _ = drafted.place(OURS, 0, header_of(plain_block()).epoch)
    assert checked(raw + b"".join(drafted.pieces)) is BlockVerdict.TORN


def test_a_block_that_readers_would_reject_is_not_drafted() -> None:
    assert draft(BlockKind.EDIT, [bytes(BLOCK_BYTES_MAX)]).body_bytes == BLOCK_BYTES_MAX
    with pytest.raises(Misuse, match="over the limit"):
        draft(BlockKind.EDIT, [bytes(BLOCK_BYTES_MAX), b"!"])


def test_a_body_that_is_no_multiple_of_eight_is_torn() -> None:
    raw = bytearray(plain_block(b"12345678"))
    struct.pack_into("<I", raw, 12, 5)
    body = crc32(raw[HEADER.size : HEADER.size + 5])
    struct.pack_into("<I", raw, CHECKSUM_AT, crc32(raw[8 : HEADER.size], body))
    assert checked(bytes(raw)) is BlockVerdict.TORN


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 250))
@example(b"WRRN", 0)
@example(b"WRRN" + b"\xff" * 100, 0)
@example(bytes(60) + b"WRRN", 60)
def test_random_bytes_are_no_block_and_no_error(raw: bytes, offset: int) -> None:
    found = checked(raw, offset)
    assert isinstance(found, BlockVerdict)
    assert (found is BlockVerdict.EMPTY) == (not any(raw[offset : offset + HEADER.size]))


@settings(deadline=None)
@given(st.binary(min_size=HEADER.size, max_size=200), st.integers(0, 1 << 32))
def test_a_header_of_random_sizes_is_no_error(raw: bytes, size: int) -> None:
    hostile = bytearray(raw)
    hostile[0:4] = b"WRRN"
    struct.pack_into("<I", hostile, 12, size & 0xFFFFFFFF)
    assert isinstance(checked(bytes(hostile)), BlockVerdict)
