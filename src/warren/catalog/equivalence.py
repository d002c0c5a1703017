"""Equivalence: declaring an existing object succeeds if it is the same; otherwise the error names the differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warren.base.errors import Refused
from warren.catalog.rows import canonical


class Inequivalent(Refused):
    """The object exists with other properties (AMQP: 406 precondition failed)."""


def check_same(what: str, current: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Compare images field by field, arguments one by one. A number differs from its text."""
    differing = _differing(_flatten(current), _flatten(declared))
    if differing:
        raise Inequivalent(
            f"{what} exists with {_listed(differing, 0)}; it was declared with {_listed(differing, 1)}",
            "declare it as it is, or delete it first",
        )


def _flatten(image: Mapping[str, Any]) -> dict[str, str]:
    plain = {name: canonical(value) for name, value in image.items() if name != "arguments"}
    return plain | {f"argument {name}": canonical(value) for name, value in image.get("arguments", {}).items()}


def _differing(current: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = [*declared, *(name for name in current if name.startswith("argument ") and name not in declared)]
    pairs = {name: (current.get(name, "none"), declared.get(name, "none")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _listed(differing: Mapping[str, tuple[str, str]], side: int) -> str:
    return ", ".join(f"{name} {pair[side]}" for name, pair in differing.items())
