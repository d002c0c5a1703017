"""Which tag of one queue is which of another's, for messages that are pending in both. Kept in pieces, not by message.

    ours    3 4 5 6 7 | 12 13          a piece: the first of ours, where it stops, the first of theirs
    theirs  0 1 2 3 4 |  8  9

Pieces are kept in the same buckets as those of `TagRanges`, and are cut at their edges.

Always true: pieces of a bucket are in the order of our tags and do not overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from warren.queues import tag_ranges
from warren.queues.backing import TagRange

_Piece = tuple[int, int, int]  # first, stop, first of theirs


class TagMap:
    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, list[_Piece]] = {}  # none is empty
        self.count = 0

    def add(self, first: int, stop: int, theirs: int) -> None:
        for left, right in tag_ranges.in_buckets(first, stop):
            self._add(left, right, theirs + left - first)
        self.count += stop - first

    def take(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """Take out what there is of these tags of ours; theirs."""
        found: list[TagRange] = []
        for each in ranges:
            for part in tag_ranges.in_buckets(*each):
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
        pieces = self._buckets.setdefault(first >> tag_ranges.BITS, [])
        at = bisect_left(pieces, (first,))
        if at:
            left, right, other = pieces[at - 1]
            if right == first and other + right - left == theirs:
                pieces[at - 1] = (left, stop, other)
                return
        pieces.insert(at, (first, stop, theirs))

    def _take(self, first: int, stop: int, found: list[TagRange]) -> None:
        """Within one bucket."""
        number = first >> tag_ranges.BITS
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
