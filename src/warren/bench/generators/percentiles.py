"""The middle of what was measured, and what one in a hundred exceeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from warren.bench.killed_child import Told


def percentiles(taken: Sequence[float] | NDArray[np.float64], prefix: str = "") -> Told:
    """In whatever unit they came; nothing of nothing."""
    if len(taken) == 0:
        return {}
    p50, p99 = np.percentile(taken, [50, 99])
    return {f"{prefix}p50": float(p50), f"{prefix}p99": float(p99)}
