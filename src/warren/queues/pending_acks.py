"""What was fetched and is neither acknowledged nor requeued: ranges, not messages.

    buckets    0 …1023   1024 … 2047   2048 …        sequence ids, a thousand at a time
               [▪▪▪ ▪▪]  [▪▪▪▪▪▪▪▪▪▪]  [▪ ]          in each the slices that are pending, in order

A tag is the sequence id: it names one message of the queue for ever, and what was fetched together follows on. Slices
that are fetched one after the other become one again, so a thousand messages fetched singly cost little more than a
thousand fetched at once. Nothing is ever longer than its bucket: taking a message out of the middle moves a thousand
references at most, and finding one never looks far.

Contents of pending messages are memory too. They can be let go of as those of ready ones can, and are read again if the
message is requeued and fetched.

Always true: slices of a bucket are in order, do not overlap, and belong to nobody else. A call that names a tag which
is not pending changes nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from warren.base.errors import Misuse
from warren.base.runs import Run, Slice
from warren.queues.backing import TagRange
from warren.queues.subqueue import first_of

BITS = 10  # a bucket holds 1 << BITS sequence ids


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
        """The first of those that are pending."""
        while self._numbers and self._numbers[0] not in self._buckets:
            heapq.heappop(self._numbers)
        return self._buckets[self._numbers[0]][0] if self._numbers else None

    def add(self, slice_: Slice) -> None:
        """These are pending from now on. The slice stays its owner's."""
        run, at, contents = slice_.run, slice_.start, slice_.contents
        while at < slice_.stop:
            number = run.first + at >> BITS
            edge = min(slice_.stop, (number + 1 << BITS) - run.first)
            part = None if contents is None else contents[at - slice_.start : edge - slice_.start]
            self._add(number, Slice(run, at, edge, part))
            at = edge

    def take(self, ranges: Sequence[TagRange]) -> list[Slice]:
        """These are not pending any more. In the order of their tags; all of them, or none and a `Misuse`."""
        ordered = self._checked(ranges)
        return [taken for first, stop in ordered for taken in self._take(first, stop)]

    def look(self, ranges: Sequence[TagRange]) -> list[Slice]:
        """These, as they are asked for; they stay pending."""
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

    def let_go(self, quota: int, is_written: Callable[[Run], bool], page: Callable[[list[Slice]], list[Slice]]) -> int:
        """Have contents of about so many messages put on disk and forget them; of how many it was done."""
        done = 0
        for number in sorted(self._with_contents, reverse=True):
            bucket = self._buckets.get(number, [])
            held = [at for at, slice_ in enumerate(bucket) if slice_.contents is not None]
            going = [at for at in held if is_written(bucket[at].run)]
            for at in going:
                self._count(bucket[at], -1)
            for at, paged in zip(going, page([bucket[at] for at in going]), strict=True):
                bucket[at] = paged
                self._count(paged, 1)
                done += len(paged)
            if len(going) == len(held):
                self._with_contents.discard(number)
            if done >= quota:
                break
        return done

    # -- helpers -------------------------------------------------------------------------------------------------

    def _add(self, number: int, slice_: Slice) -> None:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = []
            if len(self._numbers) > 2 * len(self._buckets):  # mostly of buckets that are gone
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
        """In order, if all of them are pending and none is named twice."""
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
        """A tag of these that is not pending."""
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
        """What is pending from one tag up to another, in parts of their own."""
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
    """Make one slice of two, if they follow one another in one run and are alike."""
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
    """What is left of it when these go. Most go from the front, in order: then it is shortened in place."""
    if first == slice_.first:
        slice_.start += end - first
        slice_.size_bytes -= size_bytes
        if slice_.contents is not None:
            del slice_.contents[: end - first]
        return [slice_]
    edges = (slice_.first, first), (end, slice_.end)
    return [_part(slice_, start, stop) for start, stop in edges if start < stop]


def _index_at(bucket: list[Slice], at: int) -> int:
    """Where the slice stands that holds this sequence id, if one does."""
    return 0 if at < bucket[0].end else bisect_right(bucket, at, key=first_of) - 1
