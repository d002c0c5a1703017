"""The local disk: `Files` on the operating system, the directory lock, and the translation of system errors.

    write_at        pwritev, at most IOV_MAX pieces a call; a short write is continued, never reported as done
    write_through   the same call with RWF_DSYNC: one system call writes and syncs, so a thread releases the interpreter
                    once, not twice; `write_at` and `sync` where the flag is missing, or for too many pieces
    sync            fdatasync (fsync where there is none): the bytes and the size, not the times
    allocate        writes zeros: a hole would promise space that the disk may not have when the bytes come
    expect          posix_fadvise, where available: the system begins to read
    forget          the same: Linux writes dirty pages, without waiting, and drops clean ones
    view            mmap, read-only; it outlives `close` and shows later writes inside its length
    lock            flock on a file that contains the holder's text

Invariants
* A handle whose sync failed once is dead. The kernel may have marked the lost pages clean, so a second sync would
  succeed although the bytes are lost.
* Directories are created 0700 and files 0600.
* Every OSError leaves through `translate`, which names the operation, the path and a hint, by the table `FAMILIES`. An
  error that is not in the table is a `DiskFailure`: it is not safe to continue after it. The memory disk raises the
  same system errors and uses the same table.
* A file is written by the process that opened it; a forked child is refused.

The lock: the kernel drops an flock when the holder's process dies, so a lock is never stale; the text may be, and is
valid only while the lock is held. Two processes cannot hold it, nor can two openers in one process: an flock belongs to
the open file, not to the process. The file is never removed: otherwise two openers could hold two files of one name.

A child that was forked without exec shares the open file and would keep the lock after the parent is killed: it closes
its own copy right after the fork, which leaves the parent's lock in force. Between fork and exec there is still a short
time: if the named holder is dead and the lock is held, `take_lock` waits a little. The text is overwritten before the
file is truncated, so that a full disk, on which even one new block is too much, does not keep the owner out.

Elsewhere: replacing a file as a whole (`files.atomic`), buffering (the writer). There are no retries.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import socket
import stat as mode
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType

from warren.base.environment import Clock, call_in_children, forked_process
from warren.base.errors import DiskFailure, Locked, Misuse, NotFound, OutOfRoom, Refused, SyncFailed, WarrenError
from warren.files.protocol import Buffer, FileStat, join, parent

FAMILIES: dict[int, tuple[type[WarrenError], str]] = {
    errno.ENOSPC: (OutOfRoom, "free some space on this disk; an open store continues automatically"),
    errno.EDQUOT: (OutOfRoom, "the user's disk quota is used up: raise it or free some space"),
    errno.ENOENT: (NotFound, "check the path"),
    errno.EEXIST: (Refused, "the name is taken; it is not overwritten"),
    errno.ENOTDIR: (Refused, "a file stands where a directory is needed: move it away or choose another directory"),
    errno.EISDIR: (Refused, "a directory stands where a file is needed"),
    errno.ENOTEMPTY: (Refused, "the directory still holds something"),
    errno.EROFS: (Refused, "the disk is mounted read-only: remount it, or look at dmesg for why it became so"),
    errno.EACCES: (Refused, "give this user access, or start as the user who owns the directory"),
    errno.EPERM: (Refused, "give this user access, or start as the user who owns the directory"),
    errno.EXDEV: (Refused, "both names must lie on the same disk"),
    errno.EMFILE: (DiskFailure, "too many open files: raise `ulimit -n`"),
    errno.ENFILE: (DiskFailure, "too many open files on this machine: raise fs.file-max"),
}


def translate(error: OSError, operation: str, path: str) -> WarrenError:
    """The Warren error for a system error. `operation` is a verb that follows "cannot"."""
    family, hint = FAMILIES.get(error.errno or 0, (DiskFailure, "look at dmesg and at the disk's health"))
    return family(f"cannot {operation} {path}: {os.strerror(error.errno) if error.errno else error}", hint)


class translated:
    """Context manager: translates every OSError."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise translate(error, self._operation, self._path) from error


HOLDER_BYTES_MAX = 4096
DEAD_HOLDER_SECONDS = 2.0
_PAUSE_SECONDS = 0.01
_PROCESS = re.compile(r"process (\d+) on (\S+), since")


