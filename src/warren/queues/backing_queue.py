"""Backing queue: the protocol of every kind of queue (S1, `rabbit_backing_queue`).

    publish ──▶ ready ──fetch──▶ pending ──ack──▶ gone
                  ▲                │
                  └────requeue─────┘            drop, purge: from ready straight to gone

A backing queue is synchronous and has one caller at a time. It adds what has to be written to an `IndexBatch`, which
becomes durable as a whole: so a move from one queue to another is one session (DESIGN rule 24). Proxies wrap one or
several backing queues and are backing queues themselves (priority, mirror).

Tags name pending messages. They are integers, adjacent within one `Fetched`. Their values depend on the queue, with two
rules: a message has the same tag each time it is fetched, and bits 56 and up are its priority level. All calls take
ranges of tags (first, stop).

Invariant: ready messages are fetched in the order of sequence ids, and a requeued message returns to its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from warren.base.messages import Publication, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason

TagRange = tuple[int, int]  # first, stop
LEVEL_SHIFT = 56  # of the priority level in a tag


class Fetched(NamedTuple):
    """Messages of one run with contents; they are pending now."""

    tag: int  # of the first message; the others follow
    slice: Slice
    is_redelivered: bool

    @property
    def tags(self) -> TagRange:
        return self.tag, self.tag + len(self.slice)


class MessageSizes(NamedTuple):
    """Ready and pending messages by residence. Bytes are those of contents."""

    pending_bytes: int = 0
    ready_ram: int = 0  # messages
    pending_ram: int = 0
    ram_bytes: int = 0
    persistent: int = 0  # messages
    persistent_bytes: int = 0

    def plus(self, other: MessageSizes) -> MessageSizes:
        return MessageSizes(*(ours + others for ours, others in zip(self, other, strict=True)))


class BackingQueue(Protocol):
    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        """Append messages. They can be fetched at once, before they are durable."""
        ...

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        """Take up to `count` messages from the head, at least one if there is one; they are pending until acknowledged
        or requeued."""
        ...

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        """Remove pending messages; how many. A tag that is not pending is a `Misuse`, and nothing has changed then."""
        ...

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        """Pending messages with contents, in the order of the tags; they stay pending. For dead-lettering rejected
        messages. A tag that is not pending is a `Misuse`."""
        ...

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        """Return pending messages to their positions; the next fetch marks them as redelivered."""
        ...

    def head(self) -> Slice | None:
        """The slice of the next fetch, without contents; None if nothing is ready."""
        ...

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        """Remove up to `count` ready messages from the head, unread; how many."""
        ...

    def purge(self, batch: IndexBatch) -> int:
        """Remove all ready messages, no pending ones; how many."""
        ...

    def browse(self) -> Iterator[Slice]:
        """Ready messages in order, with contents; they stay ready. Ends early if the queue changes meanwhile."""
        ...

    def __len__(self) -> int:
        """Number of ready messages, in constant time."""
        ...

    @property
    def ready_bytes(self) -> int: ...

    @property
    def pending_count(self) -> int: ...

    @property
    def ram_bytes(self) -> int:
        """About the memory of its messages."""
        ...

    def sizes(self) -> MessageSizes:
        """In constant time."""
        ...

    def set_ram_duration_target(self, seconds: float | None) -> None:
        """Limit memory to the messages published and consumed in so many seconds, at the present rates; None: no limit.
        `page` removes the excess step by step."""
        ...

    def ram_duration(self) -> float:
        """How many seconds the messages in memory last, at the present rates; infinite for an idle queue."""
        ...

    def page(self) -> bool:
        """One step towards the target; whether another one is needed."""
        ...

    def stop(self, batch: IndexBatch) -> None:
        """Write the state for the next start. Pending messages will be ready again, and redelivered."""
        ...

    def delete(self, batch: IndexBatch) -> None:
        """Remove the queue with all its messages, pending or not."""
        ...

    def facts(self) -> Mapping[str, int | float | str]:
        """Figures for operators."""
        ...


@runtime_checkable
class SetAsideQueue(Protocol):
    """A backing queue that can skip damaged messages."""

    def set_aside(self, count: int) -> int:
        """Take up to `count` messages of one slice from the head without reading them; how many. They are pending, but
        no caller has their tags: they stay on disk as they are, and are ready again at the next start."""
        ...


@runtime_checkable
class RollbackQueue(Protocol):
    """A backing queue that can undo publishes and settlements of an aborted batch."""

    @property
    def has_diverged(self) -> bool:
        """Whether an aborted batch removed messages that cannot be restored: the queue differs from its log."""
        ...
