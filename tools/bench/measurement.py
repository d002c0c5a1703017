"""What a benchmark says: a figure that was measured, and a measurement, which is a figure held against its goal.

    figure       name, value, unit, reference      the reference is something else, measured beside it in the same run
    measurement  … and ratio, goal, holds          ratio = value / reference; holds is computed from goals.toml

What was measured in several runs may bring the ratio of each. Then the ratio is the middle one of them, since value and
reference of one run were measured next to each other, and the measurement also says how far they lie apart.

With `--json` a command prints exactly one object, {"measurements": [{name, value, unit, reference, ratio, goal, holds},
…]}, with `ratio_range`, the lowest ratio and the highest, where there are such. What has no reference has no ratio.
What has no goal has none to miss: its `goal` is null and it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    reference: float | None = None  # in the same unit
    ratios: tuple[float, ...] = ()  # one of each run, where there were several

    @property
    def ratio(self) -> float | None:
        if self.ratios:
            return median(self.ratios)
        return self.value / self.reference if self.reference else None

    @property
    def ratio_range(self) -> tuple[float, float] | None:
        return (min(self.ratios), max(self.ratios)) if len(self.ratios) > 1 else None


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    value: float
    unit: str
    reference: float | None
    ratio: float | None
    goal: str | None
    holds: bool
    ratio_range: tuple[float, float] | None = None  # lowest and highest, of several


def as_object(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """The one object of `--json`."""
    return {"measurements": [_rounded(asdict(measurement)) for measurement in measurements]}


def shown(number: float | None) -> str:
    """Formatted: four significant digits, thousands separated."""
    if number is None:
        return "–"
    rounded = _significant(number)
    return f"{rounded:,.0f}" if abs(rounded) >= 10**SIGNIFICANT_DIGITS else f"{rounded:g}"


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    low_and_high = fields.pop("ratio_range")
    rounded = {name: _significant(value) if isinstance(value, float) else value for name, value in fields.items()}
    return (
        rounded if low_and_high is None else {**rounded, "ratio_range": [_significant(each) for each in low_and_high]}
    )


def _significant(number: float) -> float:
    return float(f"{number:.{SIGNIFICANT_DIGITS}g}")
