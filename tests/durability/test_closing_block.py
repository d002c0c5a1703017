"""The closing block: all parts of an epoch by name, and the chain of digests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.errors import Damage
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.durability.closing_block import NO_DIGEST, PART, Closing, ClosingPart, read_closing
from warren.records.format import BlockKind

u64 = st.integers(0, (1 << 64) - 1)
u32 = st.integers(0, (1 << 32) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
parts = st.builds(ClosingPart, u64.map(FileNumber), u64.map(Incarnation), u64, u32, u32)
closings = st.builds(
    Closing,
    u64.map(Epoch),
    u64.map(Epoch),
    i64,
    i64,
    st.binary(min_size=16, max_size=16),
    st.lists(parts, max_size=5).map(tuple),
)
TIMELINE = TimelineId(7)
PARTS = (
    ClosingPart(FileNumber(1), Incarnation(2), 300, 4, 5),
    ClosingPart(FileNumber(2), Incarnation(9), 500, 6, 7),
)
PLAIN = Closing(Epoch(8), Epoch(7), 1, 2, NO_DIGEST, PARTS)


@settings(deadline=None)
@given(closings)
def test_a_closing_comes_back_as_it_was(closing: Closing) -> None:
    assert read_closing(closing.epoch, memoryview(closing.body())) == closing


def test_a_closing_is_a_block_without_padding() -> None:
    drafted = PLAIN.draft()
    assert drafted.kind is BlockKind.CLOSING
    assert b"".join(drafted.pieces) == PLAIN.body()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_a_body_of_another_length_than_its_parts_is_damage(body: bytes) -> None:
    try:
        found = read_closing(Epoch(1), memoryview(body))
    except Damage:
        return
    assert len(body) == 48 + PART.size * len(found.parts)


@pytest.mark.parametrize("change", [-1, 1, -PART.size, PART.size])
def test_a_part_too_few_or_too_many_is_damage(change: int) -> None:
    body = PLAIN.body()
    changed = body[:change] if change < 0 else body + bytes(change)
    with pytest.raises(Damage, match="parts it counts"):
        read_closing(Epoch(8), memoryview(changed))


def test_a_body_that_is_cut_short_is_damage() -> None:
    with pytest.raises(Damage, match="too short"):
        read_closing(Epoch(8), memoryview(PLAIN.body()[:40]))


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, epoch=Epoch(9)),
        replace(PLAIN, previous=Epoch(6)),
        replace(PLAIN, previous_digest=b"x" * 16),
        replace(PLAIN, monotone_ns=3),
        replace(PLAIN, parts=PARTS[:1]),
        replace(PLAIN, parts=(PARTS[0], replace(PARTS[1], running=8))),
        replace(PLAIN, parts=(PARTS[1], PARTS[0])),
    ],
)
def test_the_digest_covers_everything_the_closing_says(other: Closing) -> None:
    assert other.digest(TIMELINE) != PLAIN.digest(TIMELINE)


def test_the_digest_covers_the_timeline() -> None:
    assert PLAIN.digest(TIMELINE) != PLAIN.digest(TimelineId(8))


def test_an_epoch_cut_out_of_the_chain_is_missed_by_the_next_one() -> None:
    first = replace(PLAIN, epoch=Epoch(1), previous=Epoch(0))
    second = Closing(Epoch(2), Epoch(1), 0, 0, first.digest(TIMELINE), PARTS)
    third = Closing(Epoch(3), Epoch(2), 0, 0, second.digest(TIMELINE), PARTS)
    assert third.previous_digest == second.digest(TIMELINE)
    assert third.previous_digest != first.digest(TIMELINE)
    forged = replace(second, parts=PARTS[:1])
    assert third.previous_digest != forged.digest(TIMELINE)
