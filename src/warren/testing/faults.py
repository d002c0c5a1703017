"""What can go wrong with one operation, as a rule: which operation, on which path, when, how often.

    Fault(Kind.IO_ERROR, "read", "*/000017.log")                    one read of that file fails
    Fault(Kind.IO_ERROR, "sync", "*.log")                           one sync fails; its handle stays dead
    Fault(Kind.IO_ERROR, times=None)                                from now on every operation fails
    Fault(Kind.SHORT_WRITE, "write", at_step=12, fraction=0.3)      step 12 writes three tenths, then fails
    full = Fault(Kind.NO_SPACE, times=None, is_armed=False)         a switch: full.is_armed = True … False

A short write which the system lets us continue is invisible behind the seam: `LocalFile.write_at` goes on until all is
written (tests/files/test_local.py). So `SHORT_WRITE` is the other one: a part is written, then the disk fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

WRITING = frozenset({"write", "allocate"})
SYNCING = frozenset({"sync", "sync_directory"})
GROWING = WRITING | {"create", "link", "lock", "make_directory"}
CHANGING = GROWING | SYNCING | {"rename", "remove", "remove_directory"}  # these are the steps of FaultyFiles


class FaultKind(Enum):
    IO_ERROR = "input/output error"
    SHORT_WRITE = "short write, then input/output error"  # meets only WRITING
    NO_SPACE = "no space left"  # meets only GROWING: a full disk can still be read, synced and freed


class Pages(Enum):
    """What a failed sync does to the bytes that were on their way (on a memory disk; a real one does as it likes)."""

    DIRTY = "still unsynced: a crash may keep them or not"
    CLEAN = "taken for clean: read from the cache, never written"
    DROPPED = "dropped from the cache: reads see what the disk has"


@dataclass(slots=True)
class Fault:
    kind: FaultKind
    operation: str = "*"
    path: str = "*"  # as in the shell, over the whole path; a rename or link is met by either of its names
    at_step: int | None = None  # index in FaultyFiles.steps; None: at any
    times: int | None = 1  # None: sticky
    fraction: float = 0.5  # how much of a write is done before it fails
    pages: Pages = Pages.CLEAN
    is_armed: bool = True

    def meets(self, operation: str, paths: tuple[str, ...], step: int | None) -> bool:
        """Does it strike here? Striking uses up one of its `times`."""
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
