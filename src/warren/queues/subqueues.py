"""Sub-queues of a variable queue: q1 … q4, delta, transient messages on disk, and every move between them (seed 000).

    publish ─▶ [ q1 ─▶ q2 ─▶ delta ─▶ q3 ─▶ q4 ] ─▶ consumer           oldest on the right: q4 < q3 < delta < q2 < q1
               alpha   beta   on disk  beta  alpha                      empty sub-queues are skipped (VQ-44)

    put                    to the rear of q4, or of q1 if q3 is not empty
    take                   from q4, then from q3; then `refill`
    refill                 q3 is empty: read delta into q3, and q2 behind it when delta is empty; or q1 becomes q4
    push_alphas_to_betas   front of q1 → rear of q2 (delta is not empty) or q3;  rear of q4 → front of q3
    push_betas_to_deltas   rear of q3 → front of delta, then front of q2 → rear of delta
    put_back               fetched messages, to their old position: q4, q3 or delta; never q2 or q1

Quotas count messages, and split slices. Contents of a persistent message are in the log already, so removing them from
memory writes nothing; they stay as long as their epoch is not durable. Messages at the rear of q4 that are that new
move to q1 when older ones are paged: their place is behind those. A position stays in memory until the index can scan
the run; positions at the rear of q3 that are that new move to q2 when older ones leave.

`SubQueue` is one of q1 … q4: slices in order, with counts, so that its length is known at once (VQ-08).

    first ▸ [ slice ][ slice ][ slice ] ◂ last            count, bytes, and how much of it has contents in memory

`Delta` is the part of a queue that is on disk only, contents and positions (VQ-30).

    … q3 ][ start ─────────────── count of them ─────────────── end )[ q2 …
             persistent messages: in the queue index, found by a scan from start to end
             transient messages: pieces in the transient store

Memory holds three numbers for it, however many messages it has, and a few words per piece. Reading it back merges both
by sequence id, and leaves out messages that are gone, pending, or being requeued: a message that is fetched or
acknowledged may still be in the index when its range is read again. A run that the index cannot read (damage) is left
out until the queue is opened again, and counted in `missing`. It stays counted, neither ready nor settled: if its file
is repaired, the next opening finds it.

`Transients` are transient messages without room in memory.

    unit    contents of slices that left memory together, in the transient store     number → location, messages left
    piece   positions of slices that left memory too, joined and written likewise    first, end, location

Contents leave memory first, positions later, as for persistent messages. A million transient messages need a few units
and pieces in memory. `stored` of such a run has the unit and the position in it (`WORDS`); a slice that is paged out
gets its own run.

Invariants
* After each move: `invariants.check`. Between `take` and `refill` it does not hold (C-04).
* Slices are in the order of sequence ids, and none is empty. A sub-queue owns its slices: it may shorten one in place.
  A slice taken out belongs to the caller. Lists of contents are never changed, only replaced: they may be shared.
* Everything from `start` up to `end` that is neither gone nor pending is in delta. Only runs that the index can scan
  are put there, so reading delta waits for no sync and applies nothing.
* A unit is removed when the last of its messages is gone. The transient store is scratch: the next start deletes it
  without reading it, so its bytes have no stable format.

Elsewhere: when to page and how much (variable_queue), pending and settled messages (pending_acks, index_counters).
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile
from operator import attrgetter
from typing import Any

import numpy as np

from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import Origin, QueuePlace, Run, Sizes, Slice, sizes_of
from warren.queue_index.index import IndexedRun
from warren.queue_index.row_format import RUN_COUNT_MAX, RUN_HEAP_BYTES_MAX, Counters
from warren.queues.contents import Stores, TransientContents
from warren.queues.index_counters import IndexCounters
from warren.queues.pending_acks import PendingAcks, first_of

CUT_MESSAGES = 1024  # longer slices are cut to this before a few messages are taken from one: copying is slow


class SubQueue:
    __slots__ = ("count", "ram_bytes", "ram_count", "size_bytes", "slices")

    def __init__(self) -> None:
        self.slices: deque[Slice] = deque()
        self.count = 0
        self.size_bytes = 0
        self.ram_count = 0  # of messages with contents in memory
        self.ram_bytes = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)

    @property
    def first(self) -> Slice:
        return self.slices[0]

    @property
    def last(self) -> Slice:
        return self.slices[-1]

    def append(self, slice_: Slice) -> None:
        self.slices.append(slice_)
        self._count(slice_, 1)

    def appendleft(self, slice_: Slice) -> None:
        self.slices.appendleft(slice_)
        self._count(slice_, 1)

    def extend(self, slices: Iterable[Slice]) -> None:
        for slice_ in slices:
            self.append(slice_)

    def take_first(self, count: int) -> Slice:
        """The first slice, or its first `count` messages."""
        slice_ = self.slices[0]
        size = slice_.stop - slice_.start
        if count >= size:
            taken = self.slices.popleft()
        else:
            if size > 2 * CUT_MESSAGES > 2 * count and slice_.contents is not None:
                self.slices[0], rest = slice_.split(CUT_MESSAGES)
                self.slices.insert(1, rest)
                slice_ = self.slices[0]
            taken = _cut_first(slice_, count)
        self._count(taken, -1)
        return taken

    def take_last(self, count: int) -> Slice:
        """The last slice, or its last `count` messages."""
        slice_ = self.slices[-1]
        if count >= slice_.stop - slice_.start:
            taken = self.slices.pop()
        else:
            self.slices[-1], taken = slice_.split(len(slice_) - count)
        self._count(taken, -1)
        return taken

    def insert(self, slice_: Slice) -> None:
        """Insert a slice by its sequence ids."""
        first, slices = slice_.first, self.slices
        if not slices or slices[-1].first < first:
            slices.append(slice_)
        elif first < slices[0].first:
            slices.appendleft(slice_)
        else:
            slices.insert(bisect_left(slices, first, key=first_of), slice_)
        self._count(slice_, 1)

    def release(self, may_go: Callable[[Run], bool]) -> int:
        """Drop contents of runs for which `may_go` is true. Returns the number of messages."""
        before = self.ram_count
        for slice_ in self.slices:
            if slice_.contents is not None and may_go(slice_.run):
                slice_.contents = None
                self.ram_count -= len(slice_)
                self.ram_bytes -= slice_.size_bytes
        return before - self.ram_count

    def take_all(self) -> list[Slice]:
        slices = list(self.slices)
        self.slices.clear()
        self.count = self.size_bytes = self.ram_count = self.ram_bytes = 0
        return slices

    def _count(self, slice_: Slice, sign: int) -> None:
        count, size_bytes = (slice_.stop - slice_.start) * sign, slice_.size_bytes * sign
        self.count += count
        self.size_bytes += size_bytes
        if slice_.contents is not None:
            self.ram_count += count
            self.ram_bytes += size_bytes


def _cut_first(slice_: Slice, count: int) -> Slice:
    """Its first messages; the slice keeps the others."""
    contents = slice_.contents
    middle = slice_.start + count
    taken = Slice(slice_.run, slice_.start, middle, None if contents is None else contents[:count])
    slice_.start = middle
    slice_.size_bytes -= taken.size_bytes
    if contents is not None:
        slice_.contents = contents[count:]
    return taken


NOWHERE = SequenceId(0)


class Delta:
    def __init__(
        self,
        place: QueuePlace,
        stores: Stores,
        transients: Transients,
        index_counters: IndexCounters,
        pending: PendingAcks,
    ) -> None:
        self._place = place
        self._stores = stores
        self._transients = transients
        self._index_counters = index_counters
        self._pending = pending
        self._pieces: list[SpilledSlices] = []
        self._loose: list[Slice] = []  # the rest of a piece that was read back in part
        self.requeueing: list[Slice] = []  # no longer pending, and not ready yet
        self.start = self.end = NOWHERE
        self.count = 0
        self.size_bytes = 0
        self.newest = Epoch(0)  # the last epoch this queue wrote in
        self._recovered = Epoch(
            0
        )  # the last epoch of the previous incarnation: its messages are here, scannable or not
        self.missing = 0  # unreadable messages

    def __len__(self) -> int:
        return self.count

    def recover(self, counters: Counters, newest: Epoch) -> None:
        """After a start, all messages are in delta."""
        self.newest = self._recovered = newest
        self.start, self.end = counters.head, counters.next
        self.count, self.size_bytes = counters.count, counters.size_bytes

    def put(self, slices: Sequence[Slice]) -> None:
        """Drop the positions of slices, which are in order and without contents."""
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
        """Read back and remove the first messages, about `messages_max`."""
        slices, edge = self._read(self.start, messages_max)
        self._release_before(edge)
        self.count -= sum(len(slice_) for slice_ in slices)
        self.size_bytes -= sum(slice_.size_bytes for slice_ in slices)
        self.start = edge
        if edge == self.end:
            self.missing += self.count
            if not self._index_counters.unread:  # every row was readable: the messages do not exist
                self._index_counters.lost(self.count, self.size_bytes)
            self.count = 0
        if not self.count:
            self.start = self.end = NOWHERE
            self.size_bytes = 0
        return slices

    def walk(self, messages_max: int) -> Iterator[list[Slice]]:
        """All slices, some at a time; delta does not change."""
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
        """Slices from a sequence id on, and the id up to which they are complete."""
        edge = self._edge_of_transients(first, messages_max)
        slices: list[Slice] = []
        seen = 0
        scannable = min(self.newest, self._stores.scannable_epoch())
        newest = max(self._recovered, self._index_counters.forgotten, scannable)
        on_damage = self._note_unread
        runs = self._stores.index.scan(self._place, first, edge, newest, messages_max=messages_max, on_damage=on_damage)
        for indexed in runs:
            low, high = max(indexed.run.first, first), min(indexed.run.end, edge)
            if indexed.run.first not in self._index_counters.unread:
                slices += self._ready_of(indexed, low, high)
            seen += high - low
            if seen >= messages_max:
                edge = SequenceId(high)
                break
        transient = self._transients_between(first, edge)
        return (sorted([*slices, *transient], key=first_of) if transient else slices), edge

    def _note_unread(self, first: SequenceId, damage: Damage) -> None:
        self._index_counters.unread.add(first)

    def _ready_of(self, indexed: IndexedRun, low: int, high: int) -> list[Slice]:
        run = indexed.run
        gone = self._index_counters.gone_of(run, indexed.gone) | self._pending.bits_of(run) | self._requeueing_of(run)
        low, high = low - run.first, high - run.first
        if not gone:
            return [Slice(run, low, high, None)]
        return [Slice(run, low + start, low + stop, None) for start, stop in ones_of(~(gone >> low), high - low)]

    def _requeueing_of(self, run: Run) -> int:
        bits = 0
        for slice_ in self.requeueing:
            if run.first <= slice_.first < run.end:
                bits |= (1 << len(slice_)) - 1 << slice_.first - run.first
        return bits

    # -- transient messages ------------------------------------------------------------------------------------------

    def _edge_of_transients(self, first: SequenceId, messages_max: int) -> SequenceId:
        """How far to read without taking many more than `messages_max` transient messages."""
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

    def _release_before(self, edge: SequenceId) -> None:
        """Remove pieces that were read; slices of a piece behind the edge stay in memory."""
        self._loose = [slice_ for slice_ in self._loose if slice_.first >= edge]
        while self._pieces and self._pieces[0].first < edge:
            piece = self._pieces.pop(0)
            if piece.end > edge:
                self._loose += [slice_ for slice_ in self._transients.unfold(piece) if slice_.first >= edge]
                self._loose.sort(key=first_of)
            self._transients.forget(piece)


def pass_over(first: SequenceId, damage: Damage) -> None:
    """Ignore an unreadable run: the others are served."""


def ones_of(bits: int, width: int) -> Iterator[tuple[int, int]]:
    """Ranges of set bits among the lowest `width`."""
    bits &= (1 << width) - 1
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        yield at + zeros, at + zeros + ones
        at += zeros + ones


WORDS = struct.Struct("<QI")  # unit, index of the run's first message in it
assert WORDS.size == 12


@dataclass(slots=True)
class _SpilledUnit:
    stored: bytes
    sizes: Sizes
    left: int  # live messages


@dataclass(frozen=True, slots=True)
class SpilledSlices:
    """A piece: positions of some slices, on disk."""

    first: SequenceId
    end: SequenceId
    count: int
    stored: bytes
    size_bytes: int


class Transients:
    def __init__(self, store: TransientContents) -> None:
        self._store = store
        self._units: dict[int, _SpilledUnit] = {}
        self._pieces: dict[bytes, None] = {}
        self._next = 0

    def write(self, slices: Sequence[Slice]) -> list[Slice]:
        """Write contents to the store, unless they are there; returns the slices without contents."""
        written = iter(
            [paged for unit in _units([s for s in slices if not s.run.stored]) for paged in self._write(unit)]
        )
        return [Slice(s.run, s.start, s.stop, None) if s.run.stored else next(written) for s in slices]

    def read(self, run: Run, start: int, stop: int) -> list[bytes]:
        number, base = WORDS.unpack(run.stored)
        unit = self._units[number]
        return self._store.read(unit.stored, unit.sizes, base + start, base + stop)

    def release(self, slice_: Slice) -> None:
        """Release messages that are gone."""
        if not slice_.run.stored:
            return
        number, _ = WORDS.unpack(slice_.run.stored)
        unit = self._units[number]
        unit.left -= len(slice_)
        if not unit.left:
            self._store.remove(unit.stored)
            del self._units[number]

    def fold(self, slices: Sequence[Slice]) -> SpilledSlices:
        """Write positions of stored slices as one piece."""
        data = json.dumps([_encode_slice(slice_) for slice_ in slices]).encode()
        stored = self._store.write([data])
        self._pieces[stored] = None
        count = sum(len(slice_) for slice_ in slices)
        return SpilledSlices(slices[0].first, slices[-1].end, count, stored, len(data))

    def unfold(self, piece: SpilledSlices) -> list[Slice]:
        """The slices of a piece, which stays on disk."""
        return [
            _decode_slice(fields) for fields in json.loads(self._store.read(piece.stored, piece.size_bytes, 0, 1)[0])
        ]

    def forget(self, piece: SpilledSlices) -> None:
        self._store.remove(piece.stored)
        del self._pieces[piece.stored]

    def clear(self) -> None:
        """Remove everything."""
        for stored in [*self._pieces, *(unit.stored for unit in self._units.values())]:
            self._store.remove(stored)
        self._units, self._pieces = {}, {}

    def _write(self, slices: Sequence[Slice]) -> list[Slice]:
        contents = [content for slice_ in slices for content in slice_.contents or ()]
        number, self._next = self._next, self._next + 1
        self._units[number] = _SpilledUnit(self._store.write(contents), sizes_of(contents), len(contents))
        bases = accumulate((len(slice_) for slice_ in slices), initial=0)
        return [_paged(slice_, WORDS.pack(number, base)) for slice_, base in zip(slices, bases, strict=False)]


def _units(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Groups of slices that are written together."""
    units: list[list[Slice]] = []
    size_bytes = count = 0
    for slice_ in slices:
        size_bytes, count = size_bytes + slice_.size_bytes, count + len(slice_)
        if not units or size_bytes > RUN_HEAP_BYTES_MAX or count > RUN_COUNT_MAX:
            units.append([])
            size_bytes, count = slice_.size_bytes, len(slice_)
        units[-1].append(slice_)
    return units


