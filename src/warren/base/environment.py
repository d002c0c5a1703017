"""Clock and random numbers, as protocols: the simulator supplies its own.

Replay never reads a clock: decisions that depend on time are logged, and only new work reads the time. `Random` is the
source of the 64 random bits of timelines and incarnations; it is seeded in the simulator.

`SteadyInstants` maps wall-clock instants to the monotonic clock.

    file sealed at 12:00 (wall)  ──first use, at 12:01──▶  monotonic now − 60 s      ages and deadlines follow from this

Instants that outlive a process, or that another process wrote, are wall time. Each is translated once, at its first
use; a later step of the wall clock changes neither an age nor a deadline. Between processes, and at the first use, the
wall clock is the only source.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Hashable
from typing import Protocol


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
