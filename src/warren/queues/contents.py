"""Contents and positions on disk, and how a queue reads them back.

    index        positions of persistent messages, and their contents if they are small
    persistent   large contents, and those that several queues reference
    transient    contents of transient messages without room in memory; deleted at the next start

A queue pages messages out and reads them back from these stores (VQ-45). Reading one message at a time would cost one
disk read each: so a fetch reads ahead a little, and `ContentReader` caches it until it is fetched.

Invariant: contents of a sequence id never change, so contents read ahead never become stale. Elsewhere: which messages
leave memory (variable_queue), how anything is written to the log (queue_index/batch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import QueuePlace, Run, Sizes, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.index import IndexedRun, OnDamage, Piece
from warren.queue_index.row_format import Counters

AHEAD_SLICES_MAX = 256
BULK_BYTES_MAX = 1 << 20


class IndexSource(Protocol):
    """The part of `QueueIndex` that queues use."""

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
    """The part of `MessageStore` that queues use."""

    def submit(
        self, publication: object, contents: Sequence[bytes], place: QueuePlace, run: Run, batch: IndexBatch
    ) -> None:
        """`publication`: a key that is the same for every queue that gets these contents."""
        ...

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]: ...


class TransientContents(Protocol):
    """The part of `TransientStore` that queues use."""

    def write(self, contents: Sequence[bytes]) -> bytes: ...

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]: ...

    def remove(self, stored: bytes) -> None: ...


NoteDead = Callable[[Run, int, bool], None]  # run, bytes that are gone, whether the whole run is
ReportAlive = Callable[[QueuePlace, int], None]  # bytes of all ready and pending messages of a sub-queue


def _ignore_dead(run: Run, size_bytes: int, is_all: bool) -> None:
    """Garbage is also found without hints."""


def _ignore(place: QueuePlace, size_bytes: int) -> None:
    """For queues whose sizes are not summed."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores behind a queue."""

    index: IndexSource
    persistent: PersistentContents
    transient: TransientContents
    durable_epoch: Callable[[], Epoch]
    scannable_epoch: Callable[[], Epoch]  # a scan of the index sees what was written up to it; it never moves back
    note_dead: NoteDead = _ignore_dead
    report_alive: ReportAlive = _ignore
    note_deleted: Callable[[int], None] = lambda size_bytes: None  # a durable queue with so many bytes is deleted

    def is_written(self, run: Run) -> bool:
        """Whether its contents may leave memory: they are durable, or the run is transient."""
        return not run.is_persistent or 0 < run.epoch <= self.durable_epoch()

    def is_scannable(self, run: Run) -> bool:
        """Whether its position may leave memory: a scan finds it again."""
        return not run.is_persistent or 0 < run.epoch <= self.scannable_epoch()


ReadTransient = Callable[[Run, int, int], list[bytes]]  # contents of messages start … stop of a transient run


class ContentReader:
    """Reads contents for one queue."""

    def __init__(self, place: QueuePlace, stores: Stores, read_transient: ReadTransient, ahead_bytes_max: int) -> None:
        self._place = place
        self._stores = stores
        self._read_transient = read_transient
        self._ahead_bytes_max = ahead_bytes_max
        self._ahead: deque[Slice] = deque()
        self.ahead_count = 0
        self.ahead_bytes = 0

    def read(self, slices: Sequence[Slice]) -> list[list[bytes]]:
        """Contents of each slice, from memory or disk."""
        found: list[list[bytes] | None] = [slice_.contents for slice_ in slices]
        embedded = []
        for at, slice_ in enumerate(slices):
            run = slice_.run
            if found[at] is not None:
                continue
            if not run.is_persistent:
                found[at] = self._read_transient(run, slice_.start, slice_.stop)
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
        """Contents of up to `count` messages of the first slice. Following messages are read ahead."""
        slices = iter(upcoming)
        head = next(slices)
        ahead = self._ahead_from(head.first)
        if ahead is None:
            self._read_ahead(head, slices, count)
            ahead = self._ahead[0]
        assert ahead.contents is not None
        offset = head.first - ahead.first
        return ahead.contents[offset : offset + min(count, len(head))]

    def forget(self) -> None:
        """Drop what was read ahead."""
        self._ahead.clear()
        self.ahead_count = self.ahead_bytes = 0

    def _ahead_from(self, first: SequenceId) -> Slice | None:
        while self._ahead and self._ahead[0].end <= first:
            passed = self._ahead.popleft()
            self.ahead_count -= len(passed)
            self.ahead_bytes -= passed.size_bytes
        return self._ahead[0] if self._ahead and self._ahead[0].first <= first else None

    def _read_ahead(self, head: Slice, following: Iterator[Slice], count: int) -> None:
        self.forget()
        requested = head.run.size_of(head.start, min(head.stop, head.start + count))
        in_bulk = min(
            BULK_BYTES_MAX, count * head.size_bytes // len(head)
        )  # about the size of the request, over several runs
        room = max(self._ahead_bytes_max, requested, in_bulk)
        wanted: list[Slice] = []
        for slice_ in chain([head], following):
            fits = 0 if slice_.contents is not None else slice_.fitting(len(slice_), room)
            if not fits:
                break
            wanted.append(Slice(slice_.run, slice_.start, slice_.start + fits, None))
            room -= wanted[-1].size_bytes
            if fits < len(slice_) or len(wanted) == AHEAD_SLICES_MAX:
                break
        for slice_, contents in zip(wanted, self._read_or_first_only(wanted), strict=False):
            slice_.contents = contents
            self._ahead.append(slice_)
            self.ahead_count += len(slice_)
            self.ahead_bytes += slice_.size_bytes

    def _read_or_first_only(self, wanted: list[Slice]) -> list[list[bytes]]:
        """If a slice behind the first is damaged, the first is read alone: it was requested."""
        try:
            return self.read(wanted)
        except Damage:
            return self.read(wanted[:1])
