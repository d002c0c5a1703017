"""Runs: messages that were published together, as every layer between the wire and the disk handles them.

    publication   contents c₀ … cₙ₋₁ and their common properties                before any queue has them
    run           first sequence id, count, sizes, expiry, …                    one per queue
    slice         messages start … stop of a run, with contents or without      what a queue holds, or delivers

No object is created per message: a thousand messages that arrive together are one run and one slice, until a fetch, an
acknowledgement or paging splits the slice. Splitting copies references, never contents.

Invariants: `contents` of a slice is None (on disk) or has one item for each message; sizes are in bytes and constant.
Elsewhere: which slices a queue holds (queues), how a run is written (queue_index).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from warren.base.ids import Epoch, Lsn, QueueId, SequenceId

Sizes = int | npt.NDArray[np.uint32]  # a single value if all are equal

RAW = 0  # a content is the body only
WIRE = 1  # a content is an AMQP content header and body frames, as received


class QueuePlace(NamedTuple):
    """One sub-queue: a queue, or one priority level of it. A tuple, like `Origin`: both are used as keys."""

    queue: QueueId
    level: int = 0


class Origin(NamedTuple):
    """Where messages were published: needed for dead-letter headers and deliveries."""

    exchange: str = ""
    routing_key: str = ""
    user: str = ""
    content_kind: int = RAW


NOWHERE = Origin()


@dataclass(slots=True, eq=False)  # not frozen: created per batch, and freezing doubles the cost
class Publication:
    """Messages that are published together, to `fan_out` queues; each queue gets a run of them."""

    contents: Sequence[bytes]
    is_persistent: bool = True
    expires_ms: int = 0  # wall time; 0: never
    published_ms: int = 0
    priority: int = 0
    origin: Origin = NOWHERE
    fan_out: int = 1


@dataclass(slots=True, eq=False)
class Run:
    """Messages of one queue that were published together."""

    first: SequenceId
    count: int
    sizes: Sizes
    is_persistent: bool = True
    expires_ms: int = 0
    published_ms: int = 0
    origin: Origin = NOWHERE
    stored: bytes = b""  # location in a message store, in its encoding; b"": embedded, or in memory only
    epoch: Epoch = field(default=Epoch(0))  # in which it was written to the log; 0: not written
    block: Lsn = field(default=Lsn(0))  # position of its row: the block's file and offset; 0: only the index has it
    entry: int = 0  # number of the row in the block

    @property
    def end(self) -> SequenceId:
        return SequenceId(self.first + self.count)

    def size_of(self, start: int, stop: int) -> int:
        """Total bytes of messages start … stop."""
        return self.sizes * (stop - start) if isinstance(self.sizes, int) else int(self.sizes[start:stop].sum())


class Slice:
    """Messages start … stop of a run."""

    __slots__ = ("contents", "run", "size_bytes", "start", "stop")

    def __init__(self, run: Run, start: int, stop: int, contents: list[bytes] | None) -> None:
        self.run = run
        self.start = start
        self.stop = stop
        self.contents = contents
        self.size_bytes = run.size_of(start, stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def __repr__(self) -> str:
        return f"<{self.first}…{self.end - 1}{'' if self.contents is not None else ' on disk'}>"

    @property
    def first(self) -> SequenceId:
        return SequenceId(self.run.first + self.start)

    @property
    def end(self) -> SequenceId:
        return SequenceId(self.run.first + self.stop)

    def split(self, count: int) -> tuple[Slice, Slice]:
        """The first `count` messages, and the others; both parts are non-empty."""
        assert 0 < count < len(self), "a slice is split inside"
        middle, contents = self.start + count, self.contents
        if contents is None:
            return Slice(self.run, self.start, middle, None), Slice(self.run, middle, self.stop, None)
        head, tail = contents[:count], contents[count:]
        return Slice(self.run, self.start, middle, head), Slice(self.run, middle, self.stop, tail)

    def fitting(self, count: int, room: int) -> int:
        """How many of its first `count` messages fit into `room` bytes."""
        count = min(count, self.stop - self.start)
        if self.size_bytes <= room:
            return count
        sizes = self.run.sizes
        if isinstance(sizes, int):
            return min(count, room // sizes)
        ends = np.cumsum(sizes[self.start : self.start + count], dtype=np.int64)
        return int(np.searchsorted(ends, room, side="right"))


def sizes_of(contents: Sequence[bytes]) -> Sizes:
    """The sizes of the contents; a single value if all are equal."""
    sizes = list(map(len, contents))
    first = sizes[0] if sizes else 0
    return first if sizes.count(first) == len(sizes) else np.array(sizes, dtype=np.uint32)


class BatchParticipant(Protocol):
    """A component that writes elsewhere and commits together with an index batch."""

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        """`runs`: those published without contents and not cancelled. The participant sets `stored` of its own runs.
        What it writes here must become durable no later than a session that ends next."""
        ...

    def after_commit(self, epoch: Epoch) -> None:
        """The batch is written; it is durable when the epoch is. Epoch 0: there was nothing to write."""
        ...

    def on_abort(self) -> None:
        """Nothing of the batch was written, nor will be."""
        ...
