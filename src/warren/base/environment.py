"""Clock and random numbers, as protocols: the simulator supplies its own.

Replay never reads a clock: decisions that depend on time are logged, and only new work reads the time. `Random` is the
source of the 64 random bits of timelines and incarnations; it is seeded in the simulator.

`SteadyInstants` maps wall-clock instants to the monotonic clock.

    file sealed at 12:00 (wall)  ──first use, at 12:01──▶  monotonic now − 60 s      ages and deadlines follow from this

Instants that outlive a process, or that another process wrote, are wall time. Each is translated once, at its first
use; a later step of the wall clock changes neither an age nor a deadline. Between processes, and at the first use, the
wall clock is the only source.

Owning process: detects that a store is used in a forked child. A child inherits the memory, but not the threads.

    owner     warren.open ──▶ OwningProcess ──▶ check() passes
      └─ fork ─▶ child       the same object ──▶ check() raises `ForkedProcess`

Parent and child would write to the same offsets of the same files with the same epoch numbers, and the next opening
would find damage. Locks that a thread of the parent held at the fork stay locked in the child forever, so every entry
point checks before it takes a lock.

Destructors also reach the files: RocksDB flushes when its object is destroyed, SQLite removes its write-ahead log.
Objects that own one of them are registered by `call_in_children`; in the child they are never destroyed.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import time
from collections.abc import Collection, Hashable
from typing import Protocol
from weakref import WeakSet

from warren.base.errors import ForkedProcess


class Clock(Protocol):
    def wall_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary moment; never goes back."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


def wall_ms(clock: Clock) -> int:
    return clock.wall_ns() // 1_000_000


def monotonic_ms(clock: Clock) -> int:
    return clock.monotonic_ns() // 1_000_000


class Random(Protocol):
    def id64(self) -> int:
        """A random integer, 1 … 2**63 - 1 (so that it also fits a signed column)."""
        ...


class SystemRandom:
    def id64(self) -> int:
        return secrets.randbelow((1 << 63) - 1) + 1


class SteadyInstants:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Hashable, tuple[int, int]] = {}  # wall and monotonic, by key

    def monotonic_ns(self, key: Hashable, wall_ns: int, since_ns: int | None = None) -> int:
        """The instant of this key; a different `wall_ns` for it is a different instant. `since_ns`: if it is new, it is
        clamped to the time between this monotonic time and now, whatever the wall clock says."""
        known = self._known.get(key)
        if known is None or known[0] != wall_ns:
            now_ns = self._clock.monotonic_ns()
            found = now_ns + wall_ns - self._clock.wall_ns()
            known = self._known[key] = wall_ns, found if since_ns is None else min(max(found, since_ns), now_ns)
        return known[1]

    def forget(self, key: Hashable) -> None:
        self._known.pop(key, None)

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forget all others."""
        for key in [key for key in list(self._known) if key not in keys]:
            self._known.pop(key, None)


class OwningProcess:
    """The process that created this object; `where` names the directory in the error."""

    __slots__ = ("_pid", "_where")

    def __init__(self, where: str) -> None:
        self._where = where
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise forked_process(self._where, self._pid)


def forked_process(where: str, owner_pid: int) -> ForkedProcess:
    return ForkedProcess(
        f"{where} was opened by process {owner_pid}; process {os.getpid()} is a fork of it and cannot use it",
        "one process owns a store: open it after the fork and in one process only, or run `warren serve` and connect "
        "to it from each process",
    )


class Inherited(Protocol):
    def forked(self) -> None:
        """Called in a forked child before anything else runs there. Changes no file."""
        ...


_inherited: WeakSet[Inherited] = WeakSet()


def call_in_children(inherited: Inherited) -> None:
    """Call `inherited.forked()` in every child that is forked while the object exists."""
    _inherited.add(inherited)


def never_destroy(*objects: object) -> None:
    """Add one reference to each object: it is not destroyed, not even when the interpreter ends."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _after_fork() -> None:
    for each in list(_inherited):
        each.forked()


os.register_at_fork(after_in_child=_after_fork)
