"""Which backing queue a queue gets: by its own `x-backing`, else by the settings (checklist BQ-02).

    kinds = BackingKinds({"variable": …, "memory": …, "sql": …}, default="variable")

A kind makes one sub-queue; a queue with priorities is made of as many as it has levels, whatever their kind. Nobody
above this file asks which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from warren.base.errors import Refused
from warren.base.ids import Epoch, QueueId
from warren.base.runs import QueuePlace
from warren.broker.arguments import QueueArguments
from warren.queue_index.changes import IndexBatch
from warren.queue_index.format import Counters
from warren.queues.backing import BackingQueue
from warren.queues.memory import MemoryQueue


class BackingRequest(NamedTuple):
    """What a sub-queue is made from."""

    place: QueuePlace
    is_durable: bool
    is_fresh: bool  # nothing of it is on disk
    newest: Epoch  # of what is
    counters: Counters | None = None  # as the queue index has them; None: they were not read
    starting: IndexBatch | None = None  # what a start has to write joins these, whose end is waited for; None: its own


MakeOne = Callable[[BackingRequest], BackingQueue]
MakePriority = Callable[[Sequence[BackingQueue]], BackingQueue]


class BackingKinds:
    def __init__(self, kinds: Mapping[str, MakeOne], default: str, priority: MakePriority | None = None) -> None:
        self._kinds = {"memory": memory} | dict(kinds)
        self._default = default
        self._priority = priority
        self.check(None)

    def check(self, arguments: QueueArguments | None) -> None:
        """Whether such a queue can be made; else a refusal."""
        kind = (arguments.backing if arguments is not None else None) or self._default
        if kind not in self._kinds:
            raise Refused(f"there is no backing queue of the kind {kind!r}", f"one of {', '.join(sorted(self._kinds))}")
        if arguments is not None and arguments.max_priority and self._priority is None:
            raise Refused("a queue with priorities cannot be made here", "leave x-max-priority out")

    def make(
        self,
        queue: QueueId,
        is_durable: bool,
        arguments: QueueArguments,
        found: Mapping[QueuePlace, Counters],
        newest: Epoch,
        starting: IndexBatch | None = None,
    ) -> BackingQueue:
        """`found`: the counters of its sub-queues, if it is durable."""
        self.check(arguments)
        make = self._kinds[arguments.backing or self._default]
        is_fresh = all(each == Counters() for each in found.values())
        levels = [
            make(BackingRequest(place, is_durable, is_fresh, newest, found.get(place), starting))
            for place in places_of(queue, arguments)
        ]
        return levels[0] if self._priority is None or len(levels) == 1 else self._priority(levels)


def places_of(queue: QueueId, arguments: QueueArguments) -> list[QueuePlace]:
    """Its sub-queues: one for each priority."""
    return [QueuePlace(queue, level) for level in range((arguments.max_priority or 0) + 1)]


def memory(wanted: BackingRequest) -> BackingQueue:
    """Keeps nothing over a restart."""
    return MemoryQueue(wanted.is_durable)