def this_process(clock: Clock) -> str:
    """The usual holder text of a lock: process, host, start time."""
    since = datetime.fromtimestamp(clock.wall_ns() // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since} UTC"


class LocalLock:
    """Held until `release`. Closing would do; unlocking first also ends it for forked children."""

    __slots__ = ("__weakref__", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        call_in_children(self)

    def forked(self) -> None:
        """Close the child's copy without unlocking: the lock is the parent's."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def take_lock(path: str, holder: str) -> LocalLock:
    """Lock the file at `path` and write `holder` to it; raises `Locked` with the present holder's text."""
    text = holder.encode()[:HOLDER_BYTES_MAX]
    with translated("lock", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        except BlockingIOError as error:
            present = _holder(descriptor)
            os.close(descriptor)
            raise owner_of(path, present) from error
        except OSError:
            os.close(descriptor)
            raise
        return LocalLock(descriptor)


def _lock(descriptor: int) -> None:
    """Lock it, or raise BlockingIOError: at once if the holder is alive, else after `DEAD_HOLDER_SECONDS`."""
    deadline = time.monotonic() + DEAD_HOLDER_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline or not _is_dead(_holder(descriptor)):
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, HOLDER_BYTES_MAX, 0).decode(errors="replace")


def _is_dead(holder: str) -> bool:
    """Whether the text names a process of this machine that has ended."""
    named = _PROCESS.search(holder)
    if named is None or named[2] != socket.gethostname():
        return False
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def owner_of(path: str, holder: str) -> Locked:
    """The error of the second opener."""
    return Locked(f"{path} is locked by {holder or 'an unknown process'}", "stop that one first")


PIECES_PER_WRITE_MAX = 1024  # IOV_MAX of Linux; POSIX guarantees 16; all supported systems have 1024
ZEROS = memoryview(bytes(1 << 20))
SECTOR_BYTES_UNKNOWN = 4096
DIRECTORY_MODE = 0o700
OF_OTHERS = 0o077  # permissions of group and others

_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_NO_SUCH_FLAG = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_FULL = (errno.ENOSPC, errno.EDQUOT)

_advise = getattr(os, "posix_fadvise", None)
_sync_data = getattr(os, "fdatasync", os.fsync)


class LocalFile:
    """One open file descriptor."""

    __slots__ = ("_descriptor", "_is_writable", "_path", "_pid", "_sync_failure", "_writes_through")

    def __init__(self, path: str, descriptor: int, is_writable: bool) -> None:
        self._path = path
        self._descriptor = descriptor
        self._is_writable = is_writable
        self._pid = os.getpid()
        self._sync_failure: SyncFailed | None = None
        self._writes_through = _DSYNC != 0

    @property
    def path(self) -> str:
        return self._path

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        descriptor = self._for_writing("write")
        with translated("write", self._path):
            for first in range(0, len(pieces), PIECES_PER_WRITE_MAX):
                offset = _write_all(descriptor, offset, pieces[first : first + PIECES_PER_WRITE_MAX])

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        if self._writes_through and len(pieces) <= PIECES_PER_WRITE_MAX:
            descriptor = self._for_writing("write")
            try:
                _write_all(descriptor, offset, pieces, _DSYNC)
                return
            except OSError as error:
                if error.errno not in _NO_SUCH_FLAG:
                    raise self._not_through(error) from error
                self._writes_through = False
        self.write_at(offset, pieces)
        self.sync()

    def read_at(self, offset: int, size: int) -> bytes:
        descriptor = self._open_descriptor("read")
        with translated("read", self._path):
            read = os.pread(descriptor, size, offset)
            while len(read) < size:  # short read or end of file: only an empty read tells them apart
                more = os.pread(descriptor, size - len(read), offset + len(read))
                if not more:
                    break
                read += more
            return read

    def allocate(self, offset: int, size: int) -> None:
        descriptor = self._for_writing("allocate")
        end = offset + size
        with translated("allocate", self._path):
            while offset < end:
                offset = _write_all(descriptor, offset, (ZEROS[: end - offset],))

    def expect(self, offset: int, size: int) -> None:
        self._hint(offset, size, "POSIX_FADV_WILLNEED")

    def forget(self, offset: int, size: int) -> None:
        self._hint(offset, size, "POSIX_FADV_DONTNEED")

    def _hint(self, offset: int, size: int, which: str) -> None:
        if _advise is not None and self._descriptor >= 0 and size > 0:  # size 0 means: up to the end
            with suppress(OSError):  # hints are optional
                _advise(self._descriptor, offset, size, getattr(os, which))

    def size(self) -> int:
        descriptor = self._open_descriptor("stat")
        with translated("stat", self._path):
            return os.fstat(descriptor).st_size

    def sync(self) -> None:
        descriptor = self._for_writing("sync")
        try:
            _sync_data(descriptor)
        except OSError as error:
            raise self._died(error) from error

    def view(self) -> memoryview:
        descriptor = self._open_descriptor("map")
        with translated("map", self._path):
            if os.fstat(descriptor).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with translated("close", self._path):
                os.close(descriptor)

    def _not_through(self, error: OSError) -> WarrenError:
        """Either the write or the sync failed: unless the disk is full, the handle is dead."""
        return translate(error, "write", self._path) if error.errno in _FULL else self._died(error)

    def _died(self, error: OSError) -> SyncFailed:
        what = f"cannot sync {self._path}: {error.strerror}"
        self._sync_failure = SyncFailed(what, "what was written since the last sync may be lost; stop and restart")
        return self._sync_failure

    def _for_writing(self, operation: str) -> int:
        if self._sync_failure is not None:
            raise SyncFailed(f"cannot {operation} {self._path}: an earlier sync failed", self._sync_failure.hint)
        if not self._is_writable:
            raise Misuse(f"cannot {operation} {self._path}: it was opened for reading", "open it with writable=True")
        if os.getpid() != self._pid:
            raise forked_process(self._path, self._pid)
        return self._open_descriptor(operation)

    def _open_descriptor(self, operation: str) -> int:
        if self._descriptor < 0:
            raise Misuse(f"cannot {operation} {self._path}: it is closed")
        return self._descriptor


def _write_all(descriptor: int, offset: int, pieces: Sequence[Buffer], flags: int = 0) -> int:
    """Write all pieces, in as many calls as needed; return the offset behind them."""
    end = offset
    for piece in pieces:
        end += piece.nbytes if isinstance(piece, memoryview) else len(piece)
    while offset < end:
        written = os.pwritev(descriptor, pieces, offset, flags)
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing and reported no error")
        offset += written
        if offset < end:
            pieces = _behind(pieces, written)
    return offset


def _behind(pieces: Sequence[Buffer], written: int) -> list[Buffer]:
    """The rest of the pieces after their first `written` bytes."""
    remaining: list[Buffer] = []
    for piece in pieces:
        whole = memoryview(piece).cast("B")
        if written < whole.nbytes:
            remaining.append(whole[written:])
        written = max(0, written - whole.nbytes)
    return remaining


def expand_user(path: str) -> str:
    """`~` and `~name` at its beginning replaced by the home directory; unchanged if there is none."""
    return os.path.expanduser(path)


def make_private(path: str) -> None:
    """Create a directory with mode 0700, or restrict an existing one. For libraries that create files in it with modes
    of their own. If the path cannot be a directory, nothing happens: the library reports the cause."""
    with translated("make directory", path):
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            if os.path.isdir(path):
                restrict(path)
        except NotADirectoryError:
            return


def make_private_file(path: str) -> None:
    """Create an empty file with mode 0600, or restrict an existing one. If that fails, nothing happens: the library
    that opens the file reports the cause."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        restrict(path)


def restrict(path: str) -> None:
    """Remove the permissions of group and others from a file or directory, if it exists."""
    with translated("restrict the mode of", path):
        try:
            found = mode.S_IMODE(os.stat(path).st_mode)
        except FileNotFoundError:
            return
        if found & OF_OTHERS:
            os.chmod(path, found & ~OF_OTHERS)


class LocalFiles:
    """`Files` on the operating system."""

    def create(self, path: str) -> LocalFile:
        with translated("create", path):
            return LocalFile(path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600), True)

    def open(self, path: str, writable: bool = False) -> LocalFile:
        with translated("open", path):
            descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
            if mode.S_ISDIR(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EISDIR, "is a directory")
            return LocalFile(path, descriptor, writable)

    def exists(self, path: str) -> bool:
        with translated("look for", path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def stat(self, path: str) -> FileStat:
        with translated("stat", path):
            found = os.stat(path)
            is_directory = mode.S_ISDIR(found.st_mode)
            return FileStat(found.st_size, found.st_nlink, found.st_dev, found.st_ino, is_directory)

    def list(self, directory: str) -> list[str]:
        with translated("list", directory):
            return sorted(os.listdir(directory))

    def make_directories(self, path: str) -> None:
        with translated("make directory", path):
            if os.path.isdir(path):
                return
            if parent(path) != path:
                self.make_directories(parent(path))
            try:
                os.mkdir(path, DIRECTORY_MODE)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise NotADirectoryError(errno.ENOTDIR, "is a file") from None
        self.sync_directory(parent(path))

    def rename(self, old: str, new: str) -> None:
        with translated("rename", f"{old} to {new}"):
            os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        with translated("link", f"{old} to {new}"):
            os.link(old, new)

    def remove(self, path: str) -> None:
        with translated("remove", path):
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        with translated("remove directory", path):
            os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        with translated("open directory", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailed(f"cannot sync directory {path}: {error.strerror}", "stop and restart") from error
        finally:
            os.close(descriptor)

    def lock(self, path: str, holder: str) -> LocalLock:
        return take_lock(path, holder)

    def free_bytes(self, path: str) -> int:
        with translated("ask for free space at", path):
            found = os.statvfs(path)
            return found.f_bavail * found.f_frsize

    def sector_bytes(self, path: str) -> int:
        with translated("stat", path):
            device = os.stat(path).st_dev
        block_device = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        for place in (block_device, parent(block_device)):  # a partition has the queue of its disk
            size_path = join(place, "queue", "physical_block_size")
            if os.path.exists(size_path):
                with translated("read", size_path), open(size_path, encoding="ascii") as text:
                    return int(text.read())
        return SECTOR_BYTES_UNKNOWN
