"""Publish and fetch rates of a queue, smoothed.

    rate ← rate · w + (seen / elapsed) · (1 − w)          w = ½ ^ (elapsed / half life)

Counting is an addition; the clock is read only when a rate is. A burst fades with the half life; the rates of an idle
queue go to 0.
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
        self.published = 0  # messages since the last update
        self.fetched = 0

    @property
    def ingress(self) -> float:
        """Messages published per second."""
        self._update()
        return self._ingress

    @property
    def egress(self) -> float:
        """Messages fetched per second."""
        self._update()
        return self._egress

    @property
    def both(self) -> float:
        self._update()
        return self._ingress + self._egress

    def duration(self, count: int) -> float:
        """How many seconds `count` messages last; infinite at rate 0."""
        rate = self.both
        return count / rate if rate else math.inf

    def _update(self) -> None:
        now_ns = self._clock.monotonic_ns()
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns <= 0:
            return
        weight = 0.5 ** (elapsed_ns / self._half_life_ns)
        self._ingress = self._ingress * weight + self.published * SECOND_NS / elapsed_ns * (1 - weight)
        self._egress = self._egress * weight + self.fetched * SECOND_NS / elapsed_ns * (1 - weight)
        self._since_ns, self.published, self.fetched = now_ns, 0, 0
