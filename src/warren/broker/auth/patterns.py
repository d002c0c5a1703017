"""Patterns: regular expressions for names, as in RabbitMQ's permissions, with a budget against endless matching.

    ^(orders|bills)-.*$     (2 branches + 1) × 255           = 765 paths at most      accepted
    .*a.*b.*                255 paths × 255 start positions  = 65 025                 accepted (.* at the ends is free)
    ^(a+)+$                 a repeat within a repeat         = unlimited              refused

A pattern matches anywhere in a name, unless it has `^` or `$`. The empty pattern matches nothing.

Python's matcher backtracks, so one careless pattern could stop the broker. Before a pattern is used, `_CostReader`
parses it and counts the paths on which it can match a name of 255 characters, rather too many than too few: sequences
multiply, branches add, a repeat of something with several paths is unlimited. A pattern over the budget is refused with
the reason, as is one that cannot be counted: verbose flags, comments, conditions.

Invariants: an accepted pattern needs at most `PATHS_MAX` paths; a name longer than AMQP allows matches no pattern.
RabbitMQ differs: it accepts such patterns, and stops while matching.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from warren.base.errors import Refused

NAME_CHARACTERS_MAX = 255
PATHS_MAX = NAME_CHARACTERS_MAX**3  # a fraction of a second
SIZE_MAX = 100_000  # repeats of an empty match take time as well
PATTERN_CHARACTERS_MAX = 1024
DEPTH_MAX = 20
_UNLIMITED = PATHS_MAX + 1
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})[?+]?", re.ASCII)
_GROUP = re.compile(r"\?(?:P?<[A-Za-z_]\w*>|:|=|!|>|<=|<!|P=\w+(?=\))|[ais]+(?=\))|[ais]+:)", re.ASCII)
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_BEGINNING = ("^", "\\A")


class MatchCost(NamedTuple):
    """Upper bounds of the paths to try and of the expanded size."""

    paths: int = 1
    size: int = 1


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern matches anywhere in the name."""
    return bool(pattern) and len(name) <= NAME_CHARACTERS_MAX and compiled(pattern).search(name) is not None


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Refused if the pattern is invalid, or over the budget."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Refused(f"a pattern has {len(pattern)} characters", f"it has at most {PATTERN_CHARACTERS_MAX}")
    bare = _without_edges(pattern)
    cost = _CostReader(bare).read()
    if cost.paths > PATHS_MAX or cost.size > SIZE_MAX:
        raise _refused(pattern, "could take too long", "begin it with ^, and repeat nothing that repeats or branches")
    try:
        return re.compile(bare, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise _refused(pattern, f"is invalid: {error}", "correct it") from error


def _refused(pattern: str, what: str, hint: str) -> Refused:
    return Refused(f"the pattern {pattern[:60]!r} {what}", hint)


def _without_edges(pattern: str) -> str:
    """`.*` at either end changes nothing in a search, and costs time."""
    while pattern.startswith(".*") and pattern[2:3] not in ("?", "+", "*", "{"):
        pattern = pattern[2:]
    while pattern.endswith(".*") and not pattern.endswith("\\.*"):
        pattern = pattern[:-2]
    return pattern


class _CostReader:
    """Parses a pattern once, from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def read(self) -> MatchCost:
        cost = self._branches(depth=0)
        if self.at < len(self.pattern):
            raise _refused(self.pattern, "has an unmatched closing parenthesis", "write \\) for a parenthesis")
        return cost

    def _branches(self, depth: int) -> MatchCost:
        """Up to the closing parenthesis, or the end."""
        if depth > DEPTH_MAX:
            raise _refused(self.pattern, "is nested too deeply", f"it has at most {DEPTH_MAX} levels")
        paths, size, count, is_more = 0, 0, 0, True
        while is_more:
            is_bound = depth > 0 or self.pattern.startswith(_BEGINNING, self.at)
            one = self._sequence(depth)
            paths += one.paths if is_bound else one.paths * NAME_CHARACTERS_MAX
            size, count = size + one.size, count + 1
            is_more = self.pattern.startswith("|", self.at)
            self.at += is_more
        paths += count > 1  # the choice itself costs, even if no branch matches
        return MatchCost(min(paths, _UNLIMITED), min(size, SIZE_MAX + 1))

    def _sequence(self, depth: int) -> MatchCost:
        paths = size = 1
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            one = self._repeated(self._item(depth))
            paths, size = (
                min(paths * one.paths, _UNLIMITED),
                min(size + one.size, SIZE_MAX + 1),
            )
        return MatchCost(paths, size)

    def _item(self, depth: int) -> MatchCost:
        match self.pattern[self.at]:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                self.at += 2
            case _:
                self.at += 1
        return MatchCost()

    def _group(self, depth: int) -> MatchCost:
        self.at += 1
        if self.pattern.startswith("?", self.at):
            found = _GROUP.match(self.pattern, self.at)
            if found is None:
                raise _refused(self.pattern, "has a group of an unsupported kind", "write (?:…) or (…)")
            self.at = found.end()
        cost = self._branches(depth + 1)
        if self.at >= len(self.pattern):
            raise _refused(self.pattern, "has an unclosed parenthesis", "write \\( for a parenthesis")
        self.at += 1
        return cost

    def _class(self) -> MatchCost:
        found = _CLASS.match(self.pattern, self.at)
        if found is None:
            raise _refused(self.pattern, "has an unclosed bracket", "write \\[ for a bracket")
        inside = re.sub(r"\\.", "", found[0][1:-1])
        if any(odd in inside for odd in ("[", "--", "&&", "~~", "||")):
            raise _refused(self.pattern, "has a set within a set", "write \\[ for a bracket, a-z for [:lower:]")
        self.at = found.end()
        return MatchCost()

    def _repeated(self, one: MatchCost) -> MatchCost:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None or found[0].startswith("{}"):
            return one
        self.at = found.end()
        least, most = _bounds(found)
        if most is None:
            return MatchCost(NAME_CHARACTERS_MAX if one.paths == 1 else _UNLIMITED, one.size * NAME_CHARACTERS_MAX)
        if one.paths > 1 and most > NAME_CHARACTERS_MAX:
            return MatchCost(_UNLIMITED, one.size)
        choices = most - least + 2 if most > least else 1
        paths = choices * (one.paths**most if one.paths > 1 else 1)
        return MatchCost(min(paths, _UNLIMITED), min(one.size * max(most, 1), SIZE_MAX + 1))


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[1]:
        return (1 if found[1] == "+" else 0), (1 if found[1] == "?" else None)
    least = min(int(found[2] or 0), SIZE_MAX + 1)
    if not found[3]:
        return least, least
    return least, min(int(found[4]), SIZE_MAX + 1) if found[4] else None
