"""Sizes and shares as RabbitMQ's configuration writes them.

    1073741824    1GB = 1,000,000,000    1GiB = 1G = 1,073,741,824    case does not matter, nor does a space

A letter alone is binary, as RabbitMQ has it.
"""

from __future__ import annotations

import re

from warren.base.errors import Misuse

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(ib?|b)?|b)?", re.IGNORECASE | re.ASCII)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE_MAX = 1 << 60


def size_bytes(text: str) -> int:
    """`50MB`, `1GiB`, `4096`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Misuse(f"{text[:40]!r} is no size", "like 50MB, 1GiB or 4096")
    number, letter, unit = match.groups()
    base = 1000 if (unit or "").lower() == "b" else 1024
    scale = base ** _POWERS[letter.lower()] if letter else 1
    found = int(number) * scale if number.isdecimal() else int(float(number) * scale)
    if found > _SIZE_MAX:
        raise Misuse(f"{text[:40]!r} is more than any machine has", "like 50MB, 1GiB or 4096")
    return found


def share(text: str) -> float:
    """`0.4`, which is two fifths of something."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found <= 10.0:
        raise Misuse(f"{text[:40]!r} is no share", "a number like 0.4")
    return found
