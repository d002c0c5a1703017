"""Reads invalid bytes: the result, if only errors of Warren are raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from warren.base.errors import Damage, Misuse, Refused

Read = TypeVar("Read")


def value_or_error(read: Callable[[], Read]) -> Read | str:
    """The value that was read, or the text of the error."""
    try:
        return read()
    except (Damage, Refused, Misuse) as error:
        return error.what
