"""The epoch file: what it says is found again, whatever a power cut makes of the slot that was being written."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.simulator.corruption import flip_bit
from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.durability.epoch_file import (
    CHECKED_FROM,
    FILE_BYTES,
    FILES_MAX,
    SLOT_BYTES,
    DurableRecord,
    EpochFile,
    decode_slot,
    encode_slot,
    read_witness,
)
from warren.durability.log_file import FileEnd
from warren.records.block import FileIdentity
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import REORDERED, SYNCED, MemoryFiles, PowerCut

PATH = "/epoch"
TIMELINE = TimelineId(0xAB)
ENDS = tuple(FileEnd(FileNumber(n), FileIdentity(TIMELINE, Incarnation(n * 7)), n * 100, n * 3) for n in (1, 2))

u64 = st.integers(0, (1 << 64) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)


def witness(durable: int, ends: tuple[FileEnd, ...] = ENDS) -> DurableRecord:
    return DurableRecord(TIMELINE, Epoch(durable), bytes([durable]) * 16, durable * 2, 5, 6, ends)


def durable_in(files: MemoryFiles, path: str = PATH) -> Epoch | None:
    found, _ = read_witness(files, path)
    return found.durable if found else None


@settings(deadline=None)
@given(u64, u64, st.binary(min_size=16, max_size=16), u64, i64, i64, st.integers(0, FILES_MAX), u64)
def test_a_slot_comes_back_as_it_was(
    timeline: int, durable: int, digest: bytes, edits: int, wall: int, monotone: int, count: int, sequence: int
) -> None:
    life = FileIdentity(TimelineId(timeline), Incarnation(3))
    ends = tuple(FileEnd(FileNumber(number), life, number * 8, number) for number in range(count))
    record = DurableRecord(TimelineId(timeline), Epoch(durable), digest, edits, wall, monotone, ends, sequence)
    raw = encode_slot(record, sequence)
    assert len(raw) <= SLOT_BYTES
    assert decode_slot(raw.ljust(SLOT_BYTES, b"\0")) == record


def test_every_bit_of_a_slot_is_under_its_checksum() -> None:
    """X-09: the witness has a length and a checksum like every other record."""
    raw = encode_slot(witness(3), 1).ljust(400, b"\0")
    size = len(raw.rstrip(b"\0"))
    for bit in range(size * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert decode_slot(bytes(flipped)) is None, f"bit {bit % 8} of byte {bit // 8}"


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, (1 << 16) - 1))
def test_random_bytes_are_no_witness_and_no_error(raw: bytes, count: int) -> None:
    assert decode_slot(raw) is None
    hostile = bytearray(encode_slot(witness(1), 1))
    struct.pack_into("<H", hostile, 10, count)
    assert decode_slot(bytes(hostile)) is None or count == len(ENDS)


def test_a_newer_format_is_refused_by_name() -> None:
    raw = bytearray(encode_slot(witness(1), 1))
    struct.pack_into("<H", raw, 8, 2)
    struct.pack_into("<I", raw, 4, crc32(raw[CHECKED_FROM:]))
    with pytest.raises(Refused, match="format 2") as refusal:
        decode_slot(bytes(raw))
    assert "newer warren" in refusal.value.hint


def test_there_is_room_for_two_files_of_a_hundred_channels_and_no_more_is_cut_off_unseen() -> None:
    """A rotation's old and new files stand in it together; a hundred streams may have channels of their own."""
    assert FILES_MAX >= 200
    with pytest.raises(Misuse, match="has room for"):
        encode_slot(witness(1, ENDS[:1] * (FILES_MAX + 1)), 1)


def test_the_newest_witness_is_found() -> None:
    files = MemoryFiles()
    epoch_file = EpochFile.create(files, PATH, witness(1))
    assert durable_in(files) == 1
    for durable in (2, 3, 4):
        epoch_file.write(witness(durable))
        assert durable_in(files) == durable, "others see it before it is synced"
    epoch_file.sync()
    found, problems = read_witness(files, PATH)
    assert found is not None
    assert replace(found, sequence=0) == witness(4)
    assert not problems
    assert files.stat(PATH).size_bytes == FILE_BYTES


