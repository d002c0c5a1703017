"""A disk that fails by rules, and loses power at step n. Wraps any `Files`.

A fault is a rule: which operation, on which path, when, how often.

    Fault(Kind.IO_ERROR, "read", "*/000017.log")                    one read of that file fails
    Fault(Kind.IO_ERROR, "sync", "*.log")                           one sync fails; its handle stays dead
    Fault(Kind.IO_ERROR, times=None)                                from now on every operation fails
    Fault(Kind.SHORT_WRITE, "write", at_step=12, fraction=0.3)      step 12 writes three tenths, then fails
    full = Fault(Kind.NO_SPACE, times=None, is_armed=False)         a switch: full.is_armed = True … False

A short write that the system permits to continue is invisible here: `LocalFile.write_at` continues until all is
written (tests/files/test_local.py). `SHORT_WRITE` is the other kind: a part is written, then the disk fails.

Every operation that changes the disk is a *step*; `steps` lists them, and its index is the step's number. A crash test
runs once to count them, then once for each: `FaultyFiles(disk, cut_at=n)`. Reading is not a step (a cut before a read
leaves what a cut before the next change leaves), but faults apply to reads too. `make_directories` is a step per new
level.

A power cut comes *before* step n or, with `cut_fraction`, *during* it: that part of a write is done; any other
operation is done completely, but does not return. It raises `PowerCut`, and so does every later operation (handles are
still closed underneath, so that those of a real disk do not leak). Then `disk.crash(model, rng)` returns what is left.

A failed sync is `SyncFailed`, and the handle is dead as the protocol requires: its later writes and syncs fail too.
`pause` is called before each operation, `on_cut` at the power cut: see `stepped_threads`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from warren.base.errors import SyncFailed, WarrenError
from warren.files.local import translate
from warren.files.protocol import Buffer, DirectoryLock, File, Files, FileStat, parent
from warren.testing.memory_files import MemoryFile, PowerCut

WRITING = frozenset({"write", "allocate"})
SYNCING = frozenset({"sync", "sync_directory"})
GROWING = WRITING | {"create", "link", "lock", "make_directory"}
CHANGING = GROWING | SYNCING | {"rename", "remove", "remove_directory"}  # these are the steps of FaultyFiles


class FaultKind(Enum):
    IO_ERROR = "input/output error"
    SHORT_WRITE = "short write, then input/output error"  # applies only to WRITING
    NO_SPACE = "no space left"  # applies only to GROWING: a full disk can still be read, synced and freed


class Pages(Enum):
    """What a failed sync does to the unsynced bytes (on a memory disk; a real one is not controlled)."""

    DIRTY = "still unsynced: a crash may keep them or not"
    CLEAN = "taken for clean: read from the cache, never written"
    DROPPED = "dropped from the cache: reads see what the disk has"


@dataclass(slots=True)
class Fault:
    kind: FaultKind
    operation: str = "*"
    path: str = "*"  # shell pattern for the whole path; a rename or link matches by either name
    at_step: int | None = None  # index in FaultyFiles.steps; None: at any
    times: int | None = 1  # None: sticky
    fraction: float = 0.5  # how much of a write is done before it fails
    pages: Pages = Pages.CLEAN
    is_armed: bool = True

    def meets(self, operation: str, paths: tuple[str, ...], step: int | None) -> bool:
        """Whether the fault applies here; if so, one of its `times` is used up."""
        if not self.is_armed or self.times == 0 or not self._is_about(operation):
            return False
        if self.at_step is not None and self.at_step != step:
            return False
        if not any(fnmatchcase(path, self.path) for path in paths):
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def _is_about(self, operation: str) -> bool:
        if self.operation not in ("*", operation):
            return False
        if self.kind is FaultKind.NO_SPACE:
            return operation in GROWING
        return self.kind is FaultKind.IO_ERROR or operation in WRITING


Result = TypeVar("Result")


class FaultStep(NamedTuple):
    operation: str
    path: str

    def __str__(self) -> str:
        return f"{self.operation} {self.path}"


class FaultyFiles:
    """A `files.protocol.Files`."""

    def __init__(
        self,
        inner: Files,
        faults: Iterable[Fault] = (),
        *,
        cut_at: int | None = None,
        cut_fraction: float | None = None,
        pause: Callable[[], None] | None = None,
        on_cut: Callable[[], None] | None = None,
    ) -> None:
        self.inner = inner
        self.faults = list(faults)
        self.cut_at = cut_at
        self.cut_fraction = cut_fraction
        self.pause = pause
        self.on_cut = on_cut
        self.steps: list[FaultStep] = []
        self.is_cut = False
        self._dead_directories: set[str] = set()

    def create(self, path: str) -> FaultyFile:
        return FaultyFile(self, self._change("create", (path,), lambda: self.inner.create(path)))

    def open(self, path: str, writable: bool = False) -> FaultyFile:
        return FaultyFile(self, self._read_operation("open", path, lambda: self.inner.open(path, writable)))

    def exists(self, path: str) -> bool:
        return self._read_operation("exists", path, lambda: self.inner.exists(path))

    def stat(self, path: str) -> FileStat:
        return self._read_operation("stat", path, lambda: self.inner.stat(path))

    def list(self, directory: str) -> list[str]:
        return self._read_operation("list", directory, lambda: self.inner.list(directory))

    def make_directories(self, path: str) -> None:
        if self.exists(path):
            self._read_operation("stat", path, lambda: self.inner.make_directories(path))
            return
        if not self.exists(parent(path)):
            self.make_directories(parent(path))
        self._change("make_directory", (path,), lambda: self.inner.make_directories(path))

    def rename(self, old: str, new: str) -> None:
        self._change("rename", (old, new), lambda: self.inner.rename(old, new))

    def link(self, old: str, new: str) -> None:
        self._change("link", (old, new), lambda: self.inner.link(old, new))

    def remove(self, path: str) -> None:
        self._change("remove", (path,), lambda: self.inner.remove(path))

    def remove_directory(self, path: str) -> None:
        self._change("remove_directory", (path,), lambda: self.inner.remove_directory(path))

    def sync_directory(self, path: str) -> None:
        if path in self._dead_directories:
            raise _dead("sync_directory", path)
        try:
            self._change("sync_directory", (path,), lambda: self.inner.sync_directory(path))
        except SyncFailed:
            self._dead_directories.add(path)
            raise

    def lock(self, path: str, holder: str) -> FaultyLock:
        return FaultyLock(self, self._change("lock", (path,), lambda: self.inner.lock(path, holder)))

    def free_bytes(self, path: str) -> int:
        return self._read_operation("free_bytes", path, lambda: self.inner.free_bytes(path))

    def sector_bytes(self, path: str) -> int:
        return self._read_operation("sector_bytes", path, lambda: self.inner.sector_bytes(path))

    def _read_operation(self, operation: str, path: str, act: Callable[[], Result]) -> Result:
        self._before()
        fault = self._fault(operation, (path,), None)
        if fault is not None:
            raise _failure(fault, operation, path)
        return act()

    def _change(
        self,
        operation: str,
        paths: tuple[str, ...],
        act: Callable[[], Result],
        act_partly: Callable[[float], None] | None = None,
        on_sync_failure: Callable[[Fault], None] | None = None,
    ) -> Result:
        """One step: execute it, fail it, or cut the power before or during it."""
        self._before()
        number = len(self.steps)
        step = FaultStep(operation, " to ".join(paths))
        self.steps.append(step)
        if number == self.cut_at:
            if self.cut_fraction is not None:
                with suppress(WarrenError):  # its result is lost
                    act_partly(self.cut_fraction) if act_partly else act()
            self._cut(f"at step {number}: {step}")
        fault = self._fault(operation, paths, number)
        if fault is None:
            return act()
        if act_partly is not None and fault.kind is not FaultKind.IO_ERROR:
            act_partly(fault.fraction)
        if on_sync_failure is not None:
            on_sync_failure(fault)
        raise _failure(fault, operation, step.path)

    def _before(self) -> None:
        if self.pause is not None:
            self.pause()
        self._must_have_power()

    def _must_have_power(self) -> None:
        if self.is_cut:
            raise PowerCut("the power is gone")

    def _cut(self, where: str) -> None:
        self.is_cut = True
        if self.on_cut is not None:
            self.on_cut()
        raise PowerCut(where)

    def _fault(self, operation: str, paths: tuple[str, ...], step: int | None) -> Fault | None:
        return next((fault for fault in self.faults if fault.meets(operation, paths, step)), None)


class FaultyFile:
    """A `files.protocol.File`."""

    __slots__ = ("_disk", "_inner", "_is_dead")

    def __init__(self, disk: FaultyFiles, inner: File) -> None:
        self._disk = disk
        self._inner = inner
        self._is_dead = False

    @property
    def path(self) -> str:
        return self._inner.path

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        def partly(fraction: float) -> None:
            data = b"".join(pieces)
            self._inner.write_at(offset, (data[: int(len(data) * fraction)],))

        self._change("write", lambda: self._inner.write_at(offset, pieces), partly)

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """Two steps: the power may be cut between write and sync. Writing the same bytes again changes nothing."""
        self.write_at(offset, pieces)
        self._change("sync", lambda: self._inner.write_through(offset, pieces))

    def read_at(self, offset: int, size: int) -> bytes:
        return self._disk._read_operation("read", self.path, lambda: self._inner.read_at(offset, size))

    def allocate(self, offset: int, size: int) -> None:
        def partly(fraction: float) -> None:
            self._inner.allocate(offset, int(size * fraction))

        self._change("allocate", lambda: self._inner.allocate(offset, size), partly)

    def expect(self, offset: int, size: int) -> None:
        self._inner.expect(offset, size)

    def forget(self, offset: int, size: int) -> None:
        self._inner.forget(offset, size)

    def size(self) -> int:
        return self._disk._read_operation("size", self.path, self._inner.size)

    def sync(self) -> None:
        self._change("sync", self._inner.sync)

    def view(self) -> memoryview:
        return self._disk._read_operation("view", self.path, self._inner.view)

    def close(self) -> None:
        self._inner.close()
        self._disk._must_have_power()

    def _change(
        self, operation: str, act: Callable[[], None], act_partly: Callable[[float], None] | None = None
    ) -> None:
        if self._is_dead:
            raise _dead(operation, self.path)
        on_sync_failure = self._die if operation == "sync" else None
        self._disk._change(operation, (self.path,), act, act_partly, on_sync_failure)

    def _die(self, fault: Fault) -> None:
        self._is_dead = True
        if isinstance(self._inner, MemoryFile) and fault.pages is not Pages.DIRTY:
            self._inner.lose_unsynced(stays_readable=fault.pages is Pages.CLEAN)


class FaultyLock:
    """A `files.protocol.DirectoryLock`."""

    __slots__ = ("_disk", "_inner")

    def __init__(self, disk: FaultyFiles, inner: DirectoryLock) -> None:
        self._disk = disk
        self._inner = inner

    def release(self) -> None:
        self._inner.release()
        self._disk._must_have_power()


def _failure(fault: Fault, operation: str, path: str) -> WarrenError:
    if operation in SYNCING:
        return SyncFailed(f"cannot {operation} {path}: {fault.kind.value} (injected)", "stop and restart")
    number = errno.ENOSPC if fault.kind is FaultKind.NO_SPACE else errno.EIO
    return translate(OSError(number, "injected"), operation, path)


def _dead(operation: str, path: str) -> SyncFailed:
    return SyncFailed(f"cannot {operation} {path}: an earlier sync failed", "stop and restart")
