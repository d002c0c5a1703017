"""A supervised queue, as the memory monitor sees it: each call takes the queue's lock, and one that is down rests."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from warren.base.errors import WarrenError
from warren.base.ids import QueueId
from warren.broker.supervisor import QueueHandle
from warren.broker.work import UnitOfWork


class PagedQueueAdapter:
    """Is a `memory_monitor.Paged`."""

    __slots__ = ("_child", "_working", "id")

    def __init__(
        self, child: QueueHandle, working: Callable[[QueueHandle], AbstractContextManager[UnitOfWork]]
    ) -> None:
        self.id: QueueId = child.id
        self._child = child
        self._working = working

    def ram_duration(self) -> float:
        with self._child.lock:
            queue = self._child.queue
            return math.inf if queue is None else queue.backing.ram_duration()

    def set_target(self, seconds: float | None) -> None:
        with self._child.lock:
            queue = self._child.queue
            if queue is not None:
                queue.backing.set_ram_duration_target(seconds)

    def page(self) -> bool:
        try:
            with self._working(self._child) as work:
                queue = self._child.queue
                if queue is None:
                    return False
                work.touch(queue)
                return queue.backing.page()
        except WarrenError:
            return False  # it has failed, which the supervisor has seen to; whoever puts need not hear of it
