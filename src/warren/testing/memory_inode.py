"""What lies behind a name on the memory disk: bytes or names, as the program sees them and as the disk has them.

    FileNode        current   what reads return
                    synced    what the disk is sure to have
                    unsynced  the writes between the two, in order
    DirectoryNode   entries · synced · unsynced: the same for names; an operation is create, rename, link or remove

Always true: `synced` with every unsynced step applied in order is `current` (unless a failed sync lost pages).
Copies are lazy: nodes of different disks may share one bytearray; whoever writes first takes a copy. A view is the
bytearray itself, as a mapping would be: it shows later writes inside its length, and growing leaves it behind.
Which of the unsynced steps survive a power cut is decided in `memory_crash`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


class FileNode:
    """An inode with bytes."""

    __slots__ = (
        "_current",
        "_is_current_shared",
        "_is_synced_shared",
        "_synced",
        "handles",
        "has_lost_pages",
        "links",
        "number",
        "unsynced",
    )

    def __init__(self, number: int, contents: bytearray | None = None) -> None:
        """`contents` are taken as synced, and shared with whoever passes them."""
        self.number = number
        self.links = 0
        self.handles = 0
        self.reset(bytearray() if contents is None else contents)

    def reset(self, contents: bytearray) -> None:
        """Let this be the file's bytes, all synced."""
        self.unsynced: list[tuple[int, bytes]] = []
        self.has_lost_pages = False
        self._current = self._synced = contents
        self._is_current_shared = self._is_synced_shared = True

    @property
    def size_bytes(self) -> int:
        return len(self._current)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(memoryview(self._current)[offset : offset + size])

    def view(self) -> memoryview:
        return memoryview(self._current).toreadonly()

    def write(self, offset: int, data: bytes) -> None:
        if self._is_current_shared:
            self._current = bytearray(self._current)
            self._is_current_shared = False
        self._current = spliced(self._current, offset, data)
        self.unsynced.append((offset, data))

    def sync(self) -> None:
        if not self.unsynced:
            return
        if self._is_synced_shared:
            self._synced = bytearray(self._synced)
            self._is_synced_shared = False
        for offset, data in self.unsynced:
            self._synced = spliced(self._synced, offset, data)
        self.unsynced.clear()

    def sync_range(self, start: int, end: int) -> None:
        """Only these bytes, as the program sees them; what was written elsewhere may still be lost."""
        if self._is_synced_shared:
            self._synced = bytearray(self._synced)
            self._is_synced_shared = False
        self._synced = spliced(self._synced, start, self.read(start, end - start))
        self.unsynced = [kept for step in self.unsynced for kept in _outside(step, start, end)]

    def lose_unsynced(self, stays_readable: bool) -> None:
        """What a failed sync may do: the pages count as clean, so nothing will ever write them. They are still read
        from the cache until the cache drops them."""
        self.unsynced.clear()
        self.has_lost_pages = True
        if not stays_readable:
            self._current = bytearray(self._synced)
            self._is_current_shared = False

    def share_current(self) -> bytearray:
        self._is_current_shared = True
        return self._current

    def share_synced(self) -> bytearray:
        self._is_synced_shared = True
        return self._synced


def _outside(step: tuple[int, bytes], start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What of a write lies before or behind a range."""
    offset, data = step
    if offset < start:
        yield offset, data[: start - offset]
    if offset + len(data) > end:
        yield max(offset, end), data[max(0, end - offset) :]


def spliced(buffer: bytearray, offset: int, data: bytes) -> bytearray:
    """`buffer` with `data` at `offset`; a new one only where a view forbids the old one to grow."""
    end = offset + len(data)
    if end > len(buffer) and data:
        try:
            buffer.extend(bytes(end - len(buffer)))
        except BufferError:
            buffer = buffer + bytes(end - len(buffer))
    buffer[offset:end] = data
    return buffer


@dataclass(frozen=True, slots=True)
class NameChange:
    """One directory's share of one operation: these names now lead there, or nowhere."""

    operation: int  # a rename between two directories is one operation with a share in each
    names: tuple[tuple[str, Node | None], ...]


class DirectoryNode:
    """An inode with names."""

    __slots__ = ("entries", "number", "synced", "unsynced")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[str, Node] = {}
        self.synced: dict[str, Node] = {}
        self.unsynced: list[NameChange] = []

    def change(self, operation: int, *names: tuple[str, Node | None]) -> None:
        step = NameChange(operation, names)
        renamed(self.entries, step)
        self.unsynced.append(step)

    def sync(self) -> None:
        for step in self.unsynced:
            renamed(self.synced, step)
        self.unsynced.clear()


Node: TypeAlias = FileNode | DirectoryNode


def renamed(entries: dict[str, Node], step: NameChange) -> None:
    for name, node in step.names:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
