"""What one slice of a measurement brought, and how the slices of a run become one reading.

rate    300,000 in 2.0 s, 500,000 in 2.1 s     messages of all slices over seconds of all: 195,000/s
times   how often each came, in each slice     the percentile of all times together
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tools.bench.amqp.run import Bench
from tools.bench.generators.times import percentile, times_from_readings
from tools.bench.killed_child import Readings


@dataclass(frozen=True, slots=True)
class Rate:
    count: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Times:
    counts: Counter[float]
    share: float  # so many in a hundred are wanted


Slice = Mapping[str, Rate | Times]  # by reading
Shape = Callable[[Bench], Slice]  # one slice of it


def rate_of(readings: Readings, counted: str = "confirmed") -> Rate:
    return Rate(readings[counted], readings["seconds"])


def times_of(readings: Readings, name: str, prefix: str = "") -> Slice:
    """The middle and the slowest in a hundred."""
    counts = times_from_readings(readings, prefix)
    return {f"{name}_p50": Times(counts, 50), f"{name}_p99": Times(counts, 99)}


def joined(slices: Sequence[Slice]) -> Readings:
    """The readings of all slices of one shape together."""
    return {name: _joined([each[name] for each in slices]) for name in slices[0]}


def _joined(parts: Sequence[Rate | Times]) -> float:
    if rates := [part for part in parts if isinstance(part, Rate)]:
        return sum(rate.count for rate in rates) / sum(rate.seconds for rate in rates)
    times = [part for part in parts if isinstance(part, Times)]
    return percentile(sum((part.counts for part in times), Counter()), times[0].share)
