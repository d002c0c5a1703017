"""Counters of queues: what the index has of one queue, and the bytes of live messages of all.

`IndexCounters`: gone messages per run, totals, and the counters row.

    gone       runs with messages that are gone: first sequence id → bitmap
    counters   next, head, count, bytes, delivered_to             written with each dequeue, and every few runs

Messages leave in slices; on disk they leave in runs. So each run has a bitmap of gone messages, from the first message
that goes to the last, which removes the run. A run that goes as a whole never has one.

`AliveBytes` is the size of all messages in queues, ready or pending: one number per sub-queue, summed when it is read.
Each sub-queue reports after a change, with its queue's lock held. A sub-queue that is restarted in the same place
replaces its last report. Reports are frequent; reads are rare (a pass of upkeep, a flush of the store), in background
threads. Summing 100,000 queues took 77 ms once, on a busy machine; no lock is held.

Invariants
* Count and bytes are those of persistent messages that are ready or pending.
* The bitmap of a run that is wholly gone stays until the index has applied its removal: a scan, which applies nothing,
  may return the run until then.
* A number of `AliveBytes` has one writer at a time, the holder of its queue's lock, and nothing is derived from it
  before a read. So a report that replaces one takes no lock.
* Queues are added and removed under the lock. The dict of a queue never changes its size: a new level replaces it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

from warren.base.ids import Epoch, QueueId, SequenceId
from warren.base.messages import QueuePlace, Run, Slice
from warren.base.threads import Condition
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.row_format import Counters
from warren.queues.contents import Stores

ENDED_MAX = 1 << 14  # removed runs remembered for an index that does not advance; beyond it scans overlay the log


class IndexCounters:
    def __init__(self, place: QueuePlace, counters: Counters, counters_every_runs: int, stores: Stores) -> None:
        self._place = place
        self._note_dead = stores.note_dead
        self._stores = stores
        self._counters_every_runs = counters_every_runs
        self._runs_since_written = 0  # of the counters
        self._gone: dict[SequenceId, int] = {}
        self._settling: list[tuple[Run, int, bool]] = []  # of a batch that has not ended: run, bytes, whole run
        self._ended: deque[tuple[Epoch, SequenceId]] = deque()  # wholly gone; a scan may still return them
        self.forgotten = Epoch(0)  # a scan must include removals up to this epoch: their bitmaps are dropped
        self.unread: set[SequenceId] = set()  # unreadable runs, by first sequence id: they stay on disk
        self.next = counters.next
        self.delivered_to = counters.delivered_to  # everything below was delivered, nothing above
        self.count = counters.count
        self.size_bytes = counters.size_bytes

    def gone_of(self, run: Run, on_disk: int) -> int:
        """Bitmap of gone messages of a run. `on_disk`: that of the index; the one in memory is newer."""
        known = self._gone.get(run.first)
        if known is None and on_disk:
            self._gone[run.first] = on_disk
        return on_disk if known is None else known

    def published(self, run: Run) -> None:
        """Count a new persistent run."""
        self.count += run.count
        self.size_bytes += run.size_of(0, run.count)
        self._runs_since_written += 1

    def unpublish(self, first: SequenceId, runs: Sequence[Run]) -> None:
        """Undo the publish of runs from `first` on. The counters row was not written either."""
        self.next = first
        for run in runs:
            self.count -= run.count
            self.size_bytes -= run.size_of(0, run.count)
        self._runs_since_written = self._counters_every_runs

    def lost(self, count: int, size_bytes: int) -> None:
        """Subtract messages that do not exist on disk."""
        self.count -= count
        self.size_bytes -= size_bytes

    def dequeue(self, slices: Sequence[Slice], reason: DequeueReason, batch: IndexBatch) -> None:
        """Dequeue persistent messages."""
        if len(slices) == 1:  # the usual case
            self._dequeue(slices[0].run, slices, reason, batch)
            return
        for run, going in groupby(slices, key=_run_of):
            self._dequeue(run, list(going), reason, batch)

    def _dequeue(self, run: Run, slices: Sequence[Slice], reason: DequeueReason, batch: IndexBatch) -> None:
        """Slices of one run."""
        gone, size_bytes = self._gone.get(run.first, 0), 0
        newly: list[tuple[int, int]] = []  # adjacent ranges are merged
        for slice_ in slices:
            count, first, end = slice_.stop - slice_.start, slice_.first, slice_.end
            gone |= (1 << count) - 1 << slice_.start
            self.count -= count
            size_bytes += slice_.size_bytes
            if newly and newly[-1][1] == first:
                newly[-1] = (newly[-1][0], end)
            else:
                newly.append((first, end))
        self.size_bytes -= size_bytes
        self._gone[run.first] = gone
        self._settling.append((run, size_bytes, gone.bit_count() == run.count))
        batch.dequeue(self._place, run, gone, newly, reason)

    def undo_dequeues(self, slices: Sequence[Slice]) -> None:
        """Undo all dequeues of an aborted batch."""
        for slice_ in slices:
            first, count = slice_.run.first, len(slice_)
            self.count += count
            self.size_bytes += slice_.size_bytes
            self._gone[first] &= ~((1 << count) - 1 << slice_.start)
            if not self._gone[first]:
                del self._gone[first]
        self._settling = []

    def clear(self) -> None:
        """The queue is deleted."""
        self._gone, self._settling, self._ended = {}, [], deque()
        self.unread.clear()
        self.count = self.size_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether publishes alone have made the counters row old enough to be written again."""
        return self._runs_since_written >= self._counters_every_runs

    def write(self, head: Slice | None, batch: IndexBatch) -> None:
        """Add the counters row to the batch. `head`: the first ready or pending message."""
        batch.counters(self._place, self.counters(head, is_clean=False))
        self._runs_since_written = 0

    def counters(self, head: Slice | None, is_clean: bool) -> Counters:
        first = min(
            [self.next if head is None else head.run.first, *self.unread]
        )  # the next start reads unreadable runs again
        return Counters(self.next, first, self.count, self.size_bytes, self.delivered_to, is_clean)

    def settled(self, epoch: Epoch) -> None:
        """The batch has ended: report garbage. A run published and removed within the batch was never written."""
        for run, size_bytes, is_all in self._settling:
            if is_all:
                self._ended.append((epoch, run.first))
            if run.epoch:
                self._note_dead(run, size_bytes, is_all)
        self._settling = []
        if not self._ended:
            return
        scannable, durable = self._stores.scannable_epoch(), self._stores.durable_epoch()
        while self._ended and self._ended[0][0] <= (scannable if len(self._ended) <= ENDED_MAX else durable):
            self.forgotten, first = self._ended.popleft()
            self._gone.pop(first, None)

    def __iter__(self) -> Iterator[tuple[SequenceId, int]]:
        """Runs with gone messages, and the bitmaps."""
        return iter(self._gone.items())


def _run_of(slice_: Slice) -> Run:
    return slice_.run


class AliveBytes:
    def __init__(self, lock: Condition) -> None:
        self._lock = lock
        self._by_queue: dict[QueueId, dict[int, int]] = {}  # by level

    def report(self, place: QueuePlace, size_bytes: int) -> None:
        levels = self._by_queue.get(place.queue)
        if levels is not None and place.level in levels:
            levels[place.level] = size_bytes
            return
        with self._lock:
            self._by_queue[place.queue] = {**self._by_queue.get(place.queue, {}), place.level: size_bytes}

    def remove(self, queue: QueueId) -> None:
        """The queue is deleted, and reports nothing more."""
        with self._lock:
            self._by_queue.pop(queue, None)

    def total(self) -> int:
        with self._lock:
            queues = list(self._by_queue.values())
        return sum([sum(levels.values()) for levels in queues])
