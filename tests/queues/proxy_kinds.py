"""Backing queues made of backing queues, set up for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable

from tests.queues.backing_stage import BackingStage
from warren.queues.memory import MemoryQueue
from warren.queues.mirror import MirrorQueue
from warren.queues.priority import PriorityQueue


def priority_of_memory() -> BackingStage:
    return BackingStage(PriorityQueue([MemoryQueue() for _ in range(3)]))


def mirror_of_memory() -> BackingStage:
    mirror = MirrorQueue(MemoryQueue(), MemoryQueue())
    return BackingStage(mirror, after=lambda: check_in_step(mirror))


def priority_of_mirrors() -> BackingStage:
    mirrors = [MirrorQueue(MemoryQueue(), MemoryQueue()) for _ in range(2)]

    def check() -> None:
        for mirror in mirrors:
            check_in_step(mirror)

    return BackingStage(PriorityQueue(mirrors), after=check)


def check_in_step(mirror: MirrorQueue) -> None:
    assert mirror.is_in_step, mirror.facts()
    assert list(mirror.differences()) == []


PROXIES: dict[str, Callable[[], BackingStage]] = {
    "priority of memory": priority_of_memory,
    "mirror of memory": mirror_of_memory,
    "priority of mirrors": priority_of_mirrors,
}
