"""What this process has open: descriptors and the files they lead to, and threads.

A view of a file holds a descriptor too, for as long as it lives.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_DESCRIPTORS = "/proc/self/fd"


def open_descriptors() -> dict[int, str]:
    """By number: what each leads to."""
    found: dict[int, str] = {}
    for name in os.listdir(_DESCRIPTORS):
        try:
            found[int(name)] = os.readlink(f"{_DESCRIPTORS}/{name}")
        except FileNotFoundError:
            continue  # the one by which they were listed
    return found


def open_in(directory: str | Path) -> list[str]:
    """What is open in a directory, also of files that are gone."""
    return sorted(path for path in open_descriptors().values() if path.startswith(f"{directory}/"))


def thread_names() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())
