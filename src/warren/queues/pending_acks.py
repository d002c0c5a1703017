"""Pending messages: fetched, and neither acknowledged nor requeued; stored as ranges, not as messages.

    buckets    0 …1023   1024 … 2047   2048 …        sequence ids, 1,024 per bucket
               [▪▪▪ ▪▪]  [▪▪▪▪▪▪▪▪▪▪]  [▪ ]          pending slices of each, in order

`PendingAcks`: a tag is the sequence id, which names one message of the queue for ever; messages fetched together have
adjacent tags. Slices fetched one after the other are merged, so a thousand messages fetched singly cost little more
than a thousand fetched at once. Nothing is longer than its bucket: taking a message out of the middle moves a thousand
references at most. Contents of pending messages can be paged out as those of ready ones can, and are read again if the
message is requeued and fetched.

`TagRanges`: a set of tags in the same buckets, without messages. Proxies check tags with it, so that a call with a
wrong tag is refused before it reaches a queue behind the proxy.

    add 3…8   [3, 8)        take 5   [3, 5) [6, 8)        add 5   [3, 8)

Invariants
* Ranges of a bucket are in order, do not overlap, and none is empty; adjacent tag ranges are merged.
* Slices of a bucket have no other owner.
* A call with a tag that is not pending changes nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from warren.base.errors import Misuse
from warren.base.ids import SequenceId
from warren.base.messages import Run, Slice
from warren.queues.backing_queue import TagRange

BITS = 10  # a bucket holds 1 << BITS tags
_Bucket = tuple[list[int], list[int]]  # firsts and stops of its ranges


class TagRanges:
    __slots__ = ("_buckets", "_numbers", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}  # none is empty
        self._numbers: list[int] = []  # a heap; some of the buckets may be gone
        self.count = 0

    def __iter__(self) -> Iterator[TagRange]:
        """In order; ranges that continue in the next bucket are joined."""
        begun: TagRange | None = None
        for number in sorted(self._buckets):
            for first, stop in zip(*self._buckets[number], strict=True):
                if begun is None:
                    begun = first, stop
                elif begun[1] == first:
                    begun = begun[0], stop
                else:
                    yield begun
                    begun = first, stop
        if begun is not None:
            yield begun

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def add(self, first: int, stop: int) -> None:
        """Add tags, none of which is in the set."""
        for part in in_buckets(first, stop):
            self._add(*part)
        self.count += stop - first

    def checked(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """The same ranges in order; `Misuse` if a tag is missing or named twice."""
        ordered = sorted(each for each in ranges if each[0] < each[1])
        end = None
        for first, stop in ordered:
            if end is not None and first < end:
                raise Misuse(f"tag {first} is named twice", "acknowledge or requeue each message once")
            missing = self._missing(first, stop)
            if missing is not None:
                raise Misuse(f"tag {missing} is not pending", "acknowledge or requeue each message once")
            end = stop
        return ordered

    def take(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """Remove ranges; all of them, or none and a `Misuse`. Returns them in order."""
        ordered = self.checked(ranges)
        for first, stop in ordered:
            self._take(first, stop)
        return ordered

    def take_first(self, count: int) -> TagRange:
        """Remove up to `count` tags of the first range, within one bucket."""
        while self._numbers[0] not in self._buckets:
            heapq.heappop(self._numbers)
        firsts, stops = self._buckets[self._numbers[0]]
        first = firsts[0]
        stop = min(first + count, stops[0])
        self._take(first, stop)
        return first, stop

    def clear(self) -> None:
        self._buckets, self._numbers, self.count = {}, [], 0

    # -- helpers -------------------------------------------------------------------------------------------------

    def _add(self, first: int, stop: int) -> None:
        """Within one bucket."""
        number = first >> BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = [], []
            if len(self._numbers) > 2 * len(self._buckets):  # mostly buckets that are gone
                self._numbers = sorted(self._buckets)
            else:
                heapq.heappush(self._numbers, number)
        firsts, stops = bucket
        at = bisect_left(firsts, first)
        assert (not at or stops[at - 1] <= first) and (at == len(firsts) or stop <= firsts[at]), "a tag is there once"
        has_left = at > 0 and stops[at - 1] == first
        has_right = at < len(firsts) and firsts[at] == stop
        if has_left and has_right:
            stops[at - 1] = stops[at]
            del firsts[at], stops[at]
        elif has_left:
            stops[at - 1] = stop
        elif has_right:
            firsts[at] = first
        else:
            firsts.insert(at, first)
            stops.insert(at, stop)

    def _missing(self, first: int, stop: int) -> int | None:
        """The first of these tags that is not in the set."""
        while first < stop:
            bucket = self._buckets.get(first >> BITS)
            at = -1 if bucket is None else bisect_right(bucket[0], first) - 1
            if bucket is None or at < 0 or bucket[1][at] <= first:
                return first
            first = bucket[1][at]
        return None

    def _take(self, first: int, stop: int) -> None:
        for part in in_buckets(first, stop):
            self._remove(*part)
        self.count -= stop - first

    def _remove(self, first: int, stop: int) -> None:
        """Within one bucket, and so within one range."""
        firsts, stops = self._buckets[first >> BITS]
        at = bisect_right(firsts, first) - 1
        left, right = firsts[at], stops[at]
        if left == first and right == stop:
            del firsts[at], stops[at]
            if not firsts:
                del self._buckets[first >> BITS]
        elif left == first:
            firsts[at] = stop
        elif right == stop:
            stops[at] = first
        else:
            stops[at] = first
            firsts.insert(at + 1, stop)
            stops.insert(at + 1, right)


def in_buckets(first: int, stop: int) -> Iterator[TagRange]:
    """The same tags, cut at the edges of buckets."""
    while first < stop:
        edge = min(stop, (first >> BITS) + 1 << BITS)
        yield first, edge
        first = edge


class PendingAcks:
    __slots__ = ("_buckets", "_numbers", "_with_contents", "count", "ram_bytes", "ram_count", "size_bytes")

    def __init__(self) -> None:
        self._buckets: dict[int, list[Slice]] = {}
        self._numbers: list[int] = []  # a heap; some of the buckets may be gone
        self._with_contents: set[int] = set()  # buckets that have contents in memory
        self.count = 0
        self.size_bytes = 0
        self.ram_count = 0
        self.ram_bytes = 0

    def __iter__(self) -> Iterator[Slice]:
        """In order."""
        for number in sorted(self._buckets):
            yield from self._buckets[number]

    @property
    def head(self) -> Slice | None:
        """The first pending slice."""
        while self._numbers and self._numbers[0] not in self._buckets:
            heapq.heappop(self._numbers)
        return self._buckets[self._numbers[0]][0] if self._numbers else None

    def add(self, slice_: Slice) -> None:
        """Add pending messages. The slice is copied."""
        run, at, contents = slice_.run, slice_.start, slice_.contents
        while at < slice_.stop:
            number = run.first + at >> BITS
            edge = min(slice_.stop, (number + 1 << BITS) - run.first)
            part = None if contents is None else contents[at - slice_.start : edge - slice_.start]
            self._add(number, Slice(run, at, edge, part))
            at = edge

    def take(self, ranges: Sequence[TagRange]) -> list[Slice]:
        """Remove pending messages; all of them, or none and a `Misuse`. Returns them in the order of their tags."""
        ordered = self._checked(ranges)
        return [taken for first, stop in ordered for taken in self._take(first, stop)]

    def select(self, ranges: Sequence[TagRange]) -> list[Slice]:
        """Pending messages in the order of `ranges`; they stay pending."""
        self._checked(ranges)
        return [part for first, stop in ranges for part in self._between(first, stop)]

    def bits_of(self, run: Run) -> int:
        """Which messages of a run are pending, as a bitmap."""
        if not self.count:
            return 0
        bits = 0
        for number in range(run.first >> BITS, (run.end - 1 >> BITS) + 1):
            for slice_ in self._buckets.get(number, ()):
                if slice_.first < run.end and slice_.end > run.first:
                    bits |= (1 << len(slice_)) - 1 << slice_.first - run.first
        return bits

    def release(self, quota: int, is_written: Callable[[Run], bool], page: Callable[[list[Slice]], list[Slice]]) -> int:
        """Page out contents of about `quota` messages; of how many it was done."""
        done = 0
        for number in sorted(self._with_contents, reverse=True):
            bucket = self._buckets.get(number, [])
            in_memory = [at for at, slice_ in enumerate(bucket) if slice_.contents is not None]
            going = [at for at in in_memory if is_written(bucket[at].run)]
            for at in going:
                self._count(bucket[at], -1)
            for at, paged in zip(going, page([bucket[at] for at in going]), strict=True):
                bucket[at] = paged
                self._count(paged, 1)
                done += len(paged)
            if len(going) == len(in_memory):
                self._with_contents.discard(number)
            if done >= quota:
                break
        return done

    # -- helpers -------------------------------------------------------------------------------------------------

    def _add(self, number: int, slice_: Slice) -> None:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = []
            if len(self._numbers) > 2 * len(self._buckets):  # mostly buckets that are gone
                self._numbers = sorted(self._buckets)
            else:
                heapq.heappush(self._numbers, number)
        if slice_.contents is not None:
            self._with_contents.add(number)
        self._count(slice_, 1)
        if not bucket or bucket[-1].end <= slice_.first:
            at = len(bucket)
        else:
            at = bisect_right(bucket, slice_.first, key=first_of)
        if at and _is_joined(bucket[at - 1], slice_):
            return
        bucket.insert(at, slice_)

    def _checked(self, ranges: Sequence[TagRange]) -> Sequence[TagRange]:
        """The ranges in order; `Misuse` if a tag is not pending or named twice."""
        ordered = ranges if len(ranges) < 2 else sorted(ranges)
        end = -1
        for first, stop in ordered:
            if first < end:
                raise Misuse(f"tag {first} is named twice", "acknowledge or requeue each message once")
            missing = self._missing(first, stop)
            if missing is not None:
                raise Misuse(f"tag {missing} is not pending", "acknowledge or requeue each message once")
            end = stop
        return ordered

    def _missing(self, first: int, stop: int) -> int | None:
        """The first of these tags that is not pending."""
        at = first
        while at < stop:
            bucket = self._buckets.get(at >> BITS)
            if bucket is None:
                return at
            slice_ = bucket[_index_at(bucket, at)]
            if not slice_.first <= at < slice_.end:
                return at
            at = slice_.end
        return None

    def _between(self, first: int, stop: int) -> Iterator[Slice]:
        """Copies of pending slices from one tag up to another."""
        at = first
        while at < stop:
            number = at >> BITS
            for slice_ in self._buckets.get(number, ()):
                if slice_.first >= stop:
                    return
                if slice_.end > at:
                    yield _part(slice_, max(first, slice_.first), min(stop, slice_.end))
            at = number + 1 << BITS

    def _take(self, first: int, stop: int) -> Iterator[Slice]:
        at = first
        while at < stop:
            number = at >> BITS
            bucket = self._buckets[number]
            index = _index_at(bucket, at)
            slice_ = bucket[index]
            end = min(stop, slice_.end)
            if slice_.first == at and slice_.end == end:
                taken = bucket.pop(index)
                if not bucket:
                    del self._buckets[number]
                    self._with_contents.discard(number)
            else:
                taken = _part(slice_, at, end)
                bucket[index : index + 1] = _without(slice_, at, end, taken.size_bytes)
            self._count(taken, -1)
            yield taken
            at = end

    def _count(self, slice_: Slice, sign: int) -> None:
        count, size_bytes = (slice_.stop - slice_.start) * sign, slice_.size_bytes * sign
        self.count += count
        self.size_bytes += size_bytes
        if slice_.contents is not None:
            self.ram_count += count
            self.ram_bytes += size_bytes


def _is_joined(before: Slice, slice_: Slice) -> bool:
    """Merge two slices, if they are adjacent in one run and both have contents, or neither has."""
    if before.run is not slice_.run or before.stop != slice_.start:
        return False
    if before.contents is not None and slice_.contents is not None:
        before.contents.extend(slice_.contents)
    elif before.contents is not slice_.contents:
        return False
    before.stop = slice_.stop
    before.size_bytes += slice_.size_bytes
    return True


def _part(slice_: Slice, first: int, end: int) -> Slice:
    start, stop = first - slice_.run.first, end - slice_.run.first
    contents = slice_.contents
    return Slice(
        slice_.run, start, stop, None if contents is None else contents[start - slice_.start : stop - slice_.start]
    )


def _without(slice_: Slice, first: int, end: int, size_bytes: int) -> list[Slice]:
    """The rest of a slice without some messages. Usually those at the front go: then it is shortened in place."""
    if first == slice_.first:
        slice_.start += end - first
        slice_.size_bytes -= size_bytes
        if slice_.contents is not None:
            del slice_.contents[: end - first]
        return [slice_]
    edges = (slice_.first, first), (end, slice_.end)
    return [_part(slice_, start, stop) for start, stop in edges if start < stop]


def _index_at(bucket: list[Slice], at: int) -> int:
    """Index of the slice that contains a sequence id, if one does."""
    return 0 if at < bucket[0].end else bisect_right(bucket, at, key=first_of) - 1


def first_of(slice_: Slice) -> SequenceId:
    return SequenceId(slice_.run.first + slice_.start)
