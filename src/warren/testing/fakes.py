"""A manual clock and seeded random numbers.

The wall time may be set backwards, as on real machines. The same seed gives the same ids, so that one seed is one run.
"""

from __future__ import annotations

import random

from warren.base.errors import Misuse

START_WALL_NS = 1_700_000_000_000_000_000


class ManualClock:
    """A `Clock` that moves only on request."""

    __slots__ = ("_monotonic_ns", "_wall_ns")

    def __init__(self, wall_ns: int = START_WALL_NS, monotonic_ns: int = 0) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns

    def wall_ns(self) -> int:
        return self._wall_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Advance both clocks."""
        if duration_ns < 0:
            raise Misuse(f"time cannot advance by {duration_ns} ns", "to set the wall clock back, use set_wall_ns")
        self._wall_ns += duration_ns
        self._monotonic_ns += duration_ns

    def set_wall_ns(self, wall_ns: int) -> None:
        """Set the wall clock to any time; the monotonic clock is unaffected."""
        self._wall_ns = wall_ns


class SeededRandom:
    """A `Random` with a seed."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def id64(self) -> int:
        return self._random.randrange(1, 1 << 63)