def _paged(slice_: Slice, stored: bytes) -> Slice:
    """The slice with its own run, without contents."""
    run, start, stop = slice_.run, slice_.start, slice_.stop
    sizes = run.sizes if isinstance(run.sizes, int) else run.sizes[start:stop].copy()
    first = SequenceId(run.first + start)
    own = Run(first, stop - start, sizes, False, run.expires_ms, run.published_ms, run.origin, stored)
    return Slice(own, 0, stop - start, None)


def _encode_slice(slice_: Slice) -> list[object]:
    run, origin = slice_.run, slice_.run.origin
    sizes = run.sizes if isinstance(run.sizes, int) else run.sizes.tolist()
    origin_fields = [origin.exchange, origin.routing_key, origin.user, origin.content_kind]
    return [
        slice_.start,
        slice_.stop,
        run.first,
        run.count,
        sizes,
        run.expires_ms,
        run.published_ms,
        origin_fields,
        run.stored.hex(),
    ]


def _decode_slice(fields: Any) -> Slice:
    start, stop, first, count, sizes, expires_ms, published_ms, origin, stored = fields
    columns: Sizes = sizes if isinstance(sizes, int) else np.array(sizes, np.uint32)
    run = Run(first, count, columns, False, expires_ms, published_ms, Origin(*origin), bytes.fromhex(stored))
    return Slice(run, start, stop, None)


