"""A disk in memory that knows what was synced, and can be asked what a power cut would leave of it.

    disk = MemoryFiles()
    …                                              a program writes, syncs, renames
    after = disk.crash(REORDERED, SeededChance(7)) a new disk; the old one stays as it was, for other crashes of it

It keeps the whole contract of `files.protocol` — hard links, inode numbers, removed files that are still open, locks,
a full disk (`capacity_bytes`, which may be raised while it runs), a read-only one (`is_read_only`) — and says the same
words as `files.local`, since both translate the same system errors. Syncing a new file does not sync its name.

`pause` is called before each operation: `stepped_threads` changes threads there. A lock makes each operation atomic for
ordinary threads as well. Space is counted as the sum of file sizes; names are free of charge, and holes are not.
Names lead to inodes in `memory_tree`; what an inode holds is in `memory_inode`; what survives, in `memory_crash`.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from warren.base.chance import Random
from warren.base.errors import Misuse
from warren.files.lock import held_by
from warren.files.protocol import Buffer, FileStat
from warren.files.system_errors import translate
from warren.testing.memory_crash import ALL, REORDERED, SYNCED, CrashModel, Survivors
from warren.testing.memory_inode import DirectoryNode, FileNode
from warren.testing.memory_tree import Tree

__all__ = ["ALL", "REORDERED", "SYNCED", "CrashModel", "MemoryFile", "MemoryFiles"]

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
        if self._locks.get(self._number) is self:  # not so the second time, nor after its holder was killed
            del self._locks[self._number]


class MemoryFiles:
    """Is a `files.protocol.Files`."""

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

    def crash(self, model: CrashModel, chance: Random) -> MemoryFiles:
        """The disk as the machine finds it when the power is back. This one is left as it is."""
        survivors = Survivors(model, random.Random(chance.id64()))
        after = MemoryFiles(self.capacity_bytes, self._sector_bytes)
        after._tree = Tree(survivors.directory(self._tree.root), self._tree.inodes)
        after.used_bytes = survivors.used_bytes()
        return after

    def forget_locks(self) -> None:
        """Whoever held a lock is dead: `kill -9` runs no cleanup, and the kernel lets go."""
        self._locks.clear()

    def contents(self, path: str) -> bytes:
        """All bytes of a file, as reads see them."""
        with _Operation(self, "read", path):
            return bytes(self._tree.file(path).view())

    def set_contents(self, path: str, contents: bytes) -> None:
        """Put other bytes under `path`, synced, as decay or an earlier life of the disk would."""
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
                raise held_by(path, self._locks[node.number].holder)
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
        """Write all of it, or as much as there is room for and then say so."""
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
        """A file that has lost its last name and its last handle gives its room back."""
        if node is not None and node.links == 0 and node.handles == 0:
            self.used_bytes -= node.size_bytes


class _Operation:
    """The frame of each operation: a place to change threads, one at a time, system errors in our words."""

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
