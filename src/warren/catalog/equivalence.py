"""Declaring what is there already: fine if it is the same, refused if it differs, saying in what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warren.base.errors import Refused
from warren.catalog.rows import canonical


class Inequivalent(Refused):
    """It is there, and not as it was asked for (AMQP: 406 precondition failed)."""


def check_same(what: str, there: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Compare images field by field; arguments one by one, and a number is not the same as a text of it."""
    differing = _differing(_spread(there), _spread(asked))
    if differing:
        raise Inequivalent(
            f"{what} is there with {_told(differing, 0)}; it was asked for with {_told(differing, 1)}",
            "ask for it as it is, or delete it first",
        )


def _spread(image: Mapping[str, Any]) -> dict[str, str]:
    plain = {name: canonical(value) for name, value in image.items() if name != "arguments"}
    return plain | {f"argument {name}": canonical(value) for name, value in image.get("arguments", {}).items()}


def _differing(there: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = [*asked, *(name for name in there if name.startswith("argument ") and name not in asked)]
    pairs = {name: (there.get(name, "none"), asked.get(name, "none")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _told(differing: Mapping[str, tuple[str, str]], side: int) -> str:
    return ", ".join(f"{name} {pair[side]}" for name, pair in differing.items())
