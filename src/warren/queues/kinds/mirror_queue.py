"""Which tag of one queue is which of another's, for messages that are pending in both. Kept in pieces, not by message.

    ours    3 4 5 6 7 | 12 13          a piece: the first of ours, where it stops, the first of theirs
    theirs  0 1 2 3 4 |  8  9

Pieces are kept in the same buckets as those of `TagRanges`, and are cut at their edges.

Always true: pieces of a bucket are in the order of our tags and do not overlap.

How a mirror copies and compares: messages of one queue beside those of another, however each has cut its slices.

ours    [0 1 2][3 4 5 6]             the same messages, in other pieces:
theirs  [0 1 2 3 4][5 6]             paired as 0…2, 3…4, 5…6

A mirror: a proxy that keeps a second backing queue in step with the first, and can put it in its place (BQ-07).

    every call ──▶ master ──▶ the answer
                     └──────▶ second: the same call, with its own tags; what it answers is compared

    promote:  master ✗    second ──▶ master        pending messages are ready again, and flagged, as after a crash

It is `rabbit_mirror_queue_master` without the machines: both queues are in this process and share the `IndexBatch`, so
what is durable in one is durable in the other; each has a sub-queue of its own. Whoever carries the calls elsewhere
puts another backing queue here. Who is master is not decided in here: a hook decides it at each start (C-11; QP-03,
QP-04).

A second queue that comes late lacks what is in the master. Either that *drains* away: new messages go to both, and the
second is in step when the master has let go of the last old one. Or it is *synchronised*: everything is copied, with
the places of pending messages, and all of it counts as delivered before.

    master   o o o p n n n         o old, p old and pending, n came since: `lacking` counts o and p
    second           n n n

A second queue that once answered differently, or failed, is not trusted any more: it is left alone, `is_in_step` says
no, `facts` says why, and it is not promoted. Synchronising makes it good again.

Always true: of what is ready the old ones come first, so a count tells them from the others. That holds for a queue
that has one order: priorities are made of mirrors, not mirrors of priorities. Master first: what it refuses the second
never hears of.
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
        """Take out what there is of these tags of ours; theirs."""
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
            kept = [piece for piece in rest if piece[0] < piece[1]]
            pieces[at : at + 1] = kept
            at += len(kept)
        if not pieces:
            del self._buckets[number]


def _append(ranges: list[TagRange], first: int, stop: int) -> None:
    """A range that goes on where the last one ended is one with it."""
    if ranges and ranges[-1][1] == first:
        ranges[-1] = ranges[-1][0], stop
    else:
        ranges.append((first, stop))


def _first_of(piece: _Piece) -> int:
    return piece[0]


_Standing = tuple[int, int | None, Slice]  # sequence id, tag if it is pending


def paired(ours: Sequence[Fetched], theirs: Sequence[Fetched], skipped: int) -> Iterator[tuple[int, int, int, bool]]:
    """Our tag, theirs, how many, and whether they are alike. The first `skipped` of ours have no partner."""
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
    """So many, in as many calls as it takes; fewer if there are no more."""
    fetched: list[Fetched] = []
    while count > 0 and (found := queue.fetch(count)):
        count -= sum(len(each.slice) for each in found)
        fetched += found
    return fetched


def in_order(pending: Sequence[TagRange], queue: BackingQueue) -> Iterator[tuple[int | None, Slice]]:
    """What is pending and what is ready, in the order in which it came, with contents: tag of the first or None, and
    messages that are one or the other."""
    held: list[_Standing] = []
    for first, stop in pending:
        tag = first
        for slice_ in queue.read_pending([(first, stop)]):
            held.append((slice_.first, tag, slice_))
            tag += len(slice_)
    ready = ((slice_.first, None, slice_) for slice_ in queue.browse())
    for _, tag_or_none, slice_ in heapq.merge(sorted(held, key=_first), ready, key=_first):
        yield tag_or_none, slice_


def _first(each: _Standing) -> int:
    return each[0]


def as_publication(slice_: Slice) -> Publication:
    run = slice_.run
    return Publication(slice_.contents or [], run.is_persistent, run.expires_ms, run.published_ms, origin=run.origin)


class MirrorQueue:
    """Is a `BackingQueue`."""

    def __init__(self, master: BackingQueue, second: BackingQueue | None = None) -> None:
        """Both empty, or both as one start found them, or `second` empty and late."""
        self._master = master
        self._second: BackingQueue | None = None
        self._pending = TagRanges()  # the master's tags
        self._tags = TagMap()  # of those that are pending in the second queue, too
        self._old_ready = 0  # ready in the master, and not in the second queue
        self._difference = ""  # what the second queue did otherwise
        self._target_seconds: float | None = None
        if second is not None:
            self.add(second)

    # -- the two queues ------------------------------------------------------------------------------------------

    @property
    def has_second(self) -> bool:
        return self._second is not None

    @property
    def lacking(self) -> int:
        """How many messages of the master the second queue never got."""
        return 0 if self._second is None else self._old_ready + self._pending.count - self._tags.count

    @property
    def is_in_step(self) -> bool:
        """Whether the second queue could take over at once, and nothing would be lost."""
        master, second = self._master, self._second
        return (
            second is not None
            and not self._difference
            and not self.lacking
            and (len(second), second.ready_bytes, second.pending_count)
            == (len(master), master.ready_bytes, master.pending_count)
        )

    def add(self, second: BackingQueue) -> None:
        """Let this one follow from now on. If it is empty what is here already may drain, or be synchronised; if it is
        not it must be as the master is, as after a start. One that was good for nothing any more is replaced."""
        if self._second is not None and not self._difference:
            raise Misuse("there is a second queue already")
        self._second, self._difference, self._tags = second, "", TagMap()
        second.set_ram_duration_target(self._target_seconds)
        is_empty = not len(second) and not second.pending_count
        self._old_ready = len(self._master) if is_empty else 0
        if not is_empty and not self.is_in_step:
            self._difference = "it was not as the master was when it came"

    def differences(self) -> Iterator[str]:
        """Compare what is ready in both, message by message; nothing if they are alike. Takes as long as browsing."""
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
                yield f"ready message {number} is another one in the second queue"

    def synchronise(self, batch: IndexBatch) -> int:
        """Make the second queue what the master is; how many messages that took. Everything waits meanwhile."""
        second = self._second
        if second is None:
            raise Misuse("there is no second queue", "add one")
        self._difference = "synchronising was not finished"
        second.requeue(self._tags.take_all(), batch)
        second.purge(batch)
        if second.pending_count:
            raise Refused("the second queue has pending messages that nobody knows of", "add an empty one")
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
        """Let the second queue be the queue. The old master is let go of, whatever state it is in; tags that it gave
        are no good any more."""
        second = self._second
        if second is None:
            raise Misuse("there is no second queue", "add one")
        if not may_lose and (self._difference or self.lacking):
            reason = self._difference or f"it lacks {self.lacking} messages"
            raise Refused(
                f"the second queue cannot take over: {reason}", "synchronise it, or say that messages may be lost"
            )
        second.requeue(self._tags.take_all(), batch)
        self._master, self._second = second, None
        self._pending.clear()
        self._old_ready, self._difference = 0, ""

    # -- calls that both get -------------------------------------------------------------------------------------

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
        """Each of them holds what lasts so long."""
        self._target_seconds = seconds
        self._master.set_ram_duration_target(seconds)
        self._follow(lambda second: second.set_ram_duration_target(seconds))

    def page(self) -> bool:
        is_more = [self._master.page()]
        self._follow(lambda second: is_more.append(second.page()))
        return any(is_more)

    # -- calls that the master answers ---------------------------------------------------------------------------

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
        """The master's, and how the second queue does."""
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
        """Let the second queue do the same. What goes wrong there is no matter of the master's."""
        if self._second is None or self._difference:
            return
        try:
            call(self._second)
        except WarrenError as error:
            self._difference = error.what

    def _take_old(self, count: int) -> int:
        """Of so many that leave the head of the master: how many the second queue never got."""
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
                raise Refused(f"what has the tag {tag} is something else in the second queue")


def _same(ours: int, theirs: int, done: str) -> None:
    if ours != theirs:
        raise Refused(f"{ours} messages were {done}, in the second queue {theirs}")
