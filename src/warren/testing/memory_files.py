"""A disk in memory that tracks what was synced, and returns what a power cut would leave.

    disk = MemoryFiles()
    …                                              a program writes, syncs, renames
    after = disk.crash(REORDERED, SeededRandom(7)) a new disk; the old one is unchanged, for further crashes

It implements the whole protocol of `files.protocol` — hard links, inode numbers, removed files that are still open,
locks, a full disk (`capacity_bytes`, which may be raised while it runs), a read-only one (`is_read_only`) — with the
error texts of `files.local`, since both translate the same system errors. Syncing a new file does not sync its name.

`pause` is called before each operation: `stepped_threads` switches threads there. A lock makes each operation atomic
for ordinary threads as well. Space is counted as the sum of file sizes; names take none, holes do.

Inodes: bytes or names, as the program sees them and as the disk has them.

    FileNode        current   what reads return
                    synced    what the disk certainly has
                    unsynced  the writes between the two, in order
    DirectoryNode   entries · synced · unsynced: the same for names; an operation is create, rename, link or remove

`Tree` maps names to inodes, with the semantics and the errors of POSIX (OSError with its number). Each operation is
one numbered change in one directory or, for a rename across directories, one change with a share in both.

What a power cut leaves:

    ALL         everything: the kernel happened to write it all in time (also what `kill -9` leaves)
    SYNCED      synced bytes under synced names, and nothing else
    REORDERED   any part of what was not synced, in any order

REORDERED, for bytes: each unsynced write survives, is dropped or is torn, independently; they reach the disk in their
order or in any other. A sector (512 bytes of the file) is written completely or not at all, so a torn write leaves a
first part, a last part or a scatter of its sectors; only the last write may also be torn at any byte. Where the end was
dropped, the size may survive: the file then ends in zeros.

REORDERED, for names: each unsynced operation survives or is dropped, independently, so a rename may survive although
the create before it and the rename after it did not. A surviving operation is atomic, and operations on the same name
keep their order (dropping a later one restores the older state). Bytes and names are independent: a name may refer to
an inode none of whose bytes were synced. A rename between two directories is one operation until one of them is synced:
then the other's share survives or is dropped on its own, and the file can have both names or none.

The surviving share is drawn for each file and for the names, so that "nearly all" and "nearly none" are as common as
"half". Locks end with the power.

`PowerCut` is a BaseException, so that no `except Exception` of the product handles it. `faulty_files` raises it at the
chosen step, and `stepped_threads` in every other thread, at its next switch point.

Invariants
* `synced` with every unsynced step applied in order is `current` (unless a failed sync lost pages).
* Copies are lazy: nodes of different disks may share one bytearray; the first writer copies it. A view is the bytearray
  itself, as a mapping would be: it shows later writes inside its length, and does not grow with the file.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from types import TracebackType
from typing import TypeAlias

from warren.base.environment import Random
from warren.base.errors import Misuse
from warren.files.local import owner_of, translate
from warren.files.protocol import Buffer, FileStat


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
        """`contents` count as synced, and are shared with the caller."""
        self.number = number
        self.links = 0
        self.handles = 0
        self.reset(bytearray() if contents is None else contents)

    def reset(self, contents: bytearray) -> None:
        """Replace the bytes of the file, all synced."""
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
        """Sync only these bytes; writes elsewhere may still be lost."""
        if self._is_synced_shared:
            self._synced = bytearray(self._synced)
            self._is_synced_shared = False
        self._synced = spliced(self._synced, start, self.read(start, end - start))
        self.unsynced = [part for step in self.unsynced for part in _parts_outside(step, start, end)]

    def lose_unsynced(self, stays_readable: bool) -> None:
        """What a failed sync may do: the pages count as clean, so they are never written. Reads see them until the
        cache drops them."""
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


def _parts_outside(step: tuple[int, bytes], start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The parts of a write before and behind a range."""
    offset, data = step
    if offset < start:
        yield offset, data[: start - offset]
    if offset + len(data) > end:
        yield max(offset, end), data[max(0, end - offset) :]


