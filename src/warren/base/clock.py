"""The seam to time. Replay never asks it: decisions of time are logged, and only new work looks at a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()
