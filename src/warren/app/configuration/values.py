"""How the text of a setting becomes a value. What it cannot be is said with a hint; where it stood, by the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren.base.errors import Misuse, Refused
from warren.broker.permissions import check_patterns

Read = Callable[[str], Any]

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_NAMES = {"notice": "info", "none": "critical", "alert": "critical", "emergency": "critical"} | {
    level: level for level in LOG_LEVELS
}
_TRUE, _FALSE = ("true", "on", "yes"), ("false", "off", "no", "none")


def text(value: str) -> str:
    return value


def name(value: str) -> str:
    if not value:
        raise Misuse("it is empty", "write a name")
    return value


def pattern(value: str) -> str:
    """Of names of queues and exchanges; an empty one permits nothing."""
    try:
        check_patterns(value)
    except Refused as error:
        raise Misuse(error.what, error.hint or "a regular expression, like ^shop-") from error
    return value


def whole(least: int, most: int) -> Read:
    def read(value: str) -> int:
        found = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else -1
        if not least <= found <= most:
            raise Misuse(f"{value[:40]!r} is no number from {least} to {most}", "write digits only")
        return found

    return read


port = whole(0, 65_535)


def seconds(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0.0 <= found < 1e9:
        raise Misuse(f"{value[:40]!r} are no seconds", "a number, like 10 or 0.5")
    return found


def milliseconds(value: str) -> float:
    return float(whole(1, 1 << 40)(value)) / 1000


def truth(value: str) -> bool:
    if value.lower() not in _TRUE + _FALSE:
        raise Misuse(f"{value[:40]!r} is neither true nor false", "write one of these two")
    return value.lower() in _TRUE


def log_level(value: str) -> str:
    """One of Python's levels; RabbitMQ's others are the next of them."""
    found = _LEVEL_NAMES.get(value.lower())
    if found is None:
        raise Misuse(f"{value[:40]!r} is no level of a log", f"{', '.join(LOG_LEVELS)}")
    return found


def listener(value: str) -> tuple[str | None, int]:
    """`5672`, `127.0.0.1:5672`, `[::1]:5672`, `:::5672`: an address, if there is one, and a port."""
    host, colon, digits = value.rpartition(":")
    return (host.removeprefix("[").removesuffix("]") if colon else None), port(digits)
