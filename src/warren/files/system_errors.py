"""Our error for the system's: one table by error number, each family with a hint about what to do.

What is not in the table is a `DiskFailure`: an error that nobody foresaw is not one to carry on after. The memory disk
raises the same system errors and sends them through here, so that both disks speak the same words.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from warren.base.errors import DiskFailure, NotFound, OutOfRoom, Refused, WarrenError

FAMILIES: dict[int, tuple[type[WarrenError], str]] = {
    errno.ENOSPC: (OutOfRoom, "free some space on this disk; a store that is open goes on by itself"),
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
    """Our error for the system's. `operation` is a verb: it stands behind "cannot"."""
    family, hint = FAMILIES.get(error.errno or 0, (DiskFailure, "look at dmesg and at the disk's health"))
    return family(f"cannot {operation} {path}: {os.strerror(error.errno) if error.errno else error}", hint)


class translated:
    """Lets no OSError pass untranslated."""

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
