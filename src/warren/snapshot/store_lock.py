"""The lock of the safe snapshot store: one process at a time has it open for writing.

The lock of the log says who owns the directory. The store may be in the hands of another process that belongs to the
owner (puller), and that one lives on for a moment when the owner is killed. So whoever opens the store waits some
seconds for the lock, and is then told who holds it. A store that is locked is never touched: it is in use.
"""

from __future__ import annotations

from warren.base.errors import Locked
from warren.files.lock import this_process
from warren.files.protocol import DirectoryLock, join
from warren.log.machine import Environment
from warren.snapshot.layout import STORE_LOCK

WAIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


def take_store_lock(
    machine: Environment, directory: str, who: str, wait_seconds: float = WAIT_SECONDS
) -> DirectoryLock:
    """Take it, or be `Locked` out after some seconds with the name of its holder."""
    path, holder = join(directory, STORE_LOCK), f"{who}, {this_process(machine.clock)}"
    pausing = machine.threads.condition()
    for _ in range(int(wait_seconds / _PAUSE_SECONDS)):
        try:
            return machine.files.lock(path, holder)
        except Locked:
            with pausing:
                pausing.wait(_PAUSE_SECONDS)
    return machine.files.lock(path, holder)