class SubQueues:
    def __init__(
        self,
        stores: Stores,
        transients: Transients,
        index_counters: IndexCounters,
        delta: Delta,
        delta_read_messages: int,
    ) -> None:
        self._stores = stores
        self._index_counters = index_counters
        self._transients = transients
        self._delta_read_messages = delta_read_messages
        self.q1 = SubQueue()
        self.q2 = SubQueue()
        self.q3 = SubQueue()
        self.q4 = SubQueue()
        self.delta = delta

    # -- totals ----------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return self.q4.count + self.q3.count + self.delta.count + self.q2.count + self.q1.count

    @property
    def size_bytes(self) -> int:
        return self.q4.size_bytes + self.q3.size_bytes + self.delta.size_bytes + self.q2.size_bytes + self.q1.size_bytes

    @property
    def ram_count(self) -> int:
        return self.q4.ram_count + self.q3.ram_count + self.q2.ram_count + self.q1.ram_count

    @property
    def ram_bytes(self) -> int:
        return self.q4.ram_bytes + self.q3.ram_bytes + self.q2.ram_bytes + self.q1.ram_bytes

    @property
    def beta_count(self) -> int:
        return self.q3.count + self.q2.count

    @property
    def front(self) -> SubQueue:
        """The sub-queue of the next message; empty if the queue is."""
        return self.q4 if self.q4.count else self.q3

    # -- publish and fetch ----------------------------------------------------------------------------------------

    def put(self, slice_: Slice) -> None:
        (self.q1 if self.q3.count else self.q4).append(slice_)

    def take(self, count: int) -> Slice:
        """Take up to `count` messages of the slice at the head. The caller has to `refill` then."""
        return self.front.take_first(count)

    def refill(self) -> None:
        """After the last message of q3 was taken: move the head of the queue to q4 or q3 again."""
        while not self.q3.count:
            if not self.delta.count:
                self.move_q1_to_q4()
                return
            self.maybe_deltas_to_betas()

    def maybe_deltas_to_betas(self) -> None:
        """Read some of delta into q3. If delta is empty then, q2 follows."""
        if self.delta.count:
            self.load_delta()
            if not self.delta.count:
                self.join_q2()

    def load_delta(self) -> None:
        self.q3.extend(self.delta.load(self._delta_read_messages))

    def join_q2(self) -> None:
        self.q3.extend(self.q2.take_all())

    def move_q1_to_q4(self) -> None:
        if self.q1.count:
            assert not self.q4.count, "q1 fills only behind q3, and q3 is empty only if q4 was before"
            self.q1, self.q4 = self.q4, self.q1

    def take_all(self) -> Iterator[list[Slice]]:
        """Take all slices, some at a time."""
        for subqueue in (self.q4, self.q3):
            yield subqueue.take_all()
        while self.delta.count:
            yield self.delta.load(self._delta_read_messages)
        for subqueue in (self.q2, self.q1):
            yield subqueue.take_all()

    def take_from(self, first: int) -> list[Slice]:
        """Take all slices from a sequence id on, which is in memory and begins a slice."""
        taken = []
        for subqueue in (self.q1, self.q4):
            while subqueue.count and subqueue.last.first >= first:
                taken.append(subqueue.take_last(len(subqueue.last)))
        return taken

    # -- requeue ----------------------------------------------------------------------------------

    def put_back(self, slices: Iterable[Slice]) -> None:
        """Put fetched slices back, latest first. Until one is in place, reading delta leaves it out (`requeueing`)."""
        self.delta.requeueing = left = sorted(slices, key=first_of)
        while left:
            slice_ = left[-1]
            if not self.q3.count or slice_.end <= self.q3.first.first:
                self._put_back_in_front(slice_)
            elif not self.delta.count or slice_.end <= self.delta.start:
                self.q3.insert(self.without_contents([slice_])[0])
            elif self._stores.is_written(slice_.run) and self._stores.is_scannable(slice_.run):
                self.delta.put(self.without_contents([slice_]))
            else:
                self._read_delta_up_to(slice_)
                self.q3.insert(slice_)
            left.pop()

    def _put_back_in_front(self, slice_: Slice) -> None:
        """To q4, if its contents are in memory; otherwise to q3, with the slices of q4 behind it."""
        if slice_.contents is not None:
            self.q4.insert(slice_)
            return
        behind = []
        while self.q4.count and self.q4.last.first > slice_.first:
            behind.append(self.q4.take_last(self.q4.last.stop - self.q4.last.start))
        for paged in reversed(self.without_contents(behind[::-1])):
            self.q3.appendleft(paged)
        self.q3.appendleft(slice_)

    def _read_delta_up_to(self, slice_: Slice) -> None:
        """The slice is too new for delta, so everything in front of it has to be in q3."""
        while self.delta.count and self.delta.start < slice_.first:
            self.load_delta()
        if not self.delta.count:
            self.join_q2()

    # -- to disk -------------------------------------------------------------------------------------------------

    def push_alphas_to_betas(self, quota_q1: int, quota_q4: int) -> int:
        """Page out contents of up to so many messages of q1 and of q4, last to be delivered first; of how many."""
        durable = self._stores.durable_epoch()
        from_q1 = _taken(self.q1, quota_q1, _first_of, SubQueue.take_first, durable)
        (self.q2 if self.delta.count else self.q3).extend(self.without_contents(from_q1))
        if quota_q4 > 0:
            self._move_fresh_to_q1(durable)
        from_q4 = _taken(self.q4, quota_q4, _last_of, SubQueue.take_last, durable)
        for paged in reversed(self.without_contents(from_q4[::-1])):
            self.q3.appendleft(paged)
        return sum(map(len, from_q1)) + sum(map(len, from_q4))

    def release_settled(self) -> int:
        """Drop contents in q3 that were not durable when they were requeued, and are now; of how many messages."""
        return self.q3.release(self._stores.is_written) if self.q3.ram_count else 0

    def push_betas_to_deltas(self, quota: int) -> int:
        """Page out positions of up to `quota` messages of q3, then of q2; of how many. One message stays in q3."""
        left, scannable = quota, self._stores.scannable_epoch()
        if left > 0 and not self.delta.count:
            self._move_fresh_to_q2(scannable)
        from_q3: list[Slice] = []
        while left > 0 and self.q3.count > 1 and _may_leave(self.q3.last, scannable):
            from_q3.append(self.q3.take_last(min(left, self.q3.count - 1)))
            left -= len(from_q3[-1])
        self.delta.put(from_q3[::-1])
        from_q2: list[Slice] = []
        while left > 0 and self.delta.count and self.q2.count and _may_leave(self.q2.first, scannable):
            from_q2.append(self.q2.take_first(left))
            left -= len(from_q2[-1])
        self.delta.put(from_q2)
        if not self.delta.count:
            self.join_q2()
        return quota - left

    def _move_fresh_to_q1(self, durable: Epoch) -> None:
        """If nothing was paged so far and the rear of q4 is not durable, the rear moves to q1; but not if it was
        delivered before: requeued messages are never in q1."""
        if self.q3.count:
            return
        fresh = list(takewhile(lambda slice_: not _is_pageable(slice_.run, durable), reversed(self.q4.slices)))
        if len(fresh) == len(self.q4.slices) or any(
            slice_.first < self._index_counters.delivered_to for slice_ in fresh
        ):
            return
        for slice_ in fresh:
            self.q1.appendleft(self.q4.take_last(len(slice_)))

    def _move_fresh_to_q2(self, scannable: Epoch) -> None:
        """If delta is empty and the rear of q3 is not scannable, the rear moves to q2; but not if its contents are in
        memory, or it was delivered before: messages are never requeued into q2."""
        fresh = list(takewhile(lambda slice_: not _is_pageable(slice_.run, scannable), reversed(self.q3.slices)))
        stays = (slice_.contents is not None or slice_.first < self._index_counters.delivered_to for slice_ in fresh)
        if len(fresh) == len(self.q3.slices) or any(stays):
            return
        for slice_ in fresh:
            self.q2.appendleft(self.q3.take_last(len(slice_)))

    def without_contents(self, slices: list[Slice]) -> list[Slice]:
        """Page out contents: persistent ones are in the log unless too new; transient ones are written, joined."""
        if any(not slice_.run.is_persistent and slice_.contents is not None for slice_ in slices):
            written = iter(self._transients.write([s for s in slices if not s.run.is_persistent]))
            slices = [slice_ if slice_.run.is_persistent else next(written) for slice_ in slices]
        for slice_ in slices:
            if self._stores.is_written(slice_.run):
                slice_.contents = None
        return slices

    def __iter__(self) -> Iterator[Slice]:
        """All slices in memory, in order."""
        return chain(self.q4, self.q3, self.q2, self.q1)


def _is_pageable(run: Run, durable: Epoch) -> bool:
    return not run.is_persistent or 0 < run.epoch <= durable


def _may_leave(slice_: Slice, scannable: Epoch) -> bool:
    return slice_.contents is None and _is_pageable(slice_.run, scannable)


def _taken(
    subqueue: SubQueue,
    quota: int,
    peek: Callable[[SubQueue], Slice],
    take: Callable[[SubQueue, int], Slice],
    durable: Epoch,
) -> list[Slice]:
    """Slices from one end of a sub-queue, up to `quota` messages, as far as they may leave memory."""
    taken: list[Slice] = []
    while quota > 0 and subqueue.count and _is_pageable(peek(subqueue).run, durable):
        taken.append(take(subqueue, quota))
        quota -= len(taken[-1])
    return taken


def _first_of(subqueue: SubQueue) -> Slice:
    return subqueue.first


def _last_of(subqueue: SubQueue) -> Slice:
    return subqueue.last
