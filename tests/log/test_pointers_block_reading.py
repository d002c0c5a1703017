from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.base.ids import Epoch, FileNumber, Incarnation, Lsn, TimelineId, lsn_of
from warren.base.threads import SystemThreads
from warren.files.protocol import File
from warren.log import pointers
from warren.log.pointers import BlockReader, value_at
from warren.log.session import EntryRows
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns
from warren.records.entries import Versions, draft_entries
from warren.records.format import BlockVerdict
from warren.testing.memory_files import MemoryFiles

LIFE = FileIdentity(TimelineId(1), Incarnation(2))


class Shelf:
    """Files of one block each, and a note of what was opened and closed."""

    def __init__(self, size_bytes: int = 100, key_bytes: int = 3) -> None:
        self.disk = MemoryFiles()
        self.value = b"v" * size_bytes
        self.opened: list[File] = []
        rows = EntryRows()
        rows.add(16, 0, b"k" * key_bytes, self.value)
        created = draft_entries(rows.columns(), versions=Versions.FROM_HEADER)
        header, _ = created.place(LIFE, 0, Epoch(0))
        self.raw = b"".join((header, *created.pieces))

    def open(self, number: FileNumber) -> tuple[File, FileIdentity]:
        name = f"file {number}"
        if not self.disk.exists(name):
            file = self.disk.create(name)
            file.write_at(0, [self.raw])
            file.close()
        self.opened.append(self.disk.open(name))
        return self.opened[-1], LIFE

    def reader(self, kept_bytes: int = 0) -> BlockReader:
        return BlockReader(self.open, SystemThreads().condition(), kept_bytes)


def place(number: int) -> Lsn:
    return lsn_of(FileNumber(number), 0)


def is_closed(file: File) -> bool:
    try:
        file.read_at(0, 1)
    except Misuse:
        return True
    return False


def test_a_handle_that_is_released_during_a_read_is_closed_after_it() -> None:
    """A descriptor that is closed under a reader may be another file's a moment later."""
    shelf = Shelf()
    reader = shelf.reader()
    with reader._lease(FileNumber(1)) as first, reader._lease(FileNumber(1)) as second:
        assert first is second
        reader.forget([FileNumber(1)])
        assert not is_closed(shelf.opened[0])
        with reader._lease(FileNumber(1)) as other:
            assert other is not first
    assert is_closed(shelf.opened[0]) and not is_closed(shelf.opened[1])
    reader.close()
    assert is_closed(shelf.opened[1])


def test_only_so_many_files_are_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointers, "HANDLES_MAX", 3)
    shelf = Shelf()
    reader = shelf.reader()
    for number in (1, 2, 3, 1, 4):
        assert isinstance(reader.block(place(number), 100, True), EntryColumns)
    assert [is_closed(file) for file in shelf.opened] == [False, True, False, False]
    reader.close()


@pytest.mark.parametrize("key_bytes", [3, 5000, 100_000])
def test_a_block_is_read_whole_however_much_stands_beside_the_value(key_bytes: int) -> None:
    shelf = Shelf(40_000, key_bytes)
    reader = shelf.reader()
    found = reader.block(place(1), 40_000, False)
    assert isinstance(found, EntryColumns)
    value = value_at(found, 0, 40_000)
    assert value is not None and bytes(value) == shelf.value
    assert value_at(found, 0, 39_999) is None and value_at(found, 1, 40_000) is None
    reader.close()


def test_a_header_that_lies_about_its_size_is_no_block_and_costs_no_memory() -> None:
    shelf = Shelf()
    shelf.raw = shelf.raw[:12] + b"\xff\xff\xff\x7f" + shelf.raw[16:]
    assert shelf.reader().block(place(1), 100, True) is BlockVerdict.TORN


def test_what_is_released_is_not_served_from_memory() -> None:
    shelf = Shelf()
    reader = shelf.reader(1 << 20)
    for _ in range(3):
        reader.block(place(1), 100, True)
    assert reader.reads == 1
    reader.forget([FileNumber(1)])
    reader.block(place(1), 100, True)
    assert reader.reads == 2
    reader.close()
