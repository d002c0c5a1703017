"""The lanes of a variable queue, and every move between them (seed 000).

    publish ─▶ [ q1 ─▶ q2 ─▶ delta ─▶ q3 ─▶ q4 ] ─▶ consumer           oldest on the right: q4 < q3 < delta < q2 < q1
               alpha   beta   on disk  beta  alpha                      empty lanes are passed over (VQ-44)

    put                    to the rear of q4, or of q1 if there is something in q3
    take                   from q4, then from q3; then `refill`
    refill                 q3 is empty: read delta into q3, and q2 behind it when delta is empty; or q1 becomes q4
    push_alphas_to_betas   front of q1 → rear of q2 (delta has something) or q3;  rear of q4 → front of q3
    push_betas_to_deltas   rear of q3 → front of delta, then front of q2 → rear of delta
    put_back               what was fetched, where it stood: q4, q3 or delta; nothing in q2 or q1 was ever fetched

Quotas count messages, and split slices. Contents of a persistent message are in the log already, so leaving memory
writes nothing for it; but it stays as long as its epoch is not durable. Messages at the rear of q4 which are that new
go to q1 when older ones are paged: their place is behind those. A position stays until the index can scan the run;
positions at the rear of q3 which are that new go to q2 when older ones leave.

Always true after each move: see `invariants`. In the midst of `take` … `refill` it is not (C-04).
Not here: when to page and how much (paging), what is pending or gone (pending_acks, ledger).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, takewhile

from warren.base.ids import Epoch
from warren.base.runs import Run, Slice
from warren.queues.contents import Stores
from warren.queues.delta import Delta
from warren.queues.ledger import IndexCounters
from warren.queues.subqueue import SubQueue, first_of
from warren.queues.transients import Transients


class SubQueues:
    def __init__(
        self, stores: Stores, transients: Transients, ledger: IndexCounters, delta: Delta, delta_read_messages: int
    ) -> None:
        self._stores = stores
        self._ledger = ledger
        self._transients = transients
        self._delta_read_messages = delta_read_messages
        self.q1 = SubQueue()
        self.q2 = SubQueue()
        self.q3 = SubQueue()
        self.q4 = SubQueue()
        self.delta = delta

    # -- what is asked of all of them ----------------------------------------------------------------------------

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
        """The lane that the next message comes from; empty if the queue is."""
        return self.q4 if self.q4.count else self.q3

    # -- coming and going ----------------------------------------------------------------------------------------

    def put(self, slice_: Slice) -> None:
        (self.q1 if self.q3.count else self.q4).append(slice_)

    def take(self, count: int) -> Slice:
        """Messages from the head, at most so many, all of one slice. Somebody has to `refill` then."""
        return self.front.take_first(count)

    def refill(self) -> None:
        """After the last message of q3 was taken: see that the head of the queue is in q4 or q3 again."""
        while not self.q3.count:
            if not self.delta.count:
                self.move_q1_to_q4()
                return
            self.maybe_deltas_to_betas()

    def maybe_deltas_to_betas(self) -> None:
        """Read some of delta into q3. If that was all, what is in q2 comes next."""
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
        """Everything, some at a time."""
        for lane in (self.q4, self.q3):
            yield lane.take_all()
        while self.delta.count:
            yield self.delta.load(self._delta_read_messages)
        for lane in (self.q2, self.q1):
            yield lane.take_all()

    def take_from(self, first: int) -> list[Slice]:
        """Everything from a sequence id on, which is in memory and begins a slice."""
        taken = []
        for lane in (self.q1, self.q4):
            while lane.count and lane.last.first >= first:
                taken.append(lane.take_last(len(lane.last)))
        return taken

    # -- back to where it stood ----------------------------------------------------------------------------------

    def put_back(self, slices: Iterable[Slice]) -> None:
        """Latest first. Until one is in its place it is in hand: reading delta leaves it out."""
        self.delta.in_hand = left = sorted(slices, key=first_of)
        while left:
            slice_ = left[-1]
            if not self.q3.count or slice_.end <= self.q3.first.first:
                self._put_back_in_front(slice_)
            elif not self.delta.count or slice_.end <= self.delta.start:
                self.q3.insert(self._without_contents([slice_])[0])
            elif self._stores.is_written(slice_.run) and self._stores.is_scannable(slice_.run):
                self.delta.put(self._without_contents([slice_]))
            else:
                self._read_delta_up_to(slice_)
                self.q3.insert(slice_)
            left.pop()

    def _put_back_in_front(self, slice_: Slice) -> None:
        """To q4, if its contents are there; otherwise to q3, and what stands behind it as well."""
        if slice_.contents is not None:
            self.q4.insert(slice_)
            return
        behind = []
        while self.q4.count and self.q4.last.first > slice_.first:
            behind.append(self.q4.take_last(self.q4.last.stop - self.q4.last.start))
        for paged in reversed(self._without_contents(behind[::-1])):
            self.q3.appendleft(paged)
        self.q3.appendleft(slice_)

    def _read_delta_up_to(self, slice_: Slice) -> None:
        """It is too new to be on disk only: what stands in front of it has to be in q3, as it will be."""
        while self.delta.count and self.delta.start < slice_.first:
            self.load_delta()
        if not self.delta.count:
            self.join_q2()

    # -- to disk -------------------------------------------------------------------------------------------------

    def push_alphas_to_betas(self, quota_q1: int, quota_q4: int) -> int:
        """Let go of the contents of up to so many messages of q1 and of q4, latest delivered first; of how many."""
        durable = self._stores.durable_epoch()
        from_q1 = _taken(self.q1, quota_q1, _first_of, SubQueue.take_first, durable)
        (self.q2 if self.delta.count else self.q3).extend(self._without_contents(from_q1))
        if quota_q4 > 0:
            self._set_fresh_aside(durable)
        from_q4 = _taken(self.q4, quota_q4, _last_of, SubQueue.take_last, durable)
        for paged in reversed(self._without_contents(from_q4[::-1])):
            self.q3.appendleft(paged)
        return sum(map(len, from_q1)) + sum(map(len, from_q4))

    def let_go_of_settled(self) -> int:
        """Contents that were put back to q3 before they were durable, and are by now; of how many messages."""
        return self.q3.let_go(self._stores.is_written) if self.q3.ram_count else 0

    def push_betas_to_deltas(self, quota: int) -> int:
        """Let go of the positions of up to so many messages of q3, and then of q2; of how many. One stays in q3."""
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

    def without_contents(self, slices: list[Slice]) -> list[Slice]:
        """The same slices, their contents on disk; for those who hold slices outside the lanes."""
        return self._without_contents(slices)

    def _set_fresh_aside(self, durable: Epoch) -> None:
        """Nothing was paged so far, and the rear of q4 is too new: the place of that is q1, unless it was delivered
        before: what is put back is never looked for in q1."""
        if self.q3.count:
            return
        fresh = list(takewhile(lambda slice_: not _is_pageable(slice_.run, durable), reversed(self.q4.slices)))
        if len(fresh) == len(self.q4.slices) or any(slice_.first < self._ledger.delivered_to for slice_ in fresh):
            return
        for slice_ in fresh:
            self.q1.appendleft(self.q4.take_last(len(slice_)))

    def _move_fresh_to_q2(self, scannable: Epoch) -> None:
        """Delta is empty, and the rear of q3 is too new for it: the place of that is q2, unless its contents are still
        in memory, or it was delivered before: messages are never put back into q2."""
        fresh = list(takewhile(lambda slice_: not _is_pageable(slice_.run, scannable), reversed(self.q3.slices)))
        stays = (slice_.contents is not None or slice_.first < self._ledger.delivered_to for slice_ in fresh)
        if len(fresh) == len(self.q3.slices) or any(stays):
            return
        for slice_ in fresh:
            self.q2.appendleft(self.q3.take_last(len(slice_)))

    def _without_contents(self, slices: list[Slice]) -> list[Slice]:
        """Persistent ones are in the log, unless they are too new; transient ones are written, joined."""
        if any(not slice_.run.is_persistent and slice_.contents is not None for slice_ in slices):
            written = iter(self._transients.write([s for s in slices if not s.run.is_persistent]))
            slices = [slice_ if slice_.run.is_persistent else next(written) for slice_ in slices]
        for slice_ in slices:
            if self._stores.is_written(slice_.run):
                slice_.contents = None
        return slices

    def __iter__(self) -> Iterator[Slice]:
        """What is in memory of all lanes, without delta."""
        return chain(self.q4, self.q3, self.q2, self.q1)


def _is_pageable(run: Run, durable: Epoch) -> bool:
    return not run.is_persistent or 0 < run.epoch <= durable


def _may_leave(slice_: Slice, scannable: Epoch) -> bool:
    return slice_.contents is None and _is_pageable(slice_.run, scannable)


def _taken(
    lane: SubQueue,
    quota: int,
    look: Callable[[SubQueue], Slice],
    take: Callable[[SubQueue, int], Slice],
    durable: Epoch,
) -> list[Slice]:
    """Slices from one end of a lane, up to so many messages, as far as they may leave memory."""
    taken: list[Slice] = []
    while quota > 0 and lane.count and _is_pageable(look(lane).run, durable):
        taken.append(take(lane, quota))
        quota -= len(taken[-1])
    return taken


def _first_of(lane: SubQueue) -> Slice:
    return lane.first


def _last_of(lane: SubQueue) -> Slice:
    return lane.last
