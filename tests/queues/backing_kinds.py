"""Every kind of backing queue, by name, and how to set one up. A new kind is added here."""

from __future__ import annotations

from collections.abc import Callable

from tests.queues.backing_stage import BackingStage
from tests.queues.proxy_kinds import PROXIES
from tests.queues.variable_stage import TINY, VariableStage
from warren.queues.invariants import check
from warren.queues.kinds.memory_queue import MemoryQueue


def memory() -> BackingStage:
    return BackingStage(MemoryQueue())


def variable() -> BackingStage:
    return VariableStage().backing


def variable_on_disk() -> BackingStage:
    """Whatever can leave memory has left it, contents and positions."""
    stage = VariableStage(TINY)

    def page() -> None:
        stage.queue.subqueues.push_alphas_to_betas(1000, 1000)
        stage.queue.subqueues.push_betas_to_deltas(1000)
        stage.queue.pending.release(1000, lambda run: True, stage.queue.subqueues.without_contents)
        check(stage.queue, is_deep=True)

    return BackingStage(stage.queue, stage.begin, page)


def variable_under_pressure() -> BackingStage:
    """Paged a step at a time, and nothing is durable before a read needs it."""
    stage = VariableStage(TINY, is_prompt=False)
    stage.queue.set_ram_duration_target(0.0)

    def page() -> None:
        stage.queue.page()
        check(stage.queue)
        stage.index.settle()

    return BackingStage(stage.queue, stage.begin, page)


KINDS: dict[str, Callable[[], BackingStage]] = {
    "memory": memory,
    "variable": variable,
    "variable on disk": variable_on_disk,
    "variable under pressure": variable_under_pressure,
    **PROXIES,
}
