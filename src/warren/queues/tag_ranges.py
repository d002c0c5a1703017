"""A set of tags, kept as ranges: what was fetched together is one of them, until an acknowledgement splits it.

    add 3…8   [3, 8)        take 5   [3, 5) [6, 8)        add 5   [3, 8)

Proxies keep their pending messages so: a call that names a wrong tag is refused before any queue behind the proxy has
heard of it.

Ranges are kept in buckets of 1,024 tags, and are cut at the edges of those: what is acknowledged in any order among a
million moves a thousand numbers at most.

Always true: ranges of a bucket are in order, do not touch, and none is empty. A call that is refused changes nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from warren.base.errors import Misuse
from warren.queues.backing import TagRange

BITS = 10  # a bucket holds 1 << BITS tags
_Bucket = tuple[list[int], list[int]]  # where its ranges begin, and where they stop


class TagRanges:
    __slots__ = ("_buckets", "_numbers", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}  # none is empty
        self._numbers: list[int] = []  # a heap; some of the buckets may be gone
        self.count = 0

    def __iter__(self) -> Iterator[TagRange]:
        """In order; what goes on behind the edge of a bucket is one range."""
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
        """None of these is there yet."""
        for part in in_buckets(first, stop):
            self._add(*part)
        self.count += stop - first

    def checked(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """The same in order, if each of these tags is there and is named once."""
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
        """Take these out, in order; all of them, or none and a `Misuse`."""
        ordered = self.checked(ranges)
        for first, stop in ordered:
            self._take(first, stop)
        return ordered

    def take_first(self, count: int) -> TagRange:
        """Take out up to so many of the first range, as far as it is in one bucket."""
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
            if len(self._numbers) > 2 * len(self._buckets):  # mostly of buckets that are gone
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
        """A tag of these that is not there."""
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
        """Within one bucket, and so within one of its ranges."""
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
    """The same tags, cut where buckets meet."""
    while first < stop:
        edge = min(stop, (first >> BITS) + 1 << BITS)
        yield first, edge
        first = edge
