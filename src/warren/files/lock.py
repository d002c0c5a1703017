"""The directory lock: one holder at a time, and a name to ask for.

An flock on a file which keeps its holder's text. The kernel drops it when the holder's process dies, so no lock is ever
stale; the text may be, and is believed only while the lock is held. Two processes can not hold it, nor can two openers
in one process: an flock belongs to the open file, not to the process. The file is never removed: two openers could then
hold two files of one name.

A child that was forked without exec shares the open file and would keep the lock alive when the parent is killed: it
closes its own copy right after the fork, which leaves the parent's lock in force. Even so there is a moment between
fork and exec: where the named holder is dead, and the lock is held all the same, it is waited for a little. The text is
overwritten before the file is cut to its length, so that a full disk, on which even one new block is too much, does not
keep the owner from coming back.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from datetime import UTC, datetime

from warren.base.clock import Clock
from warren.base.errors import Locked
from warren.base.process import call_in_children
from warren.files.system_errors import translated

HOLDER_BYTES_MAX = 4096
DEAD_HOLDER_SECONDS = 2.0
_PAUSE_SECONDS = 0.01
_PROCESS = re.compile(r"process (\d+) on (\S+), since")


def this_process(clock: Clock) -> str:
    """The usual holder text of a lock: who, where, since when."""
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
    """Lock the file at `path` and leave `holder` in it, or be `Locked` out with the present holder's text."""
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
            raise held_by(path, present) from error
        except OSError:
            os.close(descriptor)
            raise
        return LocalLock(descriptor)


def _lock(descriptor: int) -> None:
    """Lock it, or raise BlockingIOError: at once if its holder lives, else when its last child has had time to go."""
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
    """Whether the text names a process of this machine that is no more."""
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


def held_by(path: str, holder: str) -> Locked:
    """What the second opener is told."""
    return Locked(f"{path} is locked by {holder or 'somebody who has not written a name yet'}", "stop that one first")
