"""Counts what a call does, to compare it at n and at 4n. Counts do not depend on the machine or its load; times do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def count_calls(function: Callable[[], object]) -> int:
    """Calls of functions of Python and of C while it runs, in this thread. What C code does inside one call, such as a
    search in a list, is not seen: a class that counts its comparisons shows that."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
