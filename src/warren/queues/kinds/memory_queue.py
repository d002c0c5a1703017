"""Memory queue: everything in memory, one entry per message; the reference implementation.

    ready     heap of sequence ids          the smallest is fetched next
    pending   set of tags                   a tag is the message's sequence id

It implements the protocol and nothing else: nothing is written, a stop loses everything, a memory target has no effect.
Other queues are compared with it: where one of them differs, it is wrong.

Invariant: a message is ready, pending or gone. Not supported: speed, disk, memory limits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from warren.base.errors import Misuse
from warren.base.ids import SequenceId
from warren.base.messages import Publication, Run, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import Fetched, MessageSizes, TagRange


@dataclass(slots=True, eq=False)
class _MemoryEntry:
    run: Run
    content: bytes
    is_delivered: bool = False

    def slice(self, has_contents: bool = True) -> Slice:
        return Slice(self.run, 0, 1, [self.content] if has_contents else None)


class MemoryQueue:
    """Implements `BackingQueue`."""

    def __init__(self, is_durable: bool = True) -> None:
        self._is_durable = is_durable
        self._entries: dict[int, _MemoryEntry] = {}  # ready and pending ones, by sequence id
        self._ready: list[int] = []
        self._pending: set[int] = set()
        self._ready_bytes = 0
        self._pending_bytes = 0
        self._persistent = self._persistent_bytes = 0  # messages, and their bytes
        self._next = 0
        self._version = 0  # changes with the ready messages; ends a `browse`

    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        p = publication
        is_persistent = self._is_durable and p.is_persistent
        for content in p.contents:
            first = SequenceId(self._next)
            run = Run(first, 1, len(content), is_persistent, p.expires_ms, p.published_ms, p.origin)
            self._entries[first] = _MemoryEntry(run, content)
            self._count_persistent(self._entries[first], 1)
            self._make_ready(first)
            self._next += 1

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        fetched: list[Fetched] = []
        room = math.inf if bytes_max is None else bytes_max
        while self._ready and len(fetched) < count:
            entry = self._entries[self._ready[0]]
            room -= len(entry.content)
            if room < 0 and fetched:
                break
            tag = self._take()
            self._pending.add(tag)
            self._pending_bytes += len(entry.content)
            fetched.append(Fetched(tag, entry.slice(), entry.is_delivered))
            entry.is_delivered = True
        return fetched

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        taken = self._take_pending(tags)
        for tag in taken:
            self._count_persistent(self._entries.pop(tag), -1)
        return len(taken)

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        return [self._entries[tag].slice() for tag in self._pending_tags(tags)]

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        taken = self._take_pending(tags)
        for tag in taken:
            self._make_ready(tag)
        return len(taken)

    def head(self) -> Slice | None:
        return self._entries[self._ready[0]].slice(has_contents=False) if self._ready else None

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        dropped = min(count, len(self._ready))
        for _ in range(dropped):
            self._count_persistent(self._entries.pop(self._take()), -1)
        return dropped

    def purge(self, batch: IndexBatch) -> int:
        return self.drop(len(self._ready), DequeueReason.PURGED, batch)

    def browse(self) -> Iterator[Slice]:
        version = self._version
        for sequence_id in sorted(self._ready):
            yield self._entries[sequence_id].slice()
            if self._version != version:
                return

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def ready_bytes(self) -> int:
        return self._ready_bytes

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def ram_bytes(self) -> int:
        return self._ready_bytes + self._pending_bytes

    def sizes(self) -> MessageSizes:
        ready, pending = len(self._ready), len(self._pending)
        return MessageSizes(
            self._pending_bytes, ready, pending, self.ram_bytes, self._persistent, self._persistent_bytes
        )

    def set_ram_duration_target(self, seconds: float | None) -> None:
        """Everything stays in memory, whatever the target."""

    def ram_duration(self) -> float:
        return math.inf

    def page(self) -> bool:
        return False

    def stop(self, batch: IndexBatch) -> None:
        """Nothing survives a stop."""

    def delete(self, batch: IndexBatch) -> None:
        self._entries, self._ready, self._pending = {}, [], set()
        self._ready_bytes = self._pending_bytes = self._persistent = self._persistent_bytes = 0
        self._version += 1

    def facts(self) -> Mapping[str, int | float | str]:
        return {"kind": "memory", "ready": len(self), "ready_bytes": self._ready_bytes, "pending": self.pending_count}

    # -- helpers -------------------------------------------------------------------------------------------------

    def _count_persistent(self, entry: _MemoryEntry, sign: int) -> None:
        if entry.run.is_persistent:
            self._persistent += sign
            self._persistent_bytes += sign * len(entry.content)

    def _make_ready(self, sequence_id: int) -> None:
        heapq.heappush(self._ready, sequence_id)
        self._ready_bytes += len(self._entries[sequence_id].content)
        self._version += 1

    def _take(self) -> int:
        sequence_id = heapq.heappop(self._ready)
        self._ready_bytes -= len(self._entries[sequence_id].content)
        self._version += 1
        return sequence_id

    def _take_pending(self, ranges: Sequence[TagRange]) -> list[int]:
        tags = self._pending_tags(ranges)
        self._pending.difference_update(tags)
        self._pending_bytes -= sum(len(self._entries[tag].content) for tag in tags)
        return tags

    def _pending_tags(self, ranges: Sequence[TagRange]) -> list[int]:
        """All of them, or a `Misuse`."""
        tags = [tag for first, stop in ranges for tag in range(first, stop)]
        unknown = sorted(set(tags) - self._pending)
        if unknown:
            raise Misuse(f"tag {unknown[0]} is not pending", "acknowledge or requeue each message once")
        if len(set(tags)) < len(tags):
            raise Misuse("a tag is named twice", "acknowledge or requeue each message once")
        return tags
