"""How fast messages come and go, smoothed.

    rate ← rate · w + (seen / elapsed) · (1 − w)          w = ½ ^ (elapsed / half life)

Counting is an addition; the clock is asked only when somebody wants to know. A burst counts for a while and fades, a
queue that rests comes to nothing.
"""

from __future__ import annotations

import math

from warren.base.environment import Clock

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000


class Rates:
    __slots__ = ("_clock", "_egress", "_half_life_ns", "_ingress", "_since_ns", "fetched", "published")

    def __init__(self, clock: Clock, half_life_ms: int) -> None:
        self._clock = clock
        self._half_life_ns = half_life_ms * MS_NS
        self._since_ns = clock.monotonic_ns()
        self._ingress = 0.0
        self._egress = 0.0
        self.published = 0  # messages since the rates were last brought up to now
        self.fetched = 0

    @property
    def ingress(self) -> float:
        """Messages that come in a second."""
        self._up_to_now()
        return self._ingress

    @property
    def egress(self) -> float:
        """Messages that go in a second."""
        self._up_to_now()
        return self._egress

    @property
    def both(self) -> float:
        self._up_to_now()
        return self._ingress + self._egress

    def duration(self, count: int) -> float:
        """For how many seconds so many messages last; for ever if nothing moves."""
        rate = self.both
        return count / rate if rate else math.inf

    def _up_to_now(self) -> None:
        now_ns = self._clock.monotonic_ns()
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns <= 0:
            return
        weight = 0.5 ** (elapsed_ns / self._half_life_ns)
        self._ingress = self._ingress * weight + self.published * SECOND_NS / elapsed_ns * (1 - weight)
        self._egress = self._egress * weight + self.fetched * SECOND_NS / elapsed_ns * (1 - weight)
        self._since_ns, self.published, self.fetched = now_ns, 0, 0
