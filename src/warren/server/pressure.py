"""Why publishers are not read: each reason by itself, and all of them at once.

    unsafe    more is published than the disk has taken        until half of it is durable
    paging    memory is full of messages                       until they are on disk
    garbage   files fill with what nobody wants                until that is cleared away
    cleanup   garbage has held publishers for a second         until that is cleared away   clients are told: blocked
    history   the disk is short of space, history is purged    until that is done
    disk      there is little room left                        until there is more      clients are told: blocked
    memory    all of memory is in consumers' hands             until they settle        clients are told: blocked

Consumers are never held back. A connection that both publishes and consumes is one that publishes: as with RabbitMQ
nothing of it is read, so clients use one connection for each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)
UNSAFE, PAGING, GARBAGE, HISTORY = "unsafe", "paging", "garbage", "history"
DISK, MEMORY, CLEANUP = "disk", "memory", "cleanup"
BLOCKED: Final = {DISK: "low on disk", MEMORY: "low on memory", CLEANUP: "cleaning up disk space"}  # for clients


class PublisherPressure:
    def __init__(self, changed: Callable[[], None], alarmed: Callable[[], None]) -> None:
        """`changed`: whether publishers are read is another now; `alarmed`: what they are told is."""
        self._reasons: set[str] = set()
        self._changed = changed
        self._alarmed = alarmed
        self.is_on = False

    def set(self, reason: str, is_so: bool) -> None:
        if is_so == (reason in self._reasons):
            return
        before = self.alarms
        (self._reasons.add if is_so else self._reasons.discard)(reason)
        was_on, self.is_on = self.is_on, bool(self._reasons)
        if self.alarms != before:
            told = "publishers are blocked" if is_so else "no longer a reason to block publishers"
            _LOG.warning(told, extra={"facts": {"reason": reason}})
            self._alarmed()
        if was_on != self.is_on:
            self._changed()

    def has(self, reason: str) -> bool:
        return reason in self._reasons

    @property
    def alarms(self) -> list[str]:
        return [reason for reason in BLOCKED if reason in self._reasons]
