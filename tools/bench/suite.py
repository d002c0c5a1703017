"""A suite of rows: which scenario makes which of them, and how they are measured and held against their goals.

A scenario is a generator of figures (`run`) that yields its rows in the order of the suite. It stops after the last
wanted row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

from tools.bench.goals import Goals, judge
from tools.bench.measurement import Measurement
from tools.bench.run import BenchRun, Figures
from warren.base.errors import Refused

SomeRun = TypeVar("SomeRun", bound=BenchRun)


@dataclass(frozen=True, slots=True)
class Suite(Generic[SomeRun]):
    scenarios: Mapping[Callable[[SomeRun], Figures], tuple[str, ...]]

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(row for rows in self.scenarios.values() for row in rows)

    def check(self, names: Collection[str]) -> set[str]:
        """The names as a set, if each is a row's."""
        if unknown := sorted(set(names) - set(self.rows)):
            raise Refused(f"there is no row {unknown[0]}", f"rows are {', '.join(self.rows)}")
        return set(names)

    def measure(self, run: SomeRun, goals: Goals, only: Collection[str] = ()) -> list[Measurement]:
        """All rows, or only those named, in the order of the suite."""
        wanted = self.check(only) or set(self.rows)
        made = []
        for scenario, rows in self.scenarios.items():
            for figure in _figures(scenario(run), wanted & set(rows)):
                measurement = judge(figure, goals)
                run.watcher.measured(measurement)
                made.append(measurement)
        return made


def _figures(scenario: Figures, wanted: set[str]) -> Figures:
    """The figures wanted of a scenario, which runs no longer than for them."""
    left = set(wanted)
    with closing(scenario):
        while left:
            figure = next(scenario)
            if figure.name in left:
                left.remove(figure.name)
                yield figure
