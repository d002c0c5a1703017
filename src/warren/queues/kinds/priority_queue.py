"""Priority queue: one backing queue made of several, one per level (S1, `rabbit_priority_queue`; BQ-05, BQ-06).

    publish, priority 7 of max 2 ──▶ level 2  ▪▪▪        fetch: level 2 while it has some,
                          1      ──▶ level 1  ▪                 then level 1,
                          none   ──▶ level 0  ▪▪▪▪▪             then level 0

    tag = level << 56 | tag of the level

The levels may be of any kind; each has the sub-queue `QueuePlace(queue, level)`. Delivery, browsing and dropping use
one order: the highest level first, within a level the order of publication. So a low level starves while higher ones
are fed, as intended.

*Dropping from the head* drops what would be delivered next, the highest priority first, whatever the reason. A queue
over its length limit thus loses its most urgent messages first. RabbitMQ does so (its `drop` runs through the levels
like its `fetch`, and its page on priorities warns of it); and a drop has to take the message that `head` returned
before. The alternative is overflow reject-publish.

*Time to live* is checked at the head of a level when that level is served. An expired message behind a higher one that
has not expired stays, is counted, and is never delivered. RabbitMQ does the same.

*Memory*: every level gets the whole target. If each holds what lasts so long at its own rates, all together last so
long at the rates of all; an idle level holds nothing. Of several levels over the target the lowest is paged first.

Invariants: a tag of a level is below 2^56. A call with a wrong tag reaches no level. Elsewhere: the number of levels
(queue arguments). The priority of a message is in its tag.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby

from warren.base.errors import Damage, Misuse
from warren.base.messages import Publication, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.row_format import LEVEL_MAX
from warren.queues.backing_queue import (
    LEVEL_SHIFT,
    BackingQueue,
    Fetched,
    MessageSizes,
    RollbackQueue,
    SetAsideQueue,
    TagRange,
)
from warren.queues.pending_acks import TagRanges


class PriorityQueue:
    """Implements `BackingQueue`."""

    def __init__(self, levels: Sequence[BackingQueue]) -> None:
        """Level n gets messages of priority n; the last level also those of higher priority."""
        if not 0 < len(levels) <= LEVEL_MAX + 1:
            raise Misuse(f"a queue has 1 to {LEVEL_MAX + 1} levels, not {len(levels)}")
        self._levels = list(levels)
        self._descending = list(enumerate(levels))[::-1]
        self._pending = TagRanges()
        self._version = 0  # changes with the ready messages; ends a `browse`

    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        self._version += 1
        self._levels[min(publication.priority, len(self._levels) - 1)].publish(publication, batch)

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        self._version += 1
        fetched: list[Fetched] = []
        for number, level in self._descending:
            if count <= 0 or not _fits(level, bytes_max, bool(fetched)):
                break
            try:
                found = level.fetch(count, bytes_max) if len(level) else []
            except Damage:
                if fetched:
                    break  # serve what is readable; the next fetch raises
                raise
            for each in found:
                count -= len(each.slice)
                bytes_max = None if bytes_max is None else bytes_max - each.slice.size_bytes
                fetched.append(each._replace(tag=number << LEVEL_SHIFT | each.tag))
                self._pending.add(*fetched[-1].tags)
            if len(level):  # it stopped at a limit
                break
        return fetched

    def set_aside(self, count: int) -> int:
        """Of the first level with messages, if it can: see `SetAsideQueue`. The level keeps them as pending."""
        self._version += 1
        first: object = next((level for _, level in self._descending if len(level)), None)
        return first.set_aside(count) if isinstance(first, SetAsideQueue) else 0

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        taken = self._pending.take(tags)
        return sum(self._levels[level].ack(own, reason, batch) for level, own in _by_level(taken))

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        self._pending.checked(tags)
        return [slice_ for level, own in _by_level(tags) for slice_ in self._levels[level].read_pending(own)]

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        taken = self._pending.take(tags)
        self._version += 1
        return sum(self._levels[level].requeue(own, batch) for level, own in _by_level(taken))

    def head(self) -> Slice | None:
        """Of the highest level with ready messages. Expired messages are found here, level by level."""
        return next((level.head() for _, level in self._descending if len(level)), None)

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        """The messages that would be delivered next, highest priority first: see the module docstring."""
        self._version += 1
        dropped = 0
        for _, level in self._descending:
            if dropped < count and len(level):
                dropped += level.drop(count - dropped, reason, batch)
        return dropped

    def purge(self, batch: IndexBatch) -> int:
        self._version += 1
        return sum(level.purge(batch) for level in self._levels)

    def browse(self) -> Iterator[Slice]:
        version = self._version
        for _, level in self._descending:
            for slice_ in level.browse():
                yield slice_
                if self._version != version:
                    return

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    @property
    def ready_bytes(self) -> int:
        return sum(level.ready_bytes for level in self._levels)

    @property
    def pending_count(self) -> int:
        return self._pending.count

    @property
    def ram_bytes(self) -> int:
        return sum(level.ram_bytes for level in self._levels)

    def sizes(self) -> MessageSizes:
        return reduce(MessageSizes.plus, (level.sizes() for level in self._levels))

    @property
    def has_diverged(self) -> bool:
        return any(not isinstance(level, RollbackQueue) or level.has_diverged for level in self._levels)

    def set_ram_duration_target(self, seconds: float | None) -> None:
        for level in self._levels:
            level.set_ram_duration_target(seconds)

    def ram_duration(self) -> float:
        """Of all levels together: bytes in memory, divided by the sum of the levels' rates."""
        in_memory = [(level.ram_bytes, level.ram_duration()) for level in self._levels]
        if any(ram_bytes and not seconds for ram_bytes, seconds in in_memory):
            return 0.0
        rate = sum(ram_bytes / seconds for ram_bytes, seconds in in_memory if ram_bytes)
        if rate:
            return sum(ram_bytes for ram_bytes, _ in in_memory) / rate
        return math.inf if any(ram_bytes for ram_bytes, _ in in_memory) else min(seconds for _, seconds in in_memory)

    def page(self) -> bool:
        """One step of the lowest level over the target."""
        return any(level.page() for level in self._levels)

    def stop(self, batch: IndexBatch) -> None:
        for level in self._levels:
            level.stop(batch)

    def delete(self, batch: IndexBatch) -> None:
        self._version += 1
        self._pending.clear()
        for level in self._levels:
            level.delete(batch)

    def facts(self) -> Mapping[str, int | float | str]:
        """Totals, and the ready messages of each level that has some."""
        by_level = {f"ready_at_{number}": len(level) for number, level in self._descending if len(level)}
        return {
            "kind": "priority",
            "levels": len(self._levels),
            "levels_kind": self._levels[0].facts()["kind"],
            "ready": len(self),
            "ready_bytes": self.ready_bytes,
            "pending": self.pending_count,
            **by_level,
        }


def _fits(level: BackingQueue, bytes_max: int | None, has_some: bool) -> bool:
    """Whether its first message fits: a fetch from a level returns at least one."""
    if bytes_max is None or not has_some or (head := level.head()) is None:
        return True
    return head.run.size_of(head.start, head.start + 1) <= bytes_max


def _by_level(tags: Sequence[TagRange]) -> Iterator[tuple[int, list[TagRange]]]:
    """Ranges grouped by level, in the level's own tags."""
    for level, ranges in groupby((each for each in tags if each[0] < each[1]), lambda each: each[0] >> LEVEL_SHIFT):
        base = level << LEVEL_SHIFT
        yield level, [(first - base, stop - base) for first, stop in ranges]
