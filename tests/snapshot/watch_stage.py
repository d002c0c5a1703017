"""Databases in mode `watch`, with a real puller beside them, on a quick disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from warren.embedded.database import Warren, open_embedded
from warren.log.settings import LogSettings
from warren.snapshot.database import REFLECTION_SOCKET
from warren.snapshot.puller.client import PullerClient
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.workers.control_socket import call
from warren.workers.process import Message

ENOUGH = 120.0  # seconds: only something broken takes so long
QUICK = ReflectionSettings(reflection=Mode.WATCH, lag_seconds=0.0, flush_seconds=0.05, retry_seconds=0.05)
NO_RETENTION = LogSettings(retention_seconds=0.0, retention_bytes=0, compaction_poll_seconds=1e6)


def opened(directory: Path | str, reflection: ReflectionSettings = QUICK) -> Warren:
    return open_embedded(str(directory), NO_RETENTION, reflection)


def puller_client(db: Warren) -> PullerClient:
    assert isinstance(db.database.reflection, PullerClient)
    return db.database.reflection


def order(directory: Path | str, command: str, **more: Any) -> Message:
    return call(f"{directory}/{REFLECTION_SOCKET}", {"command": command, **more}, ENOUGH)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ENOUGH
    while not holds():
        assert time.monotonic() < deadline, f"it never came to that: {what}"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def descriptors(pid: int) -> list[str]:
    found = list[str]()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # one that was open for listing them
            found.append(os.readlink(path))
    return found


def has_caught_up(db: Warren) -> bool:
    return db.database.store.applied.epoch == db.database.log.durable
