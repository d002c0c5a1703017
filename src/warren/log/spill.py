"""A spill: one key range of a merge that is too large for memory, waiting on disk as sorted blocks.

    load 1 | load 2 | load 3 | …        each load's share of the range, sorted and merged by itself

A spill is an input of the merge that follows. It is never synced and never survives: the working directory is cleared
before a merge begins. Its blocks are checksummed all the same: a disk that lies does not ask what the file is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warren.base.errors import Damage
from warren.base.ids import Epoch, Incarnation, TimelineId
from warren.files.protocol import Buffer, Files, join
from warren.records.block import FileIdentity, look
from warren.records.columns import EntryColumns
from warren.records.entries import draft_entries, read_entries
from warren.records.format import BlockKind
from warren.records.verdict import BlockVerdict

_BLOCK_BYTES = 1 << 20
_NOBODY = FileIdentity(TimelineId(0), Incarnation(0))


class SpillFile:
    is_mapped = True

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file = files.create(path)
        self.entries = 0
        self.size_bytes = 0

    def add(self, columns: EntryColumns) -> None:
        """Sorted entries, written at once."""
        pieces: list[Buffer] = []
        offset = self.size_bytes
        for part in columns.split(_BLOCK_BYTES):
            draft = draft_entries(part, kind=BlockKind.SORTED)
            header, _ = draft.place(_NOBODY, offset, Epoch(0))
            pieces += [header, *draft.pieces]
            offset += draft.size_bytes
        self._file.write_at(self.size_bytes, pieces)
        self.entries += columns.count
        self.size_bytes = offset

    def batches(self) -> Iterator[EntryColumns]:
        return _blocks(self._file.view(), self._file.path, 0, self.size_bytes)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self._files.remove(self._file.path)


@dataclass(frozen=True, slots=True)
class SpillPart:
    """Some bytes of a spill that another process wrote, as an input of a merge."""

    files: Files
    path: str
    start: int
    stop: int
    entries: int
    is_mapped: bool = True

    @property
    def size_bytes(self) -> int:
        return self.stop - self.start

    def batches(self) -> Iterator[EntryColumns]:
        if self.start == self.stop:
            return
        file = self.files.open(self.path)
        try:
            view = file.view()
        finally:
            file.close()
        yield from _blocks(view, self.path, self.start, self.stop)


def _blocks(view: memoryview, path: str, start: int, stop: int) -> Iterator[EntryColumns]:
    offset = start
    while offset < stop:
        header = look(view, offset, _NOBODY)
        if isinstance(header, BlockVerdict):
            raise Damage(f"a spilled block cannot be read back: {header.value}", path, offset)
        yield read_entries(view, header)
        offset = header.end


def clear_directory(files: Files, directory: str) -> None:
    """Make the directory if need be, and empty it."""
    files.make_directories(directory)
    for name in files.list(directory):
        path = join(directory, name)
        if files.stat(path).is_directory:
            clear_directory(files, path)
            files.remove_directory(path)
        else:
            files.remove(path)
