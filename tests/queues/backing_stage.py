"""A stage for one backing queue: the queue, changes to give it, and short words for what tests do to it.

`after` runs when a call has changed something: a kind may page there, or check what must always be true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from warren.base.ids import Epoch
from warren.base.messages import NOWHERE, Origin, Publication
from warren.log.writer import Placed
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.backing_queue import BackingQueue, Fetched, TagRange
from warren.testing.fakes import ManualClock

T = TypeVar("T")


class NoSession:
    """Takes everything and keeps nothing: for queues that write nowhere."""

    placed: Sequence[Placed] = ()

    def put(self, storage: int, key: bytes, value: bytes) -> None: ...

    def remove(self, storage: int, key: bytes) -> None: ...

    def remove_storage(self, storage: int) -> None: ...

    def record(self, value: bytes, *, key: bytes) -> None: ...

    def end(self) -> Epoch:
        return Epoch(1)

    def abort(self) -> None: ...


def changes_to_nowhere() -> IndexBatch:
    return IndexBatch(NoSession, ManualClock())


@dataclass
class BackingStage:
    queue: BackingQueue
    begin: Callable[[], IndexBatch] = changes_to_nowhere
    after: Callable[[], None] = field(default=lambda: None)

    def put(
        self,
        *contents: bytes,
        is_persistent: bool = True,
        expires_ms: int = 0,
        published_ms: int = 0,
        origin: Origin = NOWHERE,
    ) -> None:
        publication = Publication(contents, is_persistent, expires_ms, published_ms, origin=origin)
        self._do(lambda batch: self.queue.publish(publication, batch))

    def get(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        fetched = self.queue.fetch(count, bytes_max)
        self.after()
        return fetched

    def ack(self, *tags: TagRange) -> int:
        return self._do(lambda batch: self.queue.ack(tags, DequeueReason.ACKED, batch))

    def requeue(self, *tags: TagRange) -> int:
        return self._do(lambda batch: self.queue.requeue(tags, batch))

    def drop(self, count: int) -> int:
        return self._do(lambda batch: self.queue.drop(count, DequeueReason.OVER_LIMIT, batch))

    def purge(self) -> int:
        return self._do(self.queue.purge)

    def delete(self) -> None:
        self._do(self.queue.delete)

    def browsed(self) -> list[bytes]:
        return [content for slice_ in self.queue.browse() for content in slice_.contents or [b"none"]]

    def _do(self, what: Callable[[IndexBatch], T]) -> T:
        batch = self.begin()
        try:
            done = what(batch)
        finally:
            batch.end()
        self.after()
        return done


def contents_of(fetched: Sequence[Fetched]) -> list[bytes]:
    return [content for each in fetched for content in each.slice.contents or []]


def flags_of(fetched: Sequence[Fetched]) -> list[bool]:
    return [each.is_redelivered for each in fetched for _ in range(len(each.slice))]


def tags_of(fetched: Sequence[Fetched]) -> list[int]:
    """One for each message."""
    return [tag for each in fetched for tag in range(*each.tags)]


def one(tag: int) -> TagRange:
    return tag, tag + 1


def numbered(first: int, stop: int, size: int = 4) -> list[bytes]:
    """Contents that differ from each other."""
    return [b"%0*d" % (size, number) for number in range(first, stop)]
