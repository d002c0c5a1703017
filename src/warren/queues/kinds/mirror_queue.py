"""Mirror queue: a proxy that keeps a second backing queue in step with the first, and can promote it (BQ-07).

    every call ──▶ master ──▶ the result
                     └──────▶ second: the same call, with its own tags; its result is compared

    promote:  master ✗    second ──▶ master        pending messages are ready again, and redelivered, as after a crash

It is `rabbit_mirror_queue_master` without the network: both queues are in this process and share the `IndexBatch`, so
what is durable in one is durable in the other; each has its own sub-queue. A remote mirror would be another backing
queue in this place. Which queue is master is decided by a hook at each start (C-11; QP-03, QP-04).

A second queue that is added later lacks the messages of the master. Either they *drain*: new messages go to both, and
the second is in step when the last old message has left the master. Or it is *synchronised*: everything is copied, with
the positions of pending messages, and all of it counts as delivered before.

    master   o o o p n n n         o old, p old and pending, n new: `lacking` counts o and p
    second           n n n

A second queue that once gave a different result, or failed, is not used any more: `is_in_step` is False, `facts` has
the reason, and it is not promoted. Synchronising repairs it.

`TagMap` maps the master's tags of pending messages to those of the second queue, in ranges:

    ours    3 4 5 6 7 | 12 13          a piece: first and stop of ours, first of theirs
    theirs  0 1 2 3 4 |  8  9

Messages of both queues are compared however each has cut its slices:

    ours    [0 1 2][3 4 5 6]
    theirs  [0 1 2 3 4][5 6]           paired as 0…2, 3…4, 5…6

Invariants
* Of the ready messages the old ones come first, so a count separates them. That holds for a queue with one order:
  priorities are made of mirrors, not mirrors of priorities.
* The master is called first: a call that it refuses never reaches the second queue.
* Pieces of a bucket (those of `TagRanges`) are in the order of the master's tags and do not overlap.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from warren.base.errors import Misuse, Refused, WarrenError
from warren.base.messages import Publication, Slice
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues import pending_acks
from warren.queues.backing_queue import BackingQueue, Fetched, MessageSizes, TagRange
from warren.queues.pending_acks import TagRanges

_Piece = tuple[int, int, int]  # first, stop, first of theirs


class TagMap:
    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, list[_Piece]] = {}  # none is empty
        self.count = 0

    def add(self, first: int, stop: int, theirs: int) -> None:
        for left, right in pending_acks.in_buckets(first, stop):
            self._add(left, right, theirs + left - first)
        self.count += stop - first

    def take(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """Remove tags of ours; returns theirs."""
        found: list[TagRange] = []
        for each in ranges:
            for part in pending_acks.in_buckets(*each):
                self._take(*part, found)
        return found

    def take_all(self) -> list[TagRange]:
        """Theirs, of all that there are."""
        theirs: list[TagRange] = []
        for number in sorted(self._buckets):
            for first, stop, other in self._buckets[number]:
                _append(theirs, other, other + stop - first)
        self._buckets, self.count = {}, 0
        return theirs

    def _add(self, first: int, stop: int, theirs: int) -> None:
        """Within one bucket."""
        pieces = self._buckets.setdefault(first >> pending_acks.BITS, [])
        at = bisect_left(pieces, (first,))
        if at:
            left, right, other = pieces[at - 1]
            if right == first and other + right - left == theirs:
                pieces[at - 1] = (left, stop, other)
                return
        pieces.insert(at, (first, stop, theirs))

    def _take(self, first: int, stop: int, found: list[TagRange]) -> None:
        """Within one bucket."""
        number = first >> pending_acks.BITS
        pieces = self._buckets.get(number)
        if pieces is None:
            return
        at = max(bisect_right(pieces, first, key=_first_of) - 1, 0)
        while at < len(pieces) and pieces[at][0] < stop:
            left, right, other = pieces[at]
            start, end = max(left, first), min(right, stop)
            if start >= end:
                at += 1
                continue
            self.count -= end - start
            _append(found, other + start - left, other + end - left)
            rest = [(left, start, other), (end, right, other + end - left)]
            remaining = [piece for piece in rest if piece[0] < piece[1]]
            pieces[at : at + 1] = remaining
            at += len(remaining)
        if not pieces:
            del self._buckets[number]


def _append(ranges: list[TagRange], first: int, stop: int) -> None:
    """Append a range; adjacent ranges are merged."""
    if ranges and ranges[-1][1] == first:
        ranges[-1] = ranges[-1][0], stop
    else:
        ranges.append((first, stop))


def _first_of(piece: _Piece) -> int:
    return piece[0]


_Standing = tuple[int, int | None, Slice]  # sequence id, tag if it is pending


def paired(ours: Sequence[Fetched], theirs: Sequence[Fetched], skipped: int) -> Iterator[tuple[int, int, int, bool]]:
    """Our tag, their tag, count, and whether contents are equal. The first `skipped` of ours have no partner."""
    partners = iter(theirs)
    partner, done = None, 0
    for each in ours:
        at = min(skipped, len(each.slice))
        skipped -= at
        while at < len(each.slice):
            if partner is None or done == len(partner.slice):
                partner, done = next(partners), 0
            size = min(len(each.slice) - at, len(partner.slice) - done)
            our_contents, their_contents = each.slice.contents or [], partner.slice.contents or []
            is_alike = our_contents[at : at + size] == their_contents[done : done + size]
            yield each.tag + at, partner.tag + done, size, is_alike
            at, done = at + size, done + size


def fetched_whole(queue: BackingQueue, count: int) -> list[Fetched]:
    """Fetch `count` messages in as many calls as needed; fewer if there are no more."""
    fetched: list[Fetched] = []
    while count > 0 and (found := queue.fetch(count)):
        count -= sum(len(each.slice) for each in found)
        fetched += found
    return fetched


def in_order(pending: Sequence[TagRange], queue: BackingQueue) -> Iterator[tuple[int | None, Slice]]:
    """Pending and ready messages in the order of publication, with contents: tag of the first (None: ready), slice."""
    pending_slices: list[_Standing] = []
    for first, stop in pending:
        tag = first
        for slice_ in queue.read_pending([(first, stop)]):
            pending_slices.append((slice_.first, tag, slice_))
            tag += len(slice_)
    ready = ((slice_.first, None, slice_) for slice_ in queue.browse())
    for _, tag_or_none, slice_ in heapq.merge(sorted(pending_slices, key=_first), ready, key=_first):
        yield tag_or_none, slice_


def _first(each: _Standing) -> int:
    return each[0]


def as_publication(slice_: Slice) -> Publication:
    run = slice_.run
    return Publication(slice_.contents or [], run.is_persistent, run.expires_ms, run.published_ms, origin=run.origin)


class MirrorQueue:
    """Implements `BackingQueue`."""

    def __init__(self, master: BackingQueue, second: BackingQueue | None = None) -> None:
        """Both empty, or both as recovered by one start, or `second` empty and added later."""
        self._master = master
        self._second: BackingQueue | None = None
        self._pending = TagRanges()  # the master's tags
        self._tags = TagMap()  # of messages pending in both
        self._old_ready = 0  # ready in the master only
        self._difference = ""  # how the second queue differed; empty: it did not
        self._target_seconds: float | None = None
        if second is not None:
            self.add(second)

    # -- the two queues ------------------------------------------------------------------------------------------

    @property
    def has_second(self) -> bool:
        return self._second is not None

    @property
    def lacking(self) -> int:
        """Number of messages that only the master has."""
        return 0 if self._second is None else self._old_ready + self._pending.count - self._tags.count

    @property
    def is_in_step(self) -> bool:
        """Whether the second queue can be promoted without loss."""
        master, second = self._master, self._second
        return (
            second is not None
            and not self._difference
            and not self.lacking
            and (len(second), second.ready_bytes, second.pending_count)
            == (len(master), master.ready_bytes, master.pending_count)
        )

    def add(self, second: BackingQueue) -> None:
        """Add a second queue. If it is empty, old messages drain or are synchronised; if not, it must equal the master,
        as after a start. A second queue that differed is replaced."""
        if self._second is not None and not self._difference:
            raise Misuse("there is a second queue already")
        self._second, self._difference, self._tags = second, "", TagMap()
        second.set_ram_duration_target(self._target_seconds)
        is_empty = not len(second) and not second.pending_count
        self._old_ready = len(self._master) if is_empty else 0
        if not is_empty and not self.is_in_step:
            self._difference = "it differed from the master when it was added"

    def differences(self) -> Iterator[str]:
        """Compare ready messages one by one; empty if they are equal. Takes as long as browsing both."""
        second = self._second
        if second is None:
            yield "there is no second queue"
            return
        if self._difference:
            yield self._difference
        if len(second) + self._old_ready != len(self._master):
            yield f"{len(self._master)} messages are ready, in the second queue {len(second)}"
        ours = chain.from_iterable(slice_.contents or () for slice_ in self._master.browse())
        theirs = chain.from_iterable(slice_.contents or () for slice_ in second.browse())
        for number, content in enumerate(ours):
            if number >= self._old_ready and content != next(theirs, None):
                yield f"ready message {number} differs in the second queue"

    def synchronise(self, batch: IndexBatch) -> int:
        """Copy the master to the second queue; how many messages. Other calls wait meanwhile."""
        second = self._second
        if second is None:
            raise Misuse("there is no second queue", "add one")
        self._difference = "synchronising was not finished"
        second.requeue(self._tags.take_all(), batch)
        second.purge(batch)
        if second.pending_count:
            raise Refused("the second queue has unknown pending messages", "add an empty one")
        ready: list[TagRange] = []
        count = 0
        for tag, slice_ in in_order(list(self._pending), self._master):
            count += len(slice_)
            second.publish(as_publication(slice_), batch)
            for each in fetched_whole(second, len(slice_)):
                if tag is None:
                    ready.append(each.tags)
                else:
                    self._tags.add(tag, tag + len(each.slice), each.tag)
                    tag += len(each.slice)
            second.page()
        second.requeue(ready, batch)
        self._old_ready, self._difference = 0, ""
        return count

    def promote(self, batch: IndexBatch, may_lose: bool = False) -> None:
        """Make the second queue the master. The old master is dropped, whatever its state; its tags are invalid."""
        second = self._second
        if second is None:
            raise Misuse("there is no second queue", "add one")
        if not may_lose and (self._difference or self.lacking):
            reason = self._difference or f"it lacks {self.lacking} messages"
            raise Refused(
                f"the second queue cannot take over: {reason}", "synchronise it, or allow the loss of messages"
            )
        second.requeue(self._tags.take_all(), batch)
        self._master, self._second = second, None
        self._pending.clear()
        self._old_ready, self._difference = 0, ""

    # -- calls to both -------------------------------------------------------------------------------------

    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        self._master.publish(publication, batch)
        self._follow(lambda second: second.publish(publication, batch))

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        fetched = self._master.fetch(count, bytes_max)
        for each in fetched:
            self._pending.add(*each.tags)
        old = self._take_old(sum(len(each.slice) for each in fetched))
        self._follow(lambda second: self._fetch_there(second, fetched, old))
        return fetched

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        ordered = self._pending.checked(tags)
        count = self._master.ack(tags, reason, batch)
        self._pending.take(ordered)
        theirs = self._tags.take(ordered)
        self._follow(lambda second: second.ack(theirs, reason, batch))
        return count

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        ordered = self._pending.checked(tags)
        count = self._master.requeue(tags, batch)
        self._pending.take(ordered)
        theirs = self._tags.take(ordered)
        if self._second is not None:
            self._old_ready += count - sum(stop - first for first, stop in theirs)
        self._follow(lambda second: second.requeue(theirs, batch))
        return count

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        dropped = self._master.drop(count, reason, batch)
        known = dropped - self._take_old(dropped)
        self._follow(lambda second: _same(known, second.drop(known, reason, batch), "dropped"))
        return dropped

    def purge(self, batch: IndexBatch) -> int:
        purged = self._master.purge(batch)
        known = purged - self._take_old(purged)
        self._follow(lambda second: _same(known, second.purge(batch), "purged"))
        return purged

    def stop(self, batch: IndexBatch) -> None:
        self._master.stop(batch)
        self._follow(lambda second: second.stop(batch))

    def delete(self, batch: IndexBatch) -> None:
        self._master.delete(batch)
        self._pending.clear()
        self._tags, self._old_ready = TagMap(), 0
        self._follow(lambda second: second.delete(batch))

    def set_ram_duration_target(self, seconds: float | None) -> None:
        """Both queues get the same target."""
        self._target_seconds = seconds
        self._master.set_ram_duration_target(seconds)
        self._follow(lambda second: second.set_ram_duration_target(seconds))

    def page(self) -> bool:
        is_more = [self._master.page()]
        self._follow(lambda second: is_more.append(second.page()))
        return any(is_more)

    # -- calls to the master ---------------------------------------------------------------------------

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        return self._master.read_pending(tags)

    def head(self) -> Slice | None:
        return self._master.head()

    def browse(self) -> Iterator[Slice]:
        return self._master.browse()

    def __len__(self) -> int:
        return len(self._master)

    @property
    def ready_bytes(self) -> int:
        return self._master.ready_bytes

    @property
    def pending_count(self) -> int:
        return self._master.pending_count

    @property
    def ram_bytes(self) -> int:
        return self._master.ram_bytes + (0 if self._second is None else self._second.ram_bytes)

    def sizes(self) -> MessageSizes:
        """The master's: messages are counted once."""
        return self._master.sizes()

    def ram_duration(self) -> float:
        ours = self._master.ram_duration()
        return ours if self._second is None else min(ours, self._second.ram_duration())

    def facts(self) -> Mapping[str, int | float | str]:
        """Those of the master, and the state of the second queue."""
        return {
            **self._master.facts(),
            "kind": "mirror",
            "master_kind": self._master.facts()["kind"],
            "is_in_step": int(self.is_in_step),
            "lacking": self.lacking,
            "difference": self._difference,
        }

    # -- helpers -------------------------------------------------------------------------------------------------

    def _follow(self, call: Callable[[BackingQueue], object]) -> None:
        """Repeat a call on the second queue. Its errors do not affect the master."""
        if self._second is None or self._difference:
            return
        try:
            call(self._second)
        except WarrenError as error:
            self._difference = error.what

    def _take_old(self, count: int) -> int:
        """Of `count` messages leaving the head of the master: how many the second queue lacks."""
        old = min(count, self._old_ready)
        self._old_ready -= old
        return old

    def _fetch_there(self, second: BackingQueue, fetched: Sequence[Fetched], old: int) -> None:
        count = sum(len(each.slice) for each in fetched) - old
        theirs = fetched_whole(second, count)
        _same(count, sum(len(each.slice) for each in theirs), "fetched")
        for tag, their_tag, size, is_alike in paired(fetched, theirs, old):
            self._tags.add(tag, tag + size, their_tag)
            if not is_alike:
                raise Refused(f"the message with tag {tag} differs in the second queue")


def _same(ours: int, theirs: int, done: str) -> None:
    if ours != theirs:
        raise Refused(f"{ours} messages were {done}, in the second queue {theirs}")
