"""What a power cut leaves of a memory disk.

    ALL         everything: the kernel happened to write it all in time (also what `kill -9` leaves)
    SYNCED      synced bytes under synced names, and nothing else
    REORDERED   any part of what was not synced, in any order

REORDERED, for bytes: each unsynced write is kept, dropped or torn, alone; they reach the disk in their own order or in
any other. A sector (512 bytes of the file) is written whole or not at all, so a torn write keeps a first part, a last
part or a scatter of its sectors; only the last write may also be torn at any byte. Where the end was dropped, the size
may have been kept: the file then ends in zeros.

REORDERED, for names: each unsynced operation is kept or dropped, alone, so a rename may survive though the create
before it and the rename after it did not. What is kept is atomic, and operations on one and the same name keep their
order (a later one that is dropped gives the older state back). Bytes and names know nothing of each other: a name may
lead to an inode none of whose bytes were synced. A rename between two directories is one operation, until one of the
two is synced: then the other's share is kept or dropped for itself, and the file can have both names or none.

How much survives is drawn anew for each file and for the names, so that "nearly all" and "nearly none" are as common as
"half". Locks die with the power.
"""

from __future__ import annotations

import random
from enum import Enum
from itertools import pairwise

from warren.testing.memory_inode import DirectoryNode, FileNode, Node, renamed, spliced

SECTOR_BYTES = 512
KEEPING_CHANCES = (0.1, 0.5, 0.9)


class CrashModel(Enum):
    ALL = "all"
    SYNCED = "synced"
    REORDERED = "reordered"


ALL, SYNCED, REORDERED = CrashModel.ALL, CrashModel.SYNCED, CrashModel.REORDERED


class Survivors:
    """Builds the tree of the next disk from the tree of the last one."""

    def __init__(self, model: CrashModel, chance: random.Random) -> None:
        self._model = model
        self._chance = chance
        self._keeping_chance = chance.choice(KEEPING_CHANCES)
        self._is_kept: dict[int, bool] = {}  # by operation
        self._files: dict[int, FileNode] = {}  # by inode number, so that hard links stay links
        self._directories: set[int] = set()

    def directory(self, old: DirectoryNode) -> DirectoryNode:
        new = DirectoryNode(old.number)
        self._directories.add(old.number)
        for name, node in self._entries(old).items():
            survivor = self._node(node)
            if survivor is not None:
                new.entries[name] = new.synced[name] = survivor
        return new

    def used_bytes(self) -> int:
        return sum(file.size_bytes for file in self._files.values())

    def _node(self, old: Node) -> Node | None:
        if isinstance(old, DirectoryNode):  # with two names it would be a loop: the first name found has it
            return None if old.number in self._directories else self.directory(old)
        if old.number not in self._files:
            self._files[old.number] = FileNode(old.number, self._contents(old))
        file = self._files[old.number]
        file.links += 1
        return file

    def _entries(self, old: DirectoryNode) -> dict[str, Node]:
        if self._model is ALL or not old.unsynced:
            return old.entries
        entries = dict(old.synced)
        if self._model is REORDERED:
            for step in old.unsynced:
                if self._keeps(step.operation):
                    renamed(entries, step)
        return entries

    def _keeps(self, operation: int) -> bool:
        if operation not in self._is_kept:
            self._is_kept[operation] = self._chance.random() < self._keeping_chance
        return self._is_kept[operation]

    def _contents(self, old: FileNode) -> bytearray:
        if self._model is ALL and not old.has_lost_pages:
            return old.share_current()
        if self._model is SYNCED or not old.unsynced:
            return old.share_synced()
        contents = bytearray(old.share_synced())
        kept = old.unsynced if self._model is ALL else surviving_writes(old.unsynced, self._chance)
        for offset, data in kept:
            contents = spliced(contents, offset, data)
        if self._model is REORDERED:
            _extend_with_zeros(contents, old.unsynced, self._chance)
        return contents


def surviving_writes(writes: list[tuple[int, bytes]], chance: random.Random) -> list[tuple[int, bytes]]:
    """Parts of the writes, in the order in which they reach the disk."""
    keeping = chance.choice(KEEPING_CHANCES)
    kept: list[list[tuple[int, bytes]]] = []
    for index, (offset, data) in enumerate(writes):
        drawn = chance.random()
        if drawn < keeping:
            kept.append([(offset, data)])
        elif drawn < (1 + keeping) / 2:
            kept.append(torn(offset, data, index == len(writes) - 1, chance))
    if chance.random() < 0.5:
        chance.shuffle(kept)
    return [part for parts in kept for part in parts]


def torn(offset: int, data: bytes, is_last: bool, chance: random.Random) -> list[tuple[int, bytes]]:
    """A part of one write: whole sectors of it, or, if it is the last, perhaps any first part."""
    if is_last and chance.random() < 0.5:
        return [(offset, data[: chance.randrange(len(data) + 1)])]
    sectors = _by_sector(offset, data)
    cut = chance.randrange(len(sectors) + 1)
    match chance.randrange(3):
        case 0:
            return sectors[:cut]
        case 1:
            return sectors[cut:]
        case _:
            return [sector for sector in sectors if chance.random() < 0.5]


def _by_sector(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    edges = [0, *range(first, len(data), SECTOR_BYTES), len(data)]
    return [(offset + start, data[start:end]) for start, end in pairwise(edges)]


def _extend_with_zeros(contents: bytearray, writes: list[tuple[int, bytes]], chance: random.Random) -> None:
    """The size may have been kept where the bytes were not."""
    if chance.random() < 0.5:
        offset, data = chance.choice(writes)
        size_bytes = offset + len(data)
        if size_bytes > len(contents):
            contents.extend(bytes(size_bytes - len(contents)))
