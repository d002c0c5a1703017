"""What of a queue is on disk: which messages of its runs are gone, how many there are, and what a start must know.

    gone       runs of which some messages are gone: first sequence id → bitmap
    counters   next, head, count, bytes, delivered to             written with what is dequeued, and now and then

Messages leave in slices; on disk they leave in runs. So for each run the bitmap of what is gone is kept from the first
message that goes to the last, which takes the run with it. A run that goes whole never has one.

Always true: count and bytes are those of persistent messages that are ready or pending. What is wholly gone stays in
the books until the index has the changes that remove it: a scan, which applies nothing, may see it until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

from warren.base.ids import Epoch, SequenceId
from warren.base.messages import QueuePlace, Run, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.row_format import Counters
from warren.queues.contents import Stores

ENDED_MAX = 1 << 14  # removed runs kept in the books for an index that stands still; beyond it scans overlay the log


class IndexCounters:
    def __init__(self, place: QueuePlace, counters: Counters, counters_every_runs: int, stores: Stores) -> None:
        self._place = place
        self._note_dead = stores.note_dead
        self._stores = stores
        self._counters_every_runs = counters_every_runs
        self._runs_untold = 0  # since the counters were written
        self._gone: dict[SequenceId, int] = {}
        self._settling: list[tuple[Run, int, bool]] = []  # what left by changes that have not ended: bytes, is it all?
        self._ended: deque[tuple[Epoch, SequenceId]] = deque()  # wholly gone, and perhaps still seen by a scan
        self.forgotten = Epoch(0)  # a scan must have the removals up to this epoch: they are in the books no more
        self.unread: set[SequenceId] = set()  # runs that cannot be read, by their first message: they stay on disk
        self.next = counters.next
        self.delivered_to = counters.delivered_to  # everything below was delivered, nothing else was
        self.count = counters.count
        self.size_bytes = counters.size_bytes

    def gone_of(self, run: Run, on_disk: int) -> int:
        """Which messages of a run are gone, if the index says this. What was told since is newer."""
        known = self._gone.get(run.first)
        if known is None and on_disk:
            self._gone[run.first] = on_disk
        return on_disk if known is None else known

    def published(self, run: Run) -> None:
        """A persistent run came."""
        self.count += run.count
        self.size_bytes += run.size_of(0, run.count)
        self._runs_untold += 1

    def unpublish(self, first: SequenceId, runs: Sequence[Run]) -> None:
        """These came from `first` on, but nothing of them was written. Nor were the counters, if they were told."""
        self.next = first
        for run in runs:
            self.count -= run.count
            self.size_bytes -= run.size_of(0, run.count)
        self._runs_untold = self._counters_every_runs

    def lost(self, count: int, size_bytes: int) -> None:
        """Messages are not where they should be: they count no more."""
        self.count -= count
        self.size_bytes -= size_bytes

    def dequeue(self, slices: Sequence[Slice], reason: DequeueReason, batch: IndexBatch) -> None:
        """Persistent messages go, for a reason."""
        if len(slices) == 1:  # most often
            self._dequeue(slices[0].run, slices, reason, batch)
            return
        for run, going in groupby(slices, key=_run_of):
            self._dequeue(run, list(going), reason, batch)

    def _dequeue(self, run: Run, slices: Sequence[Slice], reason: DequeueReason, batch: IndexBatch) -> None:
        """These of one run."""
        gone, size_bytes = self._gone.get(run.first, 0), 0
        newly: list[tuple[int, int]] = []  # ranges that follow one another are one
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
        """The changes were aborted: these, all that they dequeued, are there as before."""
        for slice_ in slices:
            first, count = slice_.run.first, len(slice_)
            self.count += count
            self.size_bytes += slice_.size_bytes
            self._gone[first] &= ~((1 << count) - 1 << slice_.start)
            if not self._gone[first]:
                del self._gone[first]
        self._settling = []

    def clear(self) -> None:
        """All of them are gone at once."""
        self._gone, self._settling, self._ended = {}, [], deque()
        self.unread.clear()
        self.count = self.size_bytes = 0

    def tell(self, head: Slice | None, batch: IndexBatch, is_due: bool = True) -> None:
        """Have the counters written, if they are due. `head`: the first message that is ready or pending."""
        if is_due or self._runs_untold >= self._counters_every_runs:
            batch.counters(self._place, self.counters(head, is_clean=False))
            self._runs_untold = 0

    def counters(self, head: Slice | None, is_clean: bool) -> Counters:
        first = min([self.next if head is None else head.run.first, *self.unread])  # the next start reads these again
        return Counters(self.next, first, self.count, self.size_bytes, self.delivered_to, is_clean)

    def settled(self, epoch: Epoch) -> None:
        """The changes have ended: what is gone is gone, and whoever collects garbage is told. A run that came and went
        within them was never written."""
        for run, size_bytes, is_all in self._settling:
            if is_all:
                self._ended.append((epoch, run.first))
            if run.epoch:
                self._note_dead(run, size_bytes, is_all)
        self._settling = []
        scannable, durable = self._stores.scannable_epoch(), self._stores.durable_epoch()
        while self._ended and self._ended[0][0] <= (scannable if len(self._ended) <= ENDED_MAX else durable):
            self.forgotten, first = self._ended.popleft()
            self._gone.pop(first, None)

    def __iter__(self) -> Iterator[tuple[SequenceId, int]]:
        """Runs of which some are gone, and which."""
        return iter(self._gone.items())


def _run_of(slice_: Slice) -> Run:
    return slice_.run
