"""A set of tags, kept as ranges: what was fetched together is one of them, until an acknowledgement splits it.

    add 3…8   [3, 8)        take 5   [3, 5) [6, 8)        add 5   [3, 8)

Proxies keep their pending messages so: a call that names a wrong tag is refused before any queue behind the proxy has
heard of it.

Always true: ranges are in order, do not touch, and none is empty. A call that is refused changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from warren.base.errors import Misuse
from warren.queues.backing import TagRange


class TagRanges:
    __slots__ = ("_firsts", "_stops", "count")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        self.count = 0

    def __iter__(self) -> Iterator[TagRange]:
        return zip(self._firsts, self._stops, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, first: int, stop: int) -> None:
        """None of these is there yet."""
        if first == stop:
            return
        firsts, stops = self._firsts, self._stops
        at = bisect_left(firsts, first)
        assert (not at or stops[at - 1] <= first) and (at == len(firsts) or stop <= firsts[at]), "a tag is there once"
        self.count += stop - first
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

    def checked(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """The same in order, if each of these tags is there and is named once."""
        ordered = sorted(each for each in ranges if each[0] < each[1])
        end = None
        for first, stop in ordered:
            if end is not None and first < end:
                raise Misuse(f"tag {first} is named twice", "acknowledge or requeue each message once")
            at = bisect_right(self._firsts, first) - 1
            if at < 0 or self._stops[at] < stop:
                missing = first if at < 0 or self._stops[at] <= first else self._stops[at]
                raise Misuse(f"tag {missing} is not pending", "acknowledge or requeue each message once")
            end = stop
        return ordered

    def take(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """Take these out, in order; all of them, or none and a `Misuse`."""
        ordered = self.checked(ranges)
        for first, stop in ordered:
            self._remove(first, stop)
        return ordered

    def take_first(self, count: int) -> TagRange:
        """Take out up to so many of the first range."""
        first = self._firsts[0]
        stop = min(first + count, self._stops[0])
        self._remove(first, stop)
        return first, stop

    def clear(self) -> None:
        self._firsts, self._stops, self.count = [], [], 0

    def _remove(self, first: int, stop: int) -> None:
        firsts, stops = self._firsts, self._stops
        at = bisect_right(firsts, first) - 1
        left, right = firsts[at], stops[at]
        self.count -= stop - first
        if left == first and right == stop:
            del firsts[at], stops[at]
        elif left == first:
            firsts[at] = stop
        elif right == stop:
            stops[at] = first
        else:
            stops[at] = first
            firsts.insert(at + 1, stop)
            stops.insert(at + 1, right)