def spliced(buffer: bytearray, offset: int, data: bytes) -> bytearray:
    """`buffer` with `data` at `offset`; a new one only if a view prevents the old one from growing."""
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
    """One directory's share of one operation: these names now refer to these inodes, or to nothing."""

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


class Tree:
    """A root directory and what can be reached from it."""

    __slots__ = ("inodes", "operations", "root")

    def __init__(self, root: DirectoryNode | None = None, inodes: int = 1) -> None:
        self.root = root or DirectoryNode(1)
        self.inodes = inodes  # numbers assigned so far; never reused, not even after a crash
        self.operations = 0

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in _names(path):
            entries = _as_directory(node).entries
            if name not in entries:
                raise FileNotFoundError(errno.ENOENT, "no such file")
            node = entries[name]
        return node

    def file(self, path: str) -> FileNode:
        node = self.find(path)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        return node

    def directory(self, path: str) -> DirectoryNode:
        return _as_directory(self.find(path))

    def create(self, path: str) -> FileNode:
        node = FileNode(self._next_inode())
        self._enter(path, node)
        return node

    def make_directories(self, path: str, is_read_only: bool) -> None:
        at = self.root
        for name in _names(path):
            node = at.entries.get(name)
            if node is None:
                if is_read_only:
                    raise OSError(errno.EROFS, "read-only")
                node = DirectoryNode(self._next_inode())
                at.change(self._next_operation(), (name, node))
                at.sync()
            at = _as_directory(node)

    def rename(self, old: str, new: str) -> FileNode | None:
        """Returns the file whose name was replaced."""
        node = self.find(old)
        source, source_name = self._place(old)
        target, target_name = self._place(new)
        replaced = target.entries.get(target_name)
        if replaced is node:
            return None  # two names of one file: no effect, as in POSIX
        if isinstance(node, DirectoryNode) and _names(new)[: len(_names(old))] == _names(old):
            raise OSError(errno.EINVAL, "into itself")
        _may_replace(node, replaced)
        operation = self._next_operation()
        if source is target:
            source.change(operation, (source_name, None), (target_name, node))
        else:
            source.change(operation, (source_name, None))
            target.change(operation, (target_name, node))
        return _unlinked(replaced)

    def link(self, old: str, new: str) -> None:
        self._enter(new, self.find(old))

    def remove(self, path: str) -> FileNode:
        node = self.file(path)
        place, name = self._place(path)
        place.change(self._next_operation(), (name, None))
        _unlinked(node)
        return node

    def remove_directory(self, path: str) -> None:
        if self.directory(path).entries:
            raise OSError(errno.ENOTEMPTY, "not empty")
        place, name = self._place(path)
        place.change(self._next_operation(), (name, None))

    def _enter(self, path: str, node: Node) -> None:
        place, name = self._place(path)
        if name in place.entries:
            raise FileExistsError(errno.EEXIST, "exists")
        if isinstance(node, DirectoryNode):
            raise OSError(errno.EPERM, "a directory has one name")
        place.change(self._next_operation(), (name, node))
        node.links += 1

    def _place(self, path: str) -> tuple[DirectoryNode, str]:
        names = _names(path)
        if not names:
            raise OSError(errno.EBUSY, "the root")
        return self.directory("/".join(names[:-1])), names[-1]

    def _next_inode(self) -> int:
        self.inodes += 1
        return self.inodes

    def _next_operation(self) -> int:
        self.operations += 1
        return self.operations


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _as_directory(node: Node) -> DirectoryNode:
    if isinstance(node, FileNode):
        raise NotADirectoryError(errno.ENOTDIR, "is a file")
    return node


def _may_replace(node: Node, replaced: Node | None) -> None:
    if isinstance(replaced, DirectoryNode):
        if isinstance(node, FileNode):
            raise OSError(errno.EISDIR, "a file over a directory")
        if replaced.entries:
            raise OSError(errno.ENOTEMPTY, "a directory over one that is not empty")
    elif isinstance(replaced, FileNode) and isinstance(node, DirectoryNode):
        raise OSError(errno.ENOTDIR, "a directory over a file")


