"""Patterns of names, as RabbitMQ's permissions have them, and a budget for those that would never end.

    ^(orders|bills)-.*$     (2 branches + 1) × 255      = 765 ways at most      taken
    .*a.*b.*                255 ways × 255 to begin     = 65 025                taken (the rims count nothing)
    ^(a+)+$                 a repeat within a repeat    = no end                refused

A pattern is found anywhere in a name, unless it says `^` or `$`. The empty one matches nothing.

Python's matcher tries one way after the other, so one careless pattern could stop everybody. Before a pattern is used,
it is read here, and the ways in which it can go over a name of 255 characters are counted, too many rather than too
few: what follows each other multiplies, branches add up, a repeat of something that goes several ways has no end. What
goes over the budget is refused with its reason. So is what cannot be counted here: verbose flags, comments, conditions.

Always true: no pattern that was taken needs more than `DEAD_LETTER_ROUTES_MAX` ways; a name longer than AMQP has is matched by none.
Where we differ from RabbitMQ: such patterns are refused when they are set, where it would give up while matching.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from warren.base.errors import Refused

NAME_CHARACTERS_MAX = 255
DEAD_LETTER_ROUTES_MAX = NAME_CHARACTERS_MAX**3  # a fraction of a second
SIZE_MAX = 100_000  # repeats of what is empty take time as well
PATTERN_CHARACTERS_MAX = 1024
DEPTH_MAX = 20
_NO_END = DEAD_LETTER_ROUTES_MAX + 1
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})[?+]?", re.ASCII)
_GROUP = re.compile(r"\?(?:P?<[A-Za-z_]\w*>|:|=|!|>|<=|<!|P=\w+(?=\))|[ais]+(?=\))|[ais]+:)", re.ASCII)
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_BEGINNING = ("^", "\\A")


class MatchBudget(NamedTuple):
    dead_letter_routes: int = 1
    size: int = 1


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern is found in the name."""
    return bool(pattern) and len(name) <= NAME_CHARACTERS_MAX and compiled(pattern).search(name) is not None


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Refused if it is no pattern, or goes over the budget."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Refused(f"a pattern has {len(pattern)} characters", f"it has at most {PATTERN_CHARACTERS_MAX}")
    bare = _without_rims(pattern)
    effort = _Reader(bare).read()
    if effort.dead_letter_routes > DEAD_LETTER_ROUTES_MAX or effort.size > SIZE_MAX:
        raise _refused(pattern, "could take too long", "begin it with ^, and repeat nothing that repeats or branches")
    try:
        return re.compile(bare, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise _refused(pattern, f"is none: {error}", "mend it") from error


def _refused(pattern: str, what: str, hint: str) -> Refused:
    return Refused(f"the pattern {pattern[:60]!r} {what}", hint)


def _without_rims(pattern: str) -> str:
    """`.*` at either end changes nothing where a pattern is searched for, and only costs."""
    while pattern.startswith(".*") and pattern[2:3] not in ("?", "+", "*", "{"):
        pattern = pattern[2:]
    while pattern.endswith(".*") and not pattern.endswith("\\.*"):
        pattern = pattern[:-2]
    return pattern


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def read(self) -> MatchBudget:
        effort = self._branches(depth=0)
        if self.at < len(self.pattern):
            raise _refused(self.pattern, "closes what was not opened", "write \\) for a parenthesis")
        return effort

    def _branches(self, depth: int) -> MatchBudget:
        """Up to the parenthesis that closes them, or the end."""
        if depth > DEPTH_MAX:
            raise _refused(self.pattern, "is nested too deeply", f"it has at most {DEPTH_MAX} levels")
        dead_letter_routes, size, count, is_more = 0, 0, 0, True
        while is_more:
            is_bound = depth > 0 or self.pattern.startswith(_BEGINNING, self.at)
            one = self._sequence(depth)
            dead_letter_routes += one.dead_letter_routes if is_bound else one.dead_letter_routes * NAME_CHARACTERS_MAX
            size, count = size + one.size, count + 1
            is_more = self.pattern.startswith("|", self.at)
            self.at += is_more
        dead_letter_routes += count > 1  # to choose costs something, even where nothing is found
        return MatchBudget(min(dead_letter_routes, _NO_END), min(size, SIZE_MAX + 1))

    def _sequence(self, depth: int) -> MatchBudget:
        dead_letter_routes = size = 1
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            one = self._repeated(self._item(depth))
            dead_letter_routes, size = (
                min(dead_letter_routes * one.dead_letter_routes, _NO_END),
                min(size + one.size, SIZE_MAX + 1),
            )
        return MatchBudget(dead_letter_routes, size)

    def _item(self, depth: int) -> MatchBudget:
        match self.pattern[self.at]:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                self.at += 2
            case _:
                self.at += 1
        return MatchBudget()

    def _group(self, depth: int) -> MatchBudget:
        self.at += 1
        if self.pattern.startswith("?", self.at):
            found = _GROUP.match(self.pattern, self.at)
            if found is None:
                raise _refused(self.pattern, "has a group of a kind that is not taken", "write (?:…) or (…)")
            self.at = found.end()
        effort = self._branches(depth + 1)
        if self.at >= len(self.pattern):
            raise _refused(self.pattern, "opens what is not closed", "write \\( for a parenthesis")
        self.at += 1
        return effort

    def _class(self) -> MatchBudget:
        found = _CLASS.match(self.pattern, self.at)
        if found is None:
            raise _refused(self.pattern, "opens what is not closed", "write \\[ for a bracket")
        inside = re.sub(r"\\.", "", found[0][1:-1])
        if any(odd in inside for odd in ("[", "--", "&&", "~~", "||")):
            raise _refused(self.pattern, "has a set within a set", "write \\[ for a bracket, a-z for [:lower:]")
        self.at = found.end()
        return MatchBudget()

    def _repeated(self, one: MatchBudget) -> MatchBudget:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None or found[0].startswith("{}"):
            return one
        self.at = found.end()
        least, most = _bounds(found)
        if most is None:
            return MatchBudget(
                NAME_CHARACTERS_MAX if one.dead_letter_routes == 1 else _NO_END, one.size * NAME_CHARACTERS_MAX
            )
        if one.dead_letter_routes > 1 and most > NAME_CHARACTERS_MAX:
            return MatchBudget(_NO_END, one.size)
        choices = most - least + 2 if most > least else 1
        dead_letter_routes = choices * (one.dead_letter_routes**most if one.dead_letter_routes > 1 else 1)
        return MatchBudget(min(dead_letter_routes, _NO_END), min(one.size * max(most, 1), SIZE_MAX + 1))


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[1]:
        return (1 if found[1] == "+" else 0), (1 if found[1] == "?" else None)
    least = min(int(found[2] or 0), SIZE_MAX + 1)
    if not found[3]:
        return least, least
    return least, min(int(found[4]), SIZE_MAX + 1) if found[4] else None
