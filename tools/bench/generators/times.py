"""How long things took: the middle, what one in a hundred exceeds, and all of them in a form that can be put together.

    times_to_readings([0.41237, 0.41204, 3.07])   p50 0.412… · p99 3.01… · "times 0.412": 2 · "times 3.07": 1

A time is reported in three digits with its count, so a million of them are some hundred numbers. Slices of one
measurement are joined by adding these up; percentiles cannot be joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tools.bench.killed_child import Readings

_WORD = "times "
_DIGITS = 3


def times_to_readings(taken: Sequence[float] | NDArray[np.float64], prefix: str = "") -> Readings:
    """In whatever unit they came; nothing of nothing."""
    if len(taken) == 0:
        return {}
    p50, p99 = np.percentile(taken, [50, 99])
    counts = {f"{prefix}{_WORD}{time:.{_DIGITS}g}": count for time, count in _rounded(np.asarray(taken)).items()}
    return {f"{prefix}p50": float(p50), f"{prefix}p99": float(p99), **counts}


def times_from_readings(readings: Readings, prefix: str = "") -> Counter[float]:
    """How often each time came."""
    word = prefix + _WORD
    return Counter({float(name.removeprefix(word)): int(n) for name, n in readings.items() if name.startswith(word)})


def percentile(counts: Counter[float], share: float) -> float:
    """What so many in a hundred do not exceed."""
    times = np.repeat(np.fromiter(counts.keys(), float), np.fromiter(counts.values(), int))
    return float(np.percentile(times, share))


def _rounded(taken: NDArray[np.float64]) -> Counter[float]:
    least = np.maximum(taken, np.finfo(float).tiny)  # no time at all has no logarithm
    step = 10.0 ** (np.floor(np.log10(least)) - (_DIGITS - 1))
    times, counts = np.unique(np.round(taken / step) * step, return_counts=True)
    found: Counter[float] = Counter()
    for time, count in zip(times.tolist(), counts.tolist(), strict=True):
        found[float(f"{time:.{_DIGITS}g}")] += count
    return found
