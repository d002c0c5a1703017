"""Goals are read from one file, and a figure is held against its own and nothing else."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tools.bench.goals import GOALS, goals_of, judge, parse
from tools.bench.measurement import Figure, as_object, shown
from warren.base.errors import Misuse


def test_goals_are_read_from_one_file() -> None:
    assert ROOT / "tools" / "bench" / "goals.toml" == GOALS
    assert goals_of("log") == goals_of("log", GOALS) != {}


@pytest.mark.parametrize(
    ("form", "holds"),
    [
        ("at_least = 10", True),
        ("at_least = 10.1", False),
        ("at_most = 10", True),
        ("at_most = 9.9", False),
        ("ratio_at_least = 2.5", True),
        ("ratio_at_least = 2.6", False),
        ("ratio_at_most = 2.5", True),
        ("ratio_at_most = 2.4", False),
    ],
)
def test_a_figure_reaches_its_goal_or_misses_it(form: str, holds: bool) -> None:
    goals = parse("log", f"[log]\nrow = {{ {form} }}")
    assert judge(Figure("row", 10, "µs", 4), goals).holds == holds


def test_a_ratio_that_was_not_measured_misses_its_goal() -> None:
    goals = parse("log", "[log]\nrow = { ratio_at_most = 1.7 }")
    assert not judge(Figure("row", 10, "µs"), goals).holds


def test_a_figure_without_a_goal_has_none_to_miss() -> None:
    goals = parse("log", "[log]\nother = { at_least = 1e9 }")
    row = judge(Figure("row", 10, "µs"), goals)
    assert row.holds and row.goal is None and row.ratio is None


@pytest.mark.parametrize("text", ["12", "{ at_lest = 12 }", "{ at_least = 1, at_most = 2 }", "{}"])
def test_a_goal_that_is_not_understood_is_misuse(text: str) -> None:
    with pytest.raises(Misuse, match="the goal of row"):
        parse("log", f"[log]\nrow = {text}")


def test_measurements_are_one_object_with_four_digits_each() -> None:
    row = judge(Figure("row", 1234567.0, "entries/s", 333333.0), {})
    assert as_object([row]) == {
        "measurements": [
            {
                "name": "row",
                "value": 1235000.0,
                "unit": "entries/s",
                "reference": 333300.0,
                "ratio": 3.704,
                "goal": None,
                "holds": True,
            }
        ]
    }


def test_the_middle_ratio_of_several_runs_counts_and_their_range_is_reported() -> None:
    goals = parse("log", "[log]\nrow = { ratio_at_least = 3 }")
    row = judge(Figure("row", 10, "µs", 5, (3.00001, 1.0, 9.0)), goals)
    assert row.holds and row.ratio == 3.00001, "value / reference would be 2"
    [text] = as_object([row])["measurements"]
    assert text["ratio"] == 3.0 and text["ratio_range"] == [1.0, 9.0]
    assert judge(Figure("row", 10, "µs", 5, (3.5,)), goals).ratio_range is None, "one lies apart from nothing"


@pytest.mark.parametrize(
    ("number", "text"), [(None, "–"), (1234567.0, "1,235,000"), (12345, "12,340"), (0.0091234, "0.009123"), (12, "12")]
)
def test_numbers_are_shown_with_four_digits(number: float | None, text: str) -> None:
    assert shown(number) == text
