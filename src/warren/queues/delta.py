"""Delta: the part of a queue that is on disk only, contents and positions (VQ-30).

    … q3 ][ start ─────────────── count of them ─────────────── end )[ q2 …
             persistent ones: in the queue index, found by a scan from start to end
             transient ones: pieces in the transient store

Memory holds three numbers for it, however many messages it has, and a few words for each piece. Reading it back merges
both by sequence id and leaves out what is gone, what is pending, and what is just being put back: a message that is
fetched, or acknowledged, has not left the index yet when the range it stood in is read again.

Always true: everything from `start` up to `end` that is neither gone nor pending is in delta. Only runs that the index
can scan are put here, so reading waits for no sync and applies nothing. Runs that an index cannot read (damage) are
left out until the queue is opened again, and counted in `missing`. They stay in the books, as neither ready nor
settled: if their file is mended, the next opening finds them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.runs import QueuePlace, Run, Slice
from warren.queue_index.format import Counters
from warren.queue_index.index import IndexedRun
from warren.queues.contents import Stores
from warren.queues.ledger import IndexCounters
from warren.queues.subqueue import first_of
from warren.queues.transients import SpilledSlices, Transients

NOWHERE = SequenceId(0)


class PendingRange(Protocol):
    def bits_of(self, run: Run) -> int: ...


class Delta:
    def __init__(
        self, place: QueuePlace, stores: Stores, transients: Transients, ledger: IndexCounters, pending: PendingRange
    ) -> None:
        self._place = place
        self._stores = stores
        self._transients = transients
        self._ledger = ledger
        self._pending = pending
        self._pieces: list[SpilledSlices] = []
        self._loose: list[Slice] = []  # of a piece that was read back only in part
        self.in_hand: list[Slice] = []  # on their way back: not pending any more, and not ready yet
        self.start = self.end = NOWHERE
        self.count = 0
        self.size_bytes = 0
        self.newest = Epoch(0)  # in which this queue wrote last
        self._recovered = Epoch(0)  # in which an earlier life wrote last: all of that is here, scannable or not
        self.missing = 0  # messages that cannot be read

    def __len__(self) -> int:
        return self.count

    def recover(self, counters: Counters, newest: Epoch) -> None:
        """Everything that a start finds is here."""
        self.newest = self._recovered = newest
        self.start, self.end = counters.head, counters.next
        self.count, self.size_bytes = counters.count, counters.size_bytes

    def put(self, slices: Sequence[Slice]) -> None:
        """Let go of the positions of these, which are in order and have no contents."""
        if not slices:
            return
        first, end = slices[0].first, slices[-1].end
        self.start = min(self.start, first) if self.count else first
        self.end = max(self.end, end) if self.count else end
        self.count += sum(len(slice_) for slice_ in slices)
        self.size_bytes += sum(slice_.size_bytes for slice_ in slices)
        transient = [slice_ for slice_ in slices if not slice_.run.is_persistent]
        if transient:
            insort(self._pieces, self._transients.fold(transient), key=attrgetter("first"))

    def load(self, messages_max: int) -> list[Slice]:
        """Take the positions of the first messages back, of about so many."""
        slices, edge = self._read(self.start, messages_max)
        self._let_go_before(edge)
        self.count -= sum(len(slice_) for slice_ in slices)
        self.size_bytes -= sum(slice_.size_bytes for slice_ in slices)
        self.start = edge
        if edge == self.end:
            self.missing += self.count
            if not self._ledger.unread:  # every row was read: the messages are not there at all
                self._ledger.lost(self.count, self.size_bytes)
            self.count = 0
        if not self.count:
            self.start = self.end = NOWHERE
            self.size_bytes = 0
        return slices

    def walk(self, messages_max: int) -> Iterator[list[Slice]]:
        """All of it, some at a time; it stays where it is."""
        at = self.start
        while at < self.end:
            slices, at = self._read(at, messages_max)
            yield slices

    def clear(self) -> None:
        self._pieces, self._loose = [], []
        self.start = self.end = NOWHERE
        self.count = self.size_bytes = 0

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, first: SequenceId, messages_max: int) -> tuple[list[Slice], SequenceId]:
        """What is there from a sequence id on, and up to where that is all."""
        edge = self._edge_of_transients(first, messages_max)
        slices: list[Slice] = []
        seen = 0
        scannable = min(self.newest, self._stores.scannable_epoch())
        newest = max(self._recovered, self._ledger.forgotten, scannable)
        left_out = self._left_out
        runs = self._stores.index.scan(self._place, first, edge, newest, messages_max=messages_max, on_damage=left_out)
        for indexed in runs:
            low, high = max(indexed.run.first, first), min(indexed.run.end, edge)
            if indexed.run.first not in self._ledger.unread:
                slices += self._ready_of(indexed, low, high)
            seen += high - low
            if seen >= messages_max:
                edge = SequenceId(high)
                break
        transient = self._transients_between(first, edge)
        return (sorted([*slices, *transient], key=first_of) if transient else slices), edge

    def _left_out(self, first: SequenceId, damage: Damage) -> None:
        self._ledger.unread.add(first)

    def _ready_of(self, indexed: IndexedRun, low: int, high: int) -> list[Slice]:
        run = indexed.run
        gone = self._ledger.gone_of(run, indexed.gone) | self._pending.bits_of(run) | self._in_hand_of(run)
        low, high = low - run.first, high - run.first
        if not gone:
            return [Slice(run, low, high, None)]
        return [Slice(run, low + start, low + stop, None) for start, stop in ones_of(~(gone >> low), high - low)]

    def _in_hand_of(self, run: Run) -> int:
        bits = 0
        for slice_ in self.in_hand:
            if run.first <= slice_.first < run.end:
                bits |= (1 << len(slice_)) - 1 << slice_.first - run.first
        return bits

    # -- transient ones ------------------------------------------------------------------------------------------

    def _edge_of_transients(self, first: SequenceId, messages_max: int) -> SequenceId:
        """Up to where one may read without taking much more than so many transient ones."""
        count = sum(len(slice_) for slice_ in self._loose if slice_.first >= first)
        for piece in self._pieces:
            if piece.end > first:
                count += piece.count
                if count >= messages_max:
                    return min(piece.end, self.end)
        return self.end

    def _transients_between(self, first: SequenceId, edge: SequenceId) -> list[Slice]:
        found = [slice_ for slice_ in self._loose if first <= slice_.first < edge]
        for piece in self._pieces:
            if piece.first >= edge:
                break
            if piece.end > first:
                found += [slice_ for slice_ in self._transients.unfold(piece) if first <= slice_.first < edge]
        return found

    def _let_go_before(self, edge: SequenceId) -> None:
        """Pieces that were read are not needed any more; what a piece has behind the edge stays in memory."""
        self._loose = [slice_ for slice_ in self._loose if slice_.first >= edge]
        while self._pieces and self._pieces[0].first < edge:
            piece = self._pieces.pop(0)
            if piece.end > edge:
                self._loose += [slice_ for slice_ in self._transients.unfold(piece) if slice_.first >= edge]
                self._loose.sort(key=first_of)
            self._transients.forget(piece)


def pass_over(first: SequenceId, damage: Damage) -> None:
    """A run that cannot be read: the others are served."""


def ones_of(bits: int, width: int) -> Iterator[tuple[int, int]]:
    """Where bits are set among the lowest `width`, as ranges."""
    bits &= (1 << width) - 1
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        yield at + zeros, at + zeros + ones
        at += zeros + ones
