"""The protocol of files: every file operation of Warren is one of these methods.

Two implementations are shipped: `files.local` (the real disk) and `testing.memory_files` (a disk in memory that tracks
what was synced). `testing.faulty_files` wraps either to fail, tear, fill up, or cut the power at step n. All three pass
the same conformance suite, so crash tests on the memory disk are valid for the real one.

Guarantees
* `write_at` writes everything or raises; bytes may have reached the disk in part when it raises.
* `write_through` may be repeated after `OutOfRoom` with the same bytes at the same offset: before it
  returns, nothing is assumed durable.
* Nothing is durable before `write_through` (these bytes), `sync` (a file's bytes) and `sync_directory` (names: create,
  rename, link, remove) return.
* After `SyncFailed` the handle is dead: every further write or sync of it raises `SyncFailed` again.
* `allocate` zero-fills, so that "disk full" is raised here or by `write_at`, never first by `sync`.
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
    """An open file. Offsets are explicit: there is no shared position."""

    @property
    def path(self) -> str:
        """The name it was opened by (a rename does not change this)."""
        ...

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """Write the pieces one after the other, starting at `offset`."""
        ...

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """Like `write_at`; returns when these bytes (and the size they need) are on the disk. Others need not be."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""
        ...

    def allocate(self, offset: int, size: int) -> None:
        """Fill [offset, offset + size) with zeros; the file grows to at least that end."""
        ...

    def expect(self, offset: int, size: int) -> None:
        """These bytes will be read soon: the system may read ahead, all at once. A hint, like `forget`."""
        ...

    def forget(self, offset: int, size: int) -> None:
        """The system need not keep these bytes in the page cache; if they are dirty, it may begin to write them. A
        hint: it makes nothing durable, and the bytes stay readable, only slower. Nothing happens if the file is
        closed."""
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
        """Create a directory (mode 0700) and its parents, if missing. Each new name is synced."""
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
        """Lock the file at `path` and write `holder` to it; `Refused`, naming the present holder, if it is locked. The
        lock ends with `release` or with the process."""
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
