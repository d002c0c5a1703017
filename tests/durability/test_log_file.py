"""A file that takes part in epochs: places, running checksums, containers, and writing twice after a full disk."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest

from tests.durability.stage import CONTAINER_BYTES, HookedFile, headers_in, participant_on, path_of
from warren.base.errors import Misuse, OutOfRoom
from warren.base.ids import Epoch, FileNumber
from warren.durability.log_file import LogFile, run_on
from warren.files.protocol import File
from warren.log.read.blocks import walk
from warren.records.block import draft
from warren.records.format import BlockKind
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import SYNCED, MemoryFiles


def append(participant: LogFile, body: bytes, epoch: int = 1) -> int:
    return participant.append(draft(BlockKind.EDIT, [body]), Epoch(epoch))


def test_a_block_has_its_place_before_its_bytes_leave_memory() -> None:
    disk = MemoryFiles()
    participant = participant_on(disk, 1)
    assert append(participant, b"12345678") == 0
    assert append(participant, b"123456789") == 72
    assert participant.end == 72 + 64 + 16
    assert disk.contents(path_of(1)) == b""


def test_a_part_is_everything_since_the_last_one() -> None:
    disk = MemoryFiles()
    participant = participant_on(disk, 1)
    append(participant, b"a")
    append(participant, b"b")
    first = participant.take()
    append(participant, b"c", epoch=2)
    second = participant.take()
    assert (first.start, first.end) == (0, 144)
    assert (second.start, second.end) == (144, 216)
    assert participant.take().pieces == []
    participant.write(first)
    assert [header.epoch for header in headers_in(disk.contents(path_of(1)), participant)] == [1, 1]
    participant.write(second)
    assert [header.epoch for header in headers_in(disk.contents(path_of(1)), participant)] == [1, 1, 2]


def test_end_describes_the_future_file_and_taken_the_file_at_the_switch() -> None:
    disk = MemoryFiles()
    participant = participant_on(disk, 1)
    append(participant, b"a")
    participant.write(participant.take())
    taken = participant.taken
    append(participant, b"b")
    walked = walk(memoryview(disk.contents(path_of(1))), participant.identity)
    assert (taken.end, taken.running) == (walked.end, walked.running)
    assert participant.taken is taken
    assert participant.as_end().end == taken.end + 72
    participant.write(participant.take())
    walked = walk(memoryview(disk.contents(path_of(1))), participant.identity)
    assert (participant.taken.end, participant.taken.running) == (walked.end, walked.running)


def test_the_running_checksum_depends_on_every_block_and_on_their_order() -> None:
    assert run_on(run_on(0, 1), 2) != run_on(run_on(0, 2), 1)
    assert run_on(7, 9) == crc32(b"\x09\x00\x00\x00", 7)


def test_space_is_allocated_by_whole_containers_before_it_is_written() -> None:
    disk = FaultyFiles(MemoryFiles())
    participant = participant_on(disk, 1)
    append(participant, bytes(100))
    participant.write(participant.take())
    append(participant, bytes(CONTAINER_BYTES))
    participant.write(participant.take())
    append(participant, bytes(8))
    participant.write(participant.take())
    assert [step.operation for step in disk.steps] == ["create", "allocate", "write", "allocate", "write", "write"]
    assert disk.stat(path_of(1)).size_bytes == 2 * CONTAINER_BYTES


def test_a_part_in_a_new_container_syncs_its_zeros_too_and_others_sync_only_themselves() -> None:
    disk = MemoryFiles()
    participant = participant_on(disk, 1)
    disk.sync_directory("/")
    append(participant, bytes(100))
    participant.write_through(participant.take())
    assert len(synced_in(disk)) == CONTAINER_BYTES
    assert participant.handle is not None
    participant.handle.write_at(CONTAINER_BYTES - 8, [b"unsynced"])
    append(participant, bytes(100))
    participant.write_through(participant.take())
    assert len(headers_in(synced_in(disk), participant)) == 2
    assert synced_in(disk)[-8:] == bytes(8)


def test_a_large_part_goes_out_piece_by_piece_and_each_is_on_its_way_before_the_next() -> None:
    hints: list[str] = []
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    participant = participant_on(disk, 1, container_bytes=1 << 20)
    assert participant.handle is not None
    participant.handle = Hinted(
        participant.handle, lambda *arguments: hints.append(f"{arguments}, {len(disk.steps)} steps")
    )
    bodies = [bytes([n]) * (3 << 19) for n in range(3)]
    for body in bodies:
        append(participant, body)
    end = participant.end
    participant.write_through(participant.take())
    steps = [step.operation for step in disk.steps]
    assert steps == ["create", "allocate", "write", "write", "sync"]
    assert hints == [f"(0, {end // 3 * 2}), 3 steps"]
    assert len(headers_in(memory.contents(path_of(1)), participant)) == 3


def test_the_system_is_advised_once_to_drop_each_range() -> None:
    hints: list[tuple[int, int]] = []
    participant = participant_on(MemoryFiles(), 1)
    assert participant.handle is not None
    participant.handle = Hinted(participant.handle, lambda *arguments: hints.append(arguments))
    for _ in range(3):
        append(participant, bytes(1000))
        part = participant.take()
        participant.write_through(part)
        participant.durable_end = part.reach
        participant.forget(500)
        participant.forget(500)
    ends = [participant.end // 3 * n - 500 for n in (1, 2, 3)]
    assert hints == [(0, ends[0]), (ends[0], ends[1] - ends[0]), (ends[1], ends[2] - ends[1])]
    participant.handle = None
    participant.forget(0)


class Hinted(HookedFile):
    """A file with a callback for hints."""

    def __init__(self, inner: File, arguments: Callable[[int, int], None]) -> None:
        super().__init__(inner, lambda: None)
        self._on_hint = arguments

    def forget(self, offset: int, size: int) -> None:
        self._on_hint(offset, size)


def synced_in(disk: MemoryFiles) -> bytes:
    return disk.crash(SYNCED, SeededRandom(0)).contents(path_of(1))


def test_a_full_disk_speaks_up_before_any_byte_of_the_part_is_out_and_the_part_can_be_written_again() -> None:
    disk = MemoryFiles(capacity_bytes=CONTAINER_BYTES // 2)
    participant = participant_on(disk, 1)
    append(participant, b"entry")
    part = participant.take()
    for _ in range(2):
        with pytest.raises(OutOfRoom):
            participant.write(part)
        assert not any(disk.contents(path_of(1)))
    disk.capacity_bytes = 2 * CONTAINER_BYTES
    participant.write(part)
    assert len(headers_in(disk.contents(path_of(1)), participant)) == 1


def test_a_file_that_was_not_created_takes_no_part() -> None:
    other = participant_on(MemoryFiles(), 1)
    participant = LogFile(FileNumber(2), other.identity, 96, 0, CONTAINER_BYTES)
    append(participant, b"planned files can be appended to in memory")
    with pytest.raises(Misuse, match="before it was created"):
        participant.write(participant.take())
    with pytest.raises(Misuse, match="before it was created"):
        participant.sync()