def _unlinked(node: Node | None) -> FileNode | None:
    if not isinstance(node, FileNode):
        return None
    node.links -= 1
    return node


SECTOR_BYTES = 512
KEEPING_CHANCES = (0.1, 0.5, 0.9)


class CrashModel(Enum):
    ALL = "all"
    SYNCED = "synced"
    REORDERED = "reordered"


ALL, SYNCED, REORDERED = CrashModel.ALL, CrashModel.SYNCED, CrashModel.REORDERED


class Survivors:
    """Builds the tree of the disk after a crash from the tree before it."""

    def __init__(self, model: CrashModel, rng: random.Random) -> None:
        self._model = model
        self._rng = rng
        self._survival_share = rng.choice(KEEPING_CHANCES)
        self._survives: dict[int, bool] = {}  # by operation
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
        if isinstance(old, DirectoryNode):  # a directory has one name: the first one found
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
        if operation not in self._survives:
            self._survives[operation] = self._rng.random() < self._survival_share
        return self._survives[operation]

    def _contents(self, old: FileNode) -> bytearray:
        if self._model is ALL and not old.has_lost_pages:
            return old.share_current()
        if self._model is SYNCED or not old.unsynced:
            return old.share_synced()
        contents = bytearray(old.share_synced())
        surviving = old.unsynced if self._model is ALL else surviving_writes(old.unsynced, self._rng)
        for offset, data in surviving:
            contents = spliced(contents, offset, data)
        if self._model is REORDERED:
            _extend_with_zeros(contents, old.unsynced, self._rng)
        return contents


def surviving_writes(writes: list[tuple[int, bytes]], rng: random.Random) -> list[tuple[int, bytes]]:
    """Parts of the writes, in the order in which they reach the disk."""
    keeping = rng.choice(KEEPING_CHANCES)
    surviving: list[list[tuple[int, bytes]]] = []
    for index, (offset, data) in enumerate(writes):
        drawn = rng.random()
        if drawn < keeping:
            surviving.append([(offset, data)])
        elif drawn < (1 + keeping) / 2:
            surviving.append(torn(offset, data, index == len(writes) - 1, rng))
    if rng.random() < 0.5:
        rng.shuffle(surviving)
    return [part for parts in surviving for part in parts]


def torn(offset: int, data: bytes, is_last: bool, rng: random.Random) -> list[tuple[int, bytes]]:
    """A part of one write: whole sectors, or for the last write perhaps any first part."""
    if is_last and rng.random() < 0.5:
        return [(offset, data[: rng.randrange(len(data) + 1)])]
    sectors = _by_sector(offset, data)
    cut = rng.randrange(len(sectors) + 1)
    match rng.randrange(3):
        case 0:
            return sectors[:cut]
        case 1:
            return sectors[cut:]
        case _:
            return [sector for sector in sectors if rng.random() < 0.5]


