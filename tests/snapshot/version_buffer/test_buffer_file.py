"""Buffer files: the bytes are those of the page, and what is not whole is not read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.log.merge_model import Entry, columns_of, entries_of
from tests.snapshot.version_buffer_suite import TIMELINE, put
from warren.base.errors import Damage, OutOfRoom
from warren.base.ids import ChannelId, Incarnation, TimelineId
from warren.files.protocol import Buffer
from warren.log.settings import EntryKind
from warren.records.block import FileIdentity
from warren.snapshot.version_buffer import buffer_file
from warren.snapshot.version_buffer.buffer_file import BufferFile, open_buffer_file, write_buffer_file
from warren.snapshot.version_buffer.entries import BufferedEntries
from warren.snapshot.version_buffer.rocksdb_buffer import row_keys, row_values
from warren.testing.memory_files import MemoryFiles

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "buffer_file.md"
IDENTITY = FileIdentity(TimelineId(0x11), Incarnation(0x22))
SHOWN = [
    Entry(EntryKind.PUT, 3, b"ant", (4, 7), b"six legs", epoch=4),
    Entry(EntryKind.REMOVE, 3, b"bee", (4, 7), b"", epoch=5),
]


def buffered(entries: list[Entry], channel: int = 1, first: int = 9) -> BufferedEntries:
    return BufferedEntries.of_batch(ChannelId(channel), first, columns_of(entries))


def written(disk: MemoryFiles, entries: list[Entry], identity: FileIdentity = IDENTITY) -> BufferFile:
    return write_buffer_file(disk, "/", identity, [buffered(entries)], 60)


def test_what_was_written_is_read_back_by_any_range_of_rows() -> None:
    disk = MemoryFiles()
    entries = [put((n // 3, n), b"%d" % n, b"v" * (n % 50)) for n in range(40)]
    file = written(disk, entries)
    for read in (file, open_buffer_file(disk, file.path, TimelineId(0x11))):
        assert read.entries == 40 and read.first_version == (0, 0)
        for start, stop in ((0, 40), (0, 1), (7, 7), (5, 33), (39, 40)):
            blocks = list(read.blocks(start, stop))
            assert entries_of(block.entries for block in blocks) == entries[start:stop]
            places = [key[2:] for block in blocks for key in map(block.key, range(block.count))]
            assert places == [(1, 9 + n) for n in range(start, stop)]
        for n, entry in enumerate(entries):
            assert read.rows_up_to(entry.version) == n + 1
        assert read.rows_up_to((12, 0)) == 36


def test_the_page_shows_the_bytes_of_a_buffer_file() -> None:
    disk = MemoryFiles()
    file = write_buffer_file(disk, "/", IDENTITY, [buffered(SHOWN)], 1 << 20)
    assert file.path.endswith("buffer-0000000000000022")
    assert bytes_shown("A buffer file") == disk.contents(file.path)


def test_the_page_shows_the_bytes_of_a_row_of_rocksdb() -> None:
    one = buffered(SHOWN)
    assert bytes_shown("A row of RocksDB") == row_keys(one)[0] + row_values(one)[0]


def bytes_shown(title: str) -> bytes:
    """The bytes of the code block under a heading: whatever stands in hex between two and more spaces."""
    block = PAGE.read_text(encoding="utf-8").partition(f"**{title}")[2].split("```")[1]
    lines = [re.match(r"[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)(?:  |$)", line) for line in block.strip().splitlines()]
    return bytes.fromhex("".join(line[1] for line in lines if line))


def test_a_file_that_is_not_whole_is_damage_wherever_it_ends() -> None:
    disk = MemoryFiles()
    file = written(disk, [put((1, n), b"%d" % n) for n in range(9)])
    whole = disk.contents(file.path)
    assert open_buffer_file(disk, file.path, TimelineId(0x11)).entries == 9
    for size in range(0, len(whole), 8):
        disk.set_contents(file.path, whole[:size])
        with pytest.raises(Damage):
            open_buffer_file(disk, file.path, TimelineId(0x11))


def test_a_file_whose_end_has_another_number_of_entries_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFiles()
    ended = buffer_file._BufferOutput.ended

    def lying(output: buffer_file._BufferOutput) -> list[Buffer]:
        output.count += 1
        return ended(output)

    monkeypatch.setattr(buffer_file._BufferOutput, "ended", lying)
    file = written(disk, [put((1, n), b"%d" % n) for n in range(9)])
    with pytest.raises(Damage, match="does not end where it says"):
        open_buffer_file(disk, file.path, TimelineId(0x11))


def test_a_changed_byte_is_damage_with_path_and_offset_and_is_not_served() -> None:
    disk = MemoryFiles()
    file = written(disk, [put((1, n), b"%d" % n) for n in range(9)])
    whole = disk.contents(file.path)
    for at in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        disk.set_contents(file.path, bytes(changed))
        with pytest.raises(Damage, match=re.escape(file.path)):
            open_buffer_file(disk, file.path, TimelineId(0x11))


def test_files_of_another_timeline_or_name_are_not_ours() -> None:
    disk = MemoryFiles()
    file = written(disk, [put((1, 1))])
    with pytest.raises(Damage):
        open_buffer_file(disk, file.path, TIMELINE)
    disk.rename(file.path, "/buffer-0000000000000023")
    with pytest.raises(Damage):
        open_buffer_file(disk, "/buffer-0000000000000023", TimelineId(0x11))
    disk.create("/notes").close()
    for name in ("/notes", "/buffer-"):
        with pytest.raises(Damage, match="not the name of a buffer file"):
            open_buffer_file(disk, name, TimelineId(0x11))


def test_a_file_that_could_not_be_written_leaves_nothing() -> None:
    disk = MemoryFiles(capacity_bytes=500)
    with pytest.raises(OutOfRoom):
        written(disk, [put((1, n), b"%d" % n) for n in range(90)])
    assert disk.list("/") == [] and disk.used_bytes == 0
