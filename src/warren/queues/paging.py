"""When to page, and how much: quotas from the memory in use against a target (VQ-34).

    target      seconds × (messages that come and go in a second)
    in memory   contents of ready and of pending messages, and positions beyond what may stay anyway
    quota       in memory − target: spent on contents (q1, then q4), then on those of pending ones, then on positions

What is delivered last goes first, and as soon as the quota is spent it ends: what is to be sent soon stays in memory
(VQ-38). One shared quota goes through all of it, q1 first (C-03). A step is bounded in messages and, about, in bytes,
so a queue that is told to shrink does not keep others waiting: `page` until it says that it is enough.

Always true: without a target nothing is paged. Not here: how a slice is moved (lanes).
"""

from __future__ import annotations

from collections.abc import Callable

from warren.base.runs import Run
from warren.queues.contents import ContentReader
from warren.queues.lanes import SubQueues
from warren.queues.pending_acks import PendingAcks
from warren.queues.rates import Rates
from warren.queues.settings import VariableQueueSettings


class Paging:
    def __init__(
        self,
        lanes: SubQueues,
        pending: PendingAcks,
        reader: ContentReader,
        rates: Rates,
        is_written: Callable[[Run], bool],
        settings: VariableQueueSettings,
    ) -> None:
        self._lanes = lanes
        self._pending = pending
        self._reader = reader
        self._rates = rates
        self._is_written = is_written
        self._settings = settings
        self.target_count: int | None = None  # of messages that may be in memory; None: no limit

    def set_ram_duration_target(self, seconds: float | None) -> None:
        self.target_count = None if seconds is None else int(seconds * self._rates.both)

    def ram_duration(self) -> float:
        return self._rates.duration(self.count)

    @property
    def count(self) -> int:
        """Messages in memory: those whose contents are, and positions that are too many."""
        betas = max(0, self._lanes.beta_count - self._settings.beta_messages_max)
        return self._lanes.ram_count + self._pending.ram_count + betas

    @property
    def quota(self) -> int:
        """How many are too many."""
        return 0 if self.target_count is None else max(0, self.count - self.target_count)

    def page(self) -> bool:
        """One step; whether another one would do something."""
        quota = self.quota
        if quota:
            self._reader.forget()
        step = min(quota, self._step_max())
        return self.reduce_memory_use(step) > 0 and self.quota > 0

    def reduce_memory_use(self, quota: int) -> int:
        """Get so many messages out of memory, as far as they may leave it; of how many contents or position left."""
        left = quota - self._lanes.let_go_of_settled() if quota else 0
        left -= self._lanes.push_alphas_to_betas(left, 0)
        left -= self._lanes.push_alphas_to_betas(0, left)
        if left > 0:
            left -= self._pending.let_go(left, self._is_written, self._lanes.without_contents)
        betas = self._lanes.beta_count - self._settings.beta_messages_max
        if left > 0 and betas > 0:
            left -= self._lanes.push_betas_to_deltas(min(left, betas))
        return quota - left

    def _step_max(self) -> int:
        lanes, pending, settings = self._lanes, self._pending, self._settings
        in_ram = lanes.ram_count + pending.ram_count
        each = (lanes.ram_bytes + pending.ram_bytes) // in_ram if in_ram else 0
        return max(1, min(settings.page_messages_max, settings.page_bytes_max // max(1, each)))