def _by_sector(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    edges = [0, *range(first, len(data), SECTOR_BYTES), len(data)]
    return [(offset + start, data[start:end]) for start, end in pairwise(edges)]


def _extend_with_zeros(contents: bytearray, writes: list[tuple[int, bytes]], rng: random.Random) -> None:
    """The size may survive where the bytes did not."""
    if rng.random() < 0.5:
        offset, data = rng.choice(writes)
        size_bytes = offset + len(data)
        if size_bytes > len(contents):
            contents.extend(bytes(size_bytes - len(contents)))


class PowerCut(BaseException):
    """The power was cut. Only tests may catch this."""


DEVICE = 1
FREE_BYTES_UNLIMITED = 1 << 50


class MemoryFile:
    """A handle on an inode."""

    __slots__ = ("_disk", "_is_open", "_is_writable", "_node", "_path")

    def __init__(self, disk: MemoryFiles, node: FileNode, path: str, is_writable: bool) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._is_writable = is_writable
        self._is_open = True
        node.handles += 1

    @property
    def path(self) -> str:
        return self._path

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        with self._operation("write", changes=True):
            self._disk._write(self._node, offset, b"".join(pieces))

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        with self._operation("write", changes=True):
            data = b"".join(pieces)
            self._disk._write(self._node, offset, data)
            self._node.sync_range(offset, offset + len(data))

    def read_at(self, offset: int, size: int) -> bytes:
        with self._operation("read"):
            return self._node.read(offset, size)

    def allocate(self, offset: int, size: int) -> None:
        with self._operation("allocate", changes=True):
            self._disk._write(self._node, offset, bytes(size))

    def expect(self, offset: int, size: int) -> None:
        """Nothing but memory is here."""

    def forget(self, offset: int, size: int) -> None:
        """Nothing but memory is here."""

    def size(self) -> int:
        with self._operation("stat"):
            return self._node.size_bytes

    def sync(self) -> None:
        with self._operation("sync", changes=True):
            self._node.sync()

    def view(self) -> memoryview:
        with self._operation("map"):
            return self._node.view()

    def close(self) -> None:
        if self._is_open:
            with self._operation("close"):
                self._is_open = False
                self._node.handles -= 1
                self._disk._reclaim(self._node)

    def lose_unsynced(self, stays_readable: bool) -> None:
        """For fault injection: see `FileNode.lose_unsynced`."""
        before_bytes = self._node.size_bytes
        self._node.lose_unsynced(stays_readable)
        self._disk.used_bytes += self._node.size_bytes - before_bytes

    def _operation(self, verb: str, changes: bool = False) -> _Operation:
        if not self._is_open:
            raise Misuse(f"cannot {verb} {self._path}: it is closed")
        if changes and not self._is_writable:
            raise Misuse(f"cannot {verb} {self._path}: it was opened for reading", "open it with writable=True")
        return _Operation(self._disk, verb, self._path, changes and verb != "sync")


class MemoryLock:
    def __init__(self, locks: dict[int, MemoryLock], number: int, holder: str) -> None:
        self.holder = holder
        self._locks = locks
        self._number = number

    def release(self) -> None:
        if self._locks.get(self._number) is self:  # not when released twice, nor after its holder was killed
            del self._locks[self._number]


class MemoryFiles:
    """A `files.protocol.Files`."""

    def __init__(
        self, capacity_bytes: int | None = None, sector_bytes: int = 512, pause: Callable[[], None] | None = None
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.is_read_only = False
        self.pause = pause
        self.used_bytes = 0
        self._sector_bytes = sector_bytes
        self._tree = Tree()
        self._locks: dict[int, MemoryLock] = {}  # by inode number
        self._guard = threading.Lock()

    def crash(self, model: CrashModel, rng: Random) -> MemoryFiles:
        """The disk after a power cut. This one is unchanged."""
        survivors = Survivors(model, random.Random(rng.id64()))
        after = MemoryFiles(self.capacity_bytes, self._sector_bytes)
        after._tree = Tree(survivors.directory(self._tree.root), self._tree.inodes)
        after.used_bytes = survivors.used_bytes()
        return after

    def forget_locks(self) -> None:
        """Release all locks, as the kernel does after `kill -9`, which runs no cleanup."""
        self._locks.clear()

    def contents(self, path: str) -> bytes:
        """All bytes of a file, as reads see them."""
        with _Operation(self, "read", path):
            return bytes(self._tree.file(path).view())

    def set_contents(self, path: str, contents: bytes) -> None:
        """Replace the bytes of `path`, synced, as decay or earlier contents of the disk would."""
        with _Operation(self, "set", path):
            node = self._tree.file(path)
            self.used_bytes += len(contents) - node.size_bytes
            node.reset(bytearray(contents))

    def create(self, path: str) -> MemoryFile:
        with _Operation(self, "create", path, True):
            return MemoryFile(self, self._tree.create(path), path, True)

    def open(self, path: str, writable: bool = False) -> MemoryFile:
        with _Operation(self, "open", path, writable):
            return MemoryFile(self, self._tree.file(path), path, writable)

    def exists(self, path: str) -> bool:
        with _Operation(self, "look for", path):
            try:
                self._tree.find(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def stat(self, path: str) -> FileStat:
        with _Operation(self, "stat", path):
            node = self._tree.find(path)
            if isinstance(node, DirectoryNode):
                return FileStat(0, 2, DEVICE, node.number, True)
            return FileStat(node.size_bytes, node.links, DEVICE, node.number, False)

    def list(self, directory: str) -> list[str]:
        with _Operation(self, "list", directory):
            return sorted(self._tree.directory(directory).entries)

    def make_directories(self, path: str) -> None:
        with _Operation(self, "make directory", path):
            self._tree.make_directories(path, self.is_read_only)

    def rename(self, old: str, new: str) -> None:
        with _Operation(self, "rename", f"{old} to {new}", True):
            self._reclaim(self._tree.rename(old, new))

    def link(self, old: str, new: str) -> None:
        with _Operation(self, "link", f"{old} to {new}", True):
            self._tree.link(old, new)

    def remove(self, path: str) -> None:
        with _Operation(self, "remove", path, True):
            self._reclaim(self._tree.remove(path))

    def remove_directory(self, path: str) -> None:
        with _Operation(self, "remove directory", path, True):
            self._tree.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        with _Operation(self, "open directory", path):
            self._tree.directory(path).sync()

    def lock(self, path: str, holder: str) -> MemoryLock:
        with _Operation(self, "lock", path, True):
            try:
                node = self._tree.file(path)
            except FileNotFoundError:
                node = self._tree.create(path)
            if node.number in self._locks:
                raise owner_of(path, self._locks[node.number].holder)
            self._write(node, 0, holder.encode().ljust(node.size_bytes))
            lock = self._locks[node.number] = MemoryLock(self._locks, node.number, holder)
            return lock

    def free_bytes(self, path: str) -> int:
        with _Operation(self, "ask for free space at", path):
            self._tree.find(path)
            if self.capacity_bytes is None:
                return FREE_BYTES_UNLIMITED
            return max(0, self.capacity_bytes - self.used_bytes)

    def sector_bytes(self, path: str) -> int:
        with _Operation(self, "stat", path):
            self._tree.find(path)
            return self._sector_bytes

    def _write(self, node: FileNode, offset: int, data: bytes) -> None:
        """Write all of it; on a full disk as much as fits, then raise ENOSPC."""
        before_bytes = node.size_bytes
        growth_bytes = max(0, offset + len(data) - before_bytes) if data else 0
        lacking_bytes = 0 if self.capacity_bytes is None else self.used_bytes + growth_bytes - self.capacity_bytes
        is_full = growth_bytes > 0 and lacking_bytes > 0
        if is_full:
            data = data[: max(0, len(data) - lacking_bytes)]
        if data:
            node.write(offset, data)
            self.used_bytes += node.size_bytes - before_bytes
        if is_full:
            raise OSError(errno.ENOSPC, "full")

    def _reclaim(self, node: FileNode | None) -> None:
        """Free the space of a file without names and handles."""
        if node is not None and node.links == 0 and node.handles == 0:
            self.used_bytes -= node.size_bytes


class _Operation:
    """Context of each operation: switch point for threads, mutual exclusion, translation of system errors."""

    __slots__ = ("_changes", "_disk", "_path", "_verb")

    def __init__(self, disk: MemoryFiles, verb: str, path: str, changes: bool = False) -> None:
        self._disk = disk
        self._verb = verb
        self._path = path
        self._changes = changes

    def __enter__(self) -> None:
        if self._disk.pause is not None:
            self._disk.pause()
        if self._changes and self._disk.is_read_only:
            raise translate(OSError(errno.EROFS, "read-only"), self._verb, self._path)
        self._disk._guard.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk._guard.release()
        if isinstance(error, OSError):
            raise translate(error, self._verb, self._path) from error
