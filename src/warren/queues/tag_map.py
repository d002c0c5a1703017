"""Which tag of one queue is which of another's, for messages that are pending in both. Kept in pieces, not by message.

    ours    3 4 5 6 7 | 12 13          a piece: the first of ours, where it stops, the first of theirs
    theirs  0 1 2 3 4 |  8  9

Always true: pieces are in the order of our tags and do not overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from warren.queues.backing import TagRange

_Piece = tuple[int, int, int]  # first, stop, first of theirs


class TagMap:
    __slots__ = ("_pieces", "count")

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self.count = 0

    def add(self, first: int, stop: int, theirs: int) -> None:
        at = bisect_left(self._pieces, (first,))
        self.count += stop - first
        if at:
            left, right, other = self._pieces[at - 1]
            if right == first and other + right - left == theirs:
                self._pieces[at - 1] = (left, stop, other)
                return
        self._pieces.insert(at, (first, stop, theirs))

    def take(self, ranges: Sequence[TagRange]) -> list[TagRange]:
        """Take out what there is of these tags of ours; theirs."""
        found = []
        for first, stop in ranges:
            at = max(bisect_right(self._pieces, first, key=_first_of) - 1, 0)
            while at < len(self._pieces) and self._pieces[at][0] < stop:
                left, right, other = self._pieces[at]
                start, end = max(left, first), min(right, stop)
                if start >= end:
                    at += 1
                    continue
                self.count -= end - start
                found.append((other + start - left, other + end - left))
                rest = [(left, start, other), (end, right, other + end - left)]
                kept = [piece for piece in rest if piece[0] < piece[1]]
                self._pieces[at : at + 1] = kept
                at += len(kept)
        return found

    def take_all(self) -> list[TagRange]:
        """Theirs, of all that there are."""
        theirs = [(other, other + stop - first) for first, stop, other in self._pieces]
        self._pieces, self.count = [], 0
        return theirs


def _first_of(piece: _Piece) -> int:
    return piece[0]
