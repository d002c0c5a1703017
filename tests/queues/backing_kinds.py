"""Every kind of backing queue, by name, and how to set one up. Whoever makes another kind adds it here."""

from __future__ import annotations

from collections.abc import Callable

from tests.queues.backing_stage import BackingStage
from warren.queues.memory import MemoryQueue


def memory() -> BackingStage:
    return BackingStage(MemoryQueue())


KINDS: dict[str, Callable[[], BackingStage]] = {
    "memory": memory,
}
