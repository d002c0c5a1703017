"""Where contents and positions lie when they are not in memory, and how a queue reads them back.

    index        positions of persistent messages, and their contents if they are small
    persistent   large contents, and those that several queues hold
    transient    contents of transient messages that memory had no room for; gone with the next start

A queue moves messages and asks these for what it has let go of (VQ-45). Reading one message at a time would mean one
read of the disk for each: so what is read for a fetch is read ahead a little, and kept until it is fetched.

Always true: contents of a sequence id never change, so what was read ahead is right for as long as it is kept. Not
here: who decides what leaves memory (paging), how anything is written to the log (queue_index/batch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import QueuePlace, Run, Sizes, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.index import IndexedRun, OnDamage, Piece
from warren.queue_index.row_format import Counters

AHEAD_SLICES_MAX = 256
BULK_BYTES_MAX = 1 << 20


class IndexSource(Protocol):
    """What is used of a queue index."""

    def recover(self, place: QueuePlace, newest: Epoch = ..., on_damage: OnDamage | None = None) -> Counters: ...

    def scan(
        self,
        place: QueuePlace,
        first: SequenceId,
        stop: SequenceId,
        newest: Epoch,
        runs_max: int | None = None,
        messages_max: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[IndexedRun]: ...

    def contents_of(self, place: QueuePlace, pieces: Sequence[Piece]) -> list[list[bytes]]: ...


class PersistentContents(Protocol):
    """What is used of the message store."""

    def submit(
        self, publication: object, contents: Sequence[bytes], place: QueuePlace, run: Run, batch: IndexBatch
    ) -> None:
        """`publication`: what is the same for every queue that gets these very contents."""
        ...

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]: ...


class TransientContents(Protocol):
    """What is used of its transient twin."""

    def write(self, contents: Sequence[bytes]) -> bytes: ...

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]: ...

    def remove(self, stored: bytes) -> None: ...


NoteDead = Callable[[Run, int, bool], None]  # so many bytes of a run are gone; was that the last of it?
ReportAlive = Callable[[QueuePlace, int], None]  # bytes of all messages of a sub-queue, ready or pending


def _nobody_asks(run: Run, size_bytes: int, is_all: bool) -> None:
    """Garbage is found without hints as well."""


def _ignore(place: QueuePlace, size_bytes: int) -> None:
    """For a queue whose sizes are not summed."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything behind a queue."""

    index: IndexSource
    persistent: PersistentContents
    transient: TransientContents
    durable_epoch: Callable[[], Epoch]
    note_dead: NoteDead = _nobody_asks
    indexed_epoch: Callable[[], Epoch] | None = None  # None: whatever is durable is in the index
    report_alive: ReportAlive = _ignore
    note_deleted: Callable[[int], None] = lambda size_bytes: None  # a durable queue is deleted with so many bytes in it

    def is_written(self, run: Run) -> bool:
        """Whether its contents can be let go of: they are durable, or it makes no difference."""
        return not run.is_persistent or 0 < run.epoch <= self.durable_epoch()

    def scannable_epoch(self) -> Epoch:
        """A scan of the index sees what was written up to this epoch; it never moves back."""
        return self.durable_epoch() if self.indexed_epoch is None else self.indexed_epoch()

    def is_scannable(self, run: Run) -> bool:
        """Whether its position can be dropped: a scan finds it again."""
        return not run.is_persistent or 0 < run.epoch <= self.scannable_epoch()


class ReadTransients(Protocol):
    def read(self, run: Run, start: int, stop: int) -> list[bytes]: ...


class ContentReader:
    """Reads contents for one queue."""

    def __init__(self, place: QueuePlace, stores: Stores, transients: ReadTransients, ahead_bytes_max: int) -> None:
        self._place = place
        self._stores = stores
        self._transients = transients
        self._ahead_bytes_max = ahead_bytes_max
        self._ahead: deque[Slice] = deque()
        self.ahead_count = 0
        self.ahead_bytes = 0

    def read(self, slices: Sequence[Slice]) -> list[list[bytes]]:
        """Contents of each of them, from wherever they are."""
        found: list[list[bytes] | None] = [slice_.contents for slice_ in slices]
        embedded = []
        for at, slice_ in enumerate(slices):
            run = slice_.run
            if found[at] is not None:
                continue
            if not run.is_persistent:
                found[at] = self._transients.read(run, slice_.start, slice_.stop)
            elif run.stored:
                found[at] = self._stores.persistent.read(run.stored, run.sizes, slice_.start, slice_.stop)
            else:
                embedded.append(at)
        if embedded:
            pieces = [(slices[at].run, slices[at].start, slices[at].stop) for at in embedded]
            for at, contents in zip(embedded, self._stores.index.contents_of(self._place, pieces), strict=True):
                found[at] = contents
        return [contents for contents in found if contents is not None]

    def read_first(self, upcoming: Iterable[Slice], count: int) -> list[bytes]:
        """Contents of the first messages of what comes next, at most so many and all of one slice. What comes behind
        them is read as well, and kept for the next time."""
        slices = iter(upcoming)
        head = next(slices)
        kept = self._kept(head.first)
        if kept is None:
            self._read_ahead(head, slices, count)
            kept = self._ahead[0]
        assert kept.contents is not None
        offset = head.first - kept.first
        return kept.contents[offset : offset + min(count, len(head))]

    def forget(self) -> None:
        """Let go of what was read ahead."""
        self._ahead.clear()
        self.ahead_count = self.ahead_bytes = 0

    def _kept(self, first: SequenceId) -> Slice | None:
        while self._ahead and self._ahead[0].end <= first:
            passed = self._ahead.popleft()
            self.ahead_count -= len(passed)
            self.ahead_bytes -= passed.size_bytes
        return self._ahead[0] if self._ahead and self._ahead[0].first <= first else None

    def _read_ahead(self, head: Slice, following: Iterator[Slice], count: int) -> None:
        self.forget()
        asked = head.run.size_of(head.start, min(head.stop, head.start + count))
        in_bulk = min(BULK_BYTES_MAX, count * head.size_bytes // len(head))  # about what is asked for, of several runs
        room = max(self._ahead_bytes_max, asked, in_bulk)
        wanted: list[Slice] = []
        for slice_ in chain([head], following):
            fits = 0 if slice_.contents is not None else fitting(slice_, len(slice_), room)
            if not fits:
                break
            wanted.append(Slice(slice_.run, slice_.start, slice_.start + fits, None))
            room -= wanted[-1].size_bytes
            if fits < len(slice_) or len(wanted) == AHEAD_SLICES_MAX:
                break
        for slice_, contents in zip(wanted, self._read_bravely(wanted), strict=False):
            slice_.contents = contents
            self._ahead.append(slice_)
            self.ahead_count += len(slice_)
            self.ahead_bytes += slice_.size_bytes

    def _read_bravely(self, wanted: list[Slice]) -> list[list[bytes]]:
        """If something behind the first is damaged, the first is read alone: it is what was asked for."""
        try:
            return self.read(wanted)
        except Damage:
            return self.read(wanted[:1])


def fitting(slice_: Slice, count: int, room: int) -> int:
    """How many of its first `count` messages have no more than `room` bytes together."""
    count = min(count, slice_.stop - slice_.start)
    if slice_.size_bytes <= room:
        return count
    sizes = slice_.run.sizes
    if isinstance(sizes, int):
        return min(count, room // sizes)
    ends = np.cumsum(sizes[slice_.start : slice_.start + count], dtype=np.int64)
    return int(np.searchsorted(ends, room, side="right"))
