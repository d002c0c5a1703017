"""The backing queue: what every kind of queue can do, whatever is behind it (S1, `rabbit_backing_queue`).

    publish ──▶ ready ──fetch──▶ pending ──ack──▶ gone
                  ▲                │
                  └────requeue─────┘            drop, purge: from ready straight to gone

A backing queue is synchronous and belongs to one caller at a time. It decides; what has to be written it adds to the
`IndexBatch` it is given, which become durable together: so a move from one queue to another is one session (DESIGN rule
24). Proxies wrap one backing queue or several and are backing queues themselves (priority, mirror).

Tags name pending messages. They are integers that follow one another within what was fetched together; which ones is
the queue's business, but for two things: a message has the same tag each time that it is fetched, and the bits from the
56th on are its priority level. Everything works on ranges of tags (first, stop).

Always true: what is ready comes out in the order of sequence ids, and what is requeued stands where it stood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from warren.base.messages import Publication, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason

TagRange = tuple[int, int]  # first, stop


class Fetched(NamedTuple):
    """Some messages of one run, with their contents; pending from now on."""

    tag: int  # of the first; the others follow
    slice: Slice
    is_redelivered: bool

    @property
    def tags(self) -> TagRange:
        return self.tag, self.tag + len(self.slice)


class MessageSizes(NamedTuple):
    """Messages that are ready or pending, by where their contents are. Bytes are those of contents."""

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
        """Put messages at the rear. They can be fetched at once, before they are durable."""
        ...

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        """Take up to so many messages from the head, at least one if there is one; they are pending until acknowledged
        or requeued."""
        ...

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        """Let go of pending messages, for a reason; how many. A tag that is not pending is a `Misuse`, and nothing has
        changed then."""
        ...

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        """Pending messages, with their contents, in the order of the tags; they stay pending. For a dead-letter move of
        what was rejected. A tag that is not pending is a `Misuse`."""
        ...

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        """Put pending messages back where they stood; the next fetch says that they were delivered before."""
        ...

    def head(self) -> Slice | None:
        """What the next fetch begins with, without its contents; None if nothing is ready."""
        ...

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        """Let go of up to so many ready messages from the head, without looking at them; how many."""
        ...

    def purge(self, batch: IndexBatch) -> int:
        """Let go of everything that is ready, and of nothing that is pending; how many."""
        ...

    def browse(self) -> Iterator[Slice]:
        """What is ready, in order, with contents, without taking it. Ends early if the queue changes meanwhile."""
        ...

    def __len__(self) -> int:
        """How many are ready; at once, however many that is."""
        ...

    @property
    def ready_bytes(self) -> int: ...

    @property
    def pending_count(self) -> int: ...

    @property
    def ram_bytes(self) -> int:
        """About how much memory its messages take."""
        ...

    def sizes(self) -> MessageSizes:
        """At once, however many messages there are."""
        ...

    def set_ram_duration_target(self, seconds: float | None) -> None:
        """Hold in memory what is consumed or published in so many seconds, at the present rates; None: no limit. What
        is over that is paged out, step by step, by `page`."""
        ...

    def ram_duration(self) -> float:
        """For how many seconds what is in memory lasts, at the present rates; infinite for a queue that rests."""
        ...

    def page(self) -> bool:
        """One step towards the target; whether another one is needed."""
        ...

    def stop(self, batch: IndexBatch) -> None:
        """Before a clean stop: what the next start should know. Pending messages will be ready again, and flagged."""
        ...

    def delete(self, batch: IndexBatch) -> None:
        """Let go of everything, pending or not, for good."""
        ...

    def facts(self) -> Mapping[str, int | float | str]:
        """What an operator may want to know of it."""
        ...


@runtime_checkable
class SetAsideQueue(Protocol):
    """What a backing queue can do besides if some of its messages may be damaged while the others are not."""

    def set_aside(self, count: int) -> int:
        """Take up to so many messages from the head without reading them, all of one slice; how many. They are pending,
        and nobody has their tags: they stay on disk as they are, and are ready again at the next start."""
        ...


@runtime_checkable
class RollbackQueue(Protocol):
    """What a backing queue can do besides: undo publishes and settlements of changes that were aborted."""

    @property
    def has_diverged(self) -> bool:
        """Whether aborted changes have taken messages from it, so that it differs from what is on disk."""
        ...
