"""What a benchmark says: a figure that was measured, and a measurement, which is a figure held against its goal.

    figure       name, value, unit, reference      the reference is something else, measured beside it in the same run
    measurement  … and ratio, goal, holds          ratio = value / reference; holds is computed from bench/goals.toml

With `--json` a command prints exactly one object, {"measurements": [{name, value, unit, reference, ratio, goal, holds},
…]}. What has no reference has no ratio. What has no goal has none to miss: its `goal` is null and it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    reference: float | None = None  # in the same unit

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.reference else None


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    value: float
    unit: str
    reference: float | None
    ratio: float | None
    goal: str | None
    holds: bool


def as_object(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """The one object of `--json`."""
    return {"measurements": [_rounded(asdict(measurement)) for measurement in measurements]}


def shown(number: float | None) -> str:
    """A number for people: four digits that mean something, thousands apart."""
    if number is None:
        return "–"
    rounded = _significant(number)
    return f"{rounded:,.0f}" if abs(rounded) >= 10**SIGNIFICANT_DIGITS else f"{rounded:g}"


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _significant(value) if isinstance(value, float) else value for name, value in fields.items()}


def _significant(number: float) -> float:
    return float(f"{number:.{SIGNIFICANT_DIGITS}g}")
