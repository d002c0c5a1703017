"""Backing queues made of backing queues, and those in SQL, set up for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.queues.backing_stage import BackingStage
from tests.queues.plain_index import PlainIndex, PlainStore, PlainTransientStore
from tests.queues.sql_stage import SqlStage
from tests.queues.variable_stage import TINY
from warren.base.ids import Epoch, QueueId
from warren.base.messages import QueuePlace
from warren.queues.contents import Stores
from warren.queues.invariants import check
from warren.queues.kinds.memory_queue import MemoryQueue
from warren.queues.kinds.mirror_queue import MirrorQueue
from warren.queues.kinds.priority_queue import PriorityQueue
from warren.queues.variable_queue import VariableQueue
from warren.testing.fakes import ManualClock

LEVELS = [QueuePlace(QueueId(7), level) for level in range(3)]
TWO_QUEUES = [QueuePlace(QueueId(7)), QueuePlace(QueueId(8))]


class VariableQueues:
    """Several of them over one index, paged a step after each call."""

    def __init__(self, places: Sequence[QueuePlace]) -> None:
        self._clock = ManualClock()
        self._places = places
        self._store = PlainStore()
        self.index = PlainIndex(self._clock)
        self.open()

    def open(self) -> None:
        """Start, over what is on disk."""

        def durable_epoch() -> Epoch:
            return self.index.durable_epoch

        stores = Stores(self.index, self._store, PlainTransientStore(), durable_epoch, durable_epoch)
        self.queues = [VariableQueue(place, True, stores, self._clock, TINY) for place in self._places]

    def after(self) -> None:
        for queue in self.queues:
            queue.page()
            check(queue)


def priority_of_memory() -> BackingStage:
    return BackingStage(PriorityQueue([MemoryQueue() for _ in range(3)]))


def priority_of_variable() -> BackingStage:
    below = VariableQueues(LEVELS)
    priority = PriorityQueue(below.queues)
    priority.set_ram_duration_target(0.0)
    return BackingStage(priority, below.index.begin, below.after)


def mirror_of_memory() -> BackingStage:
    mirror = MirrorQueue(MemoryQueue(), MemoryQueue())
    return BackingStage(mirror, after=lambda: check_in_step(mirror))


def mirror_of_variable() -> BackingStage:
    below = VariableQueues(TWO_QUEUES)
    mirror = MirrorQueue(*below.queues)
    mirror.set_ram_duration_target(0.0)

    def after() -> None:
        below.after()
        check_in_step(mirror)

    return BackingStage(mirror, below.index.begin, after)


def mirror_of_two_kinds() -> BackingStage:
    """In memory, with a second queue in SQL."""
    sql = SqlStage()
    mirror = MirrorQueue(MemoryQueue(), sql.queue)
    return BackingStage(mirror, after=lambda: check_in_step(mirror))


def priority_of_mirrors() -> BackingStage:
    mirrors = [MirrorQueue(MemoryQueue(), MemoryQueue()) for _ in range(2)]

    def after() -> None:
        for mirror in mirrors:
            check_in_step(mirror)

    return BackingStage(PriorityQueue(mirrors), after=after)


def sql() -> BackingStage:
    return SqlStage().stage


def check_in_step(mirror: MirrorQueue) -> None:
    assert mirror.is_in_step, mirror.facts()
    assert list(mirror.differences()) == []


PROXIES: dict[str, Callable[[], BackingStage]] = {
    "priority of memory": priority_of_memory,
    "priority of variable": priority_of_variable,
    "mirror of memory": mirror_of_memory,
    "mirror of variable": mirror_of_variable,
    "mirror of two kinds": mirror_of_two_kinds,
    "priority of mirrors": priority_of_mirrors,
    "sql": sql,
}