def test_a_created_epoch_file_is_synced() -> None:
    files = MemoryFiles()
    EpochFile.create(files, PATH, witness(1))
    files.sync_directory("/")
    assert durable_in(files.crash(SYNCED, SeededRandom(1))) == 1


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_torn_slot_leaves_the_other(writes: int) -> None:
    """However many witnesses were written since the last sync, what was synced is there after the power cut."""
    for seed in range(60):
        files = MemoryFiles()
        epoch_file = EpochFile.create(files, PATH, witness(1))
        files.sync_directory("/")
        epoch_file.write(witness(2))
        epoch_file.sync()
        for index in range(writes):
            epoch_file.write(witness(3 + index))
        left = durable_in(files.crash(REORDERED, SeededRandom(seed)))
        assert left is not None
        assert 2 <= left <= 2 + writes


@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_is_reported_and_the_other_one_counts(slot: int) -> None:
    files = MemoryFiles()
    epoch_file = EpochFile.create(files, PATH, witness(1))
    epoch_file.write(witness(2))
    epoch_file.sync()
    slots = [decode_slot(files.contents(PATH)[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    flip_bit(files, PATH, (slot * SLOT_BYTES + 40) * 8)
    found, problems = read_witness(files, PATH)
    assert found == slots[1 - slot]
    assert problems == [f"{PATH}: slot {slot} is damaged"]


def test_two_damaged_slots_are_reported_and_nothing_is_believed() -> None:
    files = MemoryFiles()
    epoch_file = EpochFile.create(files, PATH, witness(1))
    epoch_file.write(witness(2))
    for slot in (0, 1):
        flip_bit(files, PATH, (slot * SLOT_BYTES + 40) * 8)
    found, problems = read_witness(files, PATH)
    assert found is None
    assert len(problems) == 2


def test_a_slot_never_written_is_no_problem() -> None:
    files = MemoryFiles()
    EpochFile.create(files, PATH, witness(1))
    assert read_witness(files, PATH)[1] == []


@pytest.mark.parametrize("size", [0, 1, 79, SLOT_BYTES, SLOT_BYTES + 40, FILE_BYTES - 1])
def test_a_cut_epoch_file_is_read_as_far_as_it_goes(size: int) -> None:
    files = MemoryFiles()
    epoch_file = EpochFile.create(files, PATH, witness(1))
    epoch_file.write(witness(2))
    whole = files.contents(PATH)
    files.set_contents(PATH, whole[:size])
    slots = [decode_slot(whole[:size][at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    assert durable_in(files) == max((slot.durable for slot in slots if slot), default=None)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_an_existing_epoch_file_is_continued_behind_its_newest_record(writes: int) -> None:
    for seed in range(40):
        files = MemoryFiles()
        epoch_file = EpochFile.create(files, PATH, witness(1))
        for index in range(writes):
            epoch_file.write(witness(2 + index))
        epoch_file.sync()
        files.sync_directory("/")
        found, _ = read_witness(files, PATH)
        assert found is not None
        taken_over = EpochFile.create(files, PATH, replace(witness(9), sequence=found.sequence))
        assert durable_in(files.crash(REORDERED, SeededRandom(seed))) == 9
        taken_over.write(witness(10))
        assert durable_in(files.crash(REORDERED, SeededRandom(seed))) in (9, 10)
        assert durable_in(files) == 10


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_power_cut_while_an_epoch_file_is_taken_over_leaves_the_old_witness_or_the_new_one(writes: int) -> None:
    """It may be the only witness there is, and its newest slot may be in the page cache only."""
    for seed in range(10):
        for step in range(6):
            files = MemoryFiles()
            epoch_file = EpochFile.create(files, PATH, witness(1))
            files.sync_directory("/")
            for index in range(writes):
                epoch_file.write(witness(2 + index))
            found, _ = read_witness(files, PATH)
            assert found is not None
            with suppress(PowerCut):
                EpochFile.create(FaultyFiles(files, cut_at=step), PATH, replace(witness(9), sequence=found.sequence))
            left = durable_in(files.crash(REORDERED, SeededRandom(seed)))
            assert left is not None, f"no witness left: seed {seed}, step {step}"
            assert left in ((1 + writes, 9) if step else range(1, 2 + writes))
