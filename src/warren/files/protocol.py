"""The seam to the disk: every file operation of Warren is one of these methods.

Two implementations are shipped: `files.local` (the machine's disk) and `testing.memory_files` (a disk that knows what
was synced), and `testing.faulty_files` wraps either to fail, tear, fill up, or cut the power at step n. All three pass
the same conformance suite, so a crash test says something about the real thing.

What a caller may rely on
* `write_at` writes everything or raises; bytes may have reached the disk in part when it raises.
* `write_through` may be repeated after `OutOfRoom` with the same bytes in the same place: nothing is believed before.
* Nothing is durable before `write_through` (these bytes), `sync` (a file's bytes) and `sync_directory` (names: create,
  rename, link, remove) return.
* After `SyncFailed` the handle is dead: every further write or sync of it raises `SyncFailed` again.
* `allocate` zero-fills, so that "disk full" is said here or by `write_at`, never first by `sync`.
* Errors: ENOSPC and EDQUOT are `OutOfRoom`; a missing file, a file in a directory's place, a read-only disk or missing
  permission are `Refused`; every other OSError is `DiskFailure`. Each names the operation and the path.

Paths are plain strings with '/'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FileStat:
    size_bytes: int
    links: int
    device: int
    inode: int
    is_directory: bool


class File(Protocol):
    """An open file. Offsets are explicit: there is no shared position to race for."""

    @property
    def path(self) -> str:
        """The name it was opened by (a rename does not change this)."""
        ...

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """Write the pieces one behind the other from `offset` on."""
        ...

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """The same, and return only when these bytes (and the size they need) are on the disk; others need not be."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""
        ...

    def allocate(self, offset: int, size: int) -> None:
        """Fill [offset, offset + size) with zeros; the file grows to at least that end."""
        ...

    def expect(self, offset: int, size: int) -> None:
        """These bytes will be read soon: the system may fetch them ahead, all at once. A hint like `forget`."""
        ...

    def forget(self, offset: int, size: int) -> None:
        """The system need not keep these bytes in its memory; if the disk has them not yet, it may begin to bring them
        there. A hint: nothing is durable by it, and reading them again is as good as ever, only slower. Nothing happens
        if the file is closed."""
        ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return only when every byte written (and the size) is on the disk."""
        ...

    def view(self) -> memoryview:
        """The whole file as it is now, read-only, without copying where the system can map it."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    def create(self, path: str) -> File:
        """A new, empty, writable file; `Refused` if the name is taken."""
        ...

    def open(self, path: str, writable: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def stat(self, path: str) -> FileStat: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted, without the directory."""
        ...

    def make_directories(self, path: str) -> None:
        """Make a directory (mode 0700) and its parents; nothing happens if it is there. Each new name is synced."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new` if it exists."""
        ...

    def link(self, old: str, new: str) -> None:
        """A second name for the same file; `Refused` if `new` is taken."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str, holder: str) -> DirectoryLock:
        """Take the lock file at `path` and write `holder` in it; `Refused`, naming the present holder, if it is taken.
        It ends with `release` or with the process."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def sector_bytes(self, path: str) -> int:
        """The unit the disk under `path` writes in (usually 512 or 4096)."""
        ...


def join(*parts: str) -> str:
    return "/".join(part.rstrip("/") if part != "/" else "" for part in parts)


def parent(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or ("/" if slash else ".")


def base_name(path: str) -> str:
    return path.rpartition("/")[2]
