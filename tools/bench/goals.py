"""The goals: tools/bench/goals.toml, one line per row, and whether a figure reaches its own.

    [log]
    append_columns = { at_least = 1_000_000 }         of the value, in the row's unit
    single_entry = { ratio_at_most = 1.7 }            of value / reference

The file at the repository's root is the true one. An installed wheel carries a copy beside this module; a test keeps
the two equal.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from operator import ge, le
from pathlib import Path
from typing import Any

from tools.bench.measurement import Figure, Measurement
from warren.base.errors import Misuse

GOALS = Path(__file__).with_name("goals.toml")

_FORMS = {  # how a goal is written: which number it is about, and which way
    "at_least": ("value", ">="),
    "at_most": ("value", "<="),
    "ratio_at_least": ("ratio", ">="),
    "ratio_at_most": ("ratio", "<="),
}
_WAYS = {">=": ge, "<=": le}


@dataclass(frozen=True, slots=True)
class Goal:
    about: str  # "value" or "ratio"
    way: str
    limit: float

    def __str__(self) -> str:
        return f"{self.about} {self.way} {self.limit:.15g}"

    def is_reached_by(self, figure: Figure) -> bool:
        """A goal about a ratio is missed if the reference was not measured."""
        number = figure.value if self.about == "value" else figure.ratio
        return number is not None and bool(_WAYS[self.way](number, self.limit))


Goals = Mapping[str, Goal]


def goals_of(suite: str, path: Path | None = None) -> Goals:
    """The goals of one `warren bench` command, by row."""
    return parse(suite, (path or GOALS).read_text(encoding="utf-8"))


def parse(suite: str, text: str) -> Goals:
    return {name: _goal(name, spec) for name, spec in tomllib.loads(text).get(suite, {}).items()}


def judge(figure: Figure, goals: Goals) -> Measurement:
    goal = goals.get(figure.name)
    holds = goal is None or goal.is_reached_by(figure)
    spec = None if goal is None else str(goal)
    return Measurement(
        figure.name, figure.value, figure.unit, figure.reference, figure.ratio, spec, holds, figure.ratio_range
    )


def _goal(name: str, spec: Any) -> Goal:
    if not isinstance(spec, dict) or len(spec) != 1 or next(iter(spec)) not in _FORMS:
        raise Misuse(f"the goal of {name} is {spec!r}", f"write {name} = {{ FORM = number }}, FORM one of {[*_FORMS]}")
    [(form, limit)] = spec.items()
    return Goal(*_FORMS[form], float(limit))
