"""Name patterns: they match as in RabbitMQ, and are refused where matching would not terminate."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.errors import Refused
from warren.broker.auth.patterns import DEPTH_MAX, PATTERN_CHARACTERS_MAX, compiled, matches


@pytest.mark.parametrize(
    ("pattern", "name", "is_found"),
    [
        ("", "a", False),
        ("", "", False),
        (".*", "a", True),
        (".*", "", True),
        ("order", "my-orders", True),
        ("^order", "my-orders", False),
        ("^(orders|bills)-.*$", "bills-1", True),
        ("^(orders|bills)-.*$", "xbills-1", False),
        (r"^(?!amq\.).*", "amq.topic", False),
        (r"^(?!amq\.).*", "mine", True),
        ("^$", "a", False),
        ("^[a-z]{3}$", "abc", True),
        ("^[a-z]{3}$", "abcd", False),
        (r"^a\.*", "a", True),
        (r"a\.*", "b", False),
        ("(?i)^Ab$", "aB", True),
        ("^[]x]$", "]", True),
        ("^a{}$", "a{}", True),
        (".*?b", "ab", True),
        (r"\d", "٣", False),
        (".*", "a" * 256, False),
    ],
)
def test_a_pattern_is_searched_for_and_has_no_implicit_anchors(pattern: str, name: str, is_found: bool) -> None:
    assert matches(pattern, name) is is_found


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "^(a*)*b",
        "(a|a)*b",
        "(a|ab)+$",
        "^(a?)*$",
        "^" + "a?" * 16 + "a" * 30,
        "^(a|ab){16}b",
        "^.*a.*b.*c.*d$",
        ".*?a.*b.*c",
        "^(a{0,30}){0,30}b",
        "^(?:a+){,}b",
        "^(?P<x>a+){2,}b",
        "^(?=(a+)+b)",
        "^((a+)b?)*$",
        "(((((){255}){255}){255}){255})",
        "^(a|b|[cd]+){300}",
    ],
)
def test_a_pattern_that_could_take_too_long_is_refused_before_it_is_tried(pattern: str) -> None:
    with pytest.raises(Refused, match="could take too long"):
        compiled(pattern)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        (".*foo.*bar.*", "a foo at the bar"),
        ("^.*a.*b$", "xaxb"),
        ("^(a.*|b.*|c.*)$", "cd"),
        ("^[a-z0-9_.-]+$", "amq.gen-7"),
        ("^(a|b|c){2}", "ca"),
    ],
)
def test_common_patterns_are_accepted(pattern: str, meant: str) -> None:
    assert matches(pattern, meant) and not matches(pattern, "")


@pytest.mark.parametrize("pattern", ["^a*a*a*b", "a*a*b", "^.*.*.*b$", "^" + "a?" * 15 + "a" * 240 + "b"])
def test_the_worst_that_is_taken_comes_to_an_end(pattern: str) -> None:
    assert not matches(pattern, "a" * 255)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[a", "*", "a**", "\\", "(?x)a", "(?#a)b", "(a)(?(1)b|c)", "(?z)", "[[:alpha:]]", "[a--b]"],
)
def test_what_is_no_pattern_or_cannot_be_counted_is_refused(pattern: str) -> None:
    with pytest.raises(Refused, match="the pattern"):
        compiled(pattern)


def test_long_and_deep_patterns_are_refused() -> None:
    with pytest.raises(Refused, match="1025 characters"):
        compiled("a" * (PATTERN_CHARACTERS_MAX + 1))
    with pytest.raises(Refused, match="nested too deeply"):
        compiled("(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1))
    with pytest.raises(Refused):
        compiled("a{99999999999999999999}")


@given(st.text(alphabet="ab.*+?|()[]{}^$\\,-2", max_size=14), st.text(alphabet="ab.", max_size=8))
def test_every_accepted_pattern_matches_as_in_python(pattern: str, name: str) -> None:
    try:
        found = matches(pattern, name)
    except Refused:
        return
    assert found == (bool(pattern) and re.search(pattern, name) is not None)
