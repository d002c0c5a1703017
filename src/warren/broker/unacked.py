"""What a channel was given and has not settled: delivery tags, in ranges.

    delivery tags   1 … 500     ▶ queue 7, its tags 93 … 592
                    501 … 501   ▶ queue 9, its tag 4

A piece is what was delivered together. Acknowledging takes whole pieces from the front as long as clients settle in
order, and splits one where they do not. Nothing is made for each message.

Always true: tags only grow, pieces do not overlap and stand in the order of tags. What is not there is refused before
anything of it is taken (AMQP: 406).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from warren.base.errors import Refused

Holder = TypeVar("Holder")
_SHORTEN = 512  # pieces taken from the front before the lists are cut


class UnknownTag(Refused):
    def __init__(self, tag: int) -> None:
        super().__init__(f"unknown delivery tag {tag}")
        self.tag = tag


class Piece(NamedTuple, Generic[Holder]):
    """Some messages of one delivery."""

    first: int  # delivery tag
    length: int
    tag: int  # of the first, as the queue calls it
    holder: Holder  # where they came from, in the caller's words


class Unacked(Generic[Holder]):
    __slots__ = ("_firsts", "_from", "_pieces", "count")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._pieces: list[Piece[Holder]] = []
        self._from = 0  # what stands before was taken
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, first: int, count: int, tag: int, holder: Holder) -> None:
        self._firsts.append(first)
        self._pieces.append(Piece(first, count, tag, holder))
        self.count += count

    def pieces(self) -> list[Piece[Holder]]:
        return self._pieces[self._from :]

    def take_all(self) -> list[Piece[Holder]]:
        taken = self.pieces()
        self._firsts, self._pieces, self._from, self.count = [], [], 0, 0
        return taken

    def take_to(self, tag: int) -> list[Piece[Holder]]:
        """Everything up to a tag, which must be there; 0 is everything there is."""
        if tag == 0:
            return self.take_all()
        at = self._at(tag)
        taken = self._pieces[self._from : at]
        last = self._pieces[at]
        upto = tag + 1 - last.first
        taken.append(last._replace(length=upto))
        self._from = at
        if upto == last.length:
            self._from += 1
        else:
            self._put(at, Piece(last.first + upto, last.length - upto, last.tag + upto, last.holder))
        self._shorten()
        self.count -= sum([piece.length for piece in taken])
        return taken

    def take(self, tags: Sequence[int], taken: list[Piece[Holder]]) -> None:
        """Just these, into the list. At the first that is not there it ends in a refusal: those before it are taken, as
        if they had come alone."""
        at = 0
        while at < len(tags):
            first, stop = tags[at], at + 1
            while stop < len(tags) and tags[stop] == first + stop - at:
                stop += 1
            self._take_range(first, first + stop - at, taken)
            at = stop

    def _take_range(self, first: int, stop: int, taken: list[Piece[Holder]]) -> None:
        while first < stop:
            at = self._at(first)
            piece = self._pieces[at]
            start = first - piece.first
            count = min(stop - first, piece.length - start)
            taken.append(Piece(first, count, piece.tag + start, piece.holder))
            behind = piece.length - start - count
            if start and behind:
                rest = Piece(first + count, behind, piece.tag + start + count, piece.holder)
                self._pieces.insert(at + 1, rest)
                self._firsts.insert(at + 1, rest.first)
                self._pieces[at] = piece._replace(length=start)
            elif start:
                self._pieces[at] = piece._replace(length=start)
            elif behind:
                self._put(at, Piece(first + count, behind, piece.tag + count, piece.holder))
            elif at == self._from:
                self._from += 1
            else:
                del self._pieces[at], self._firsts[at]
            self.count -= count
            first += count
        self._shorten()

    def _at(self, tag: int) -> int:
        """The piece that this tag is in."""
        at = bisect_right(self._firsts, tag, self._from) - 1
        if at < self._from or tag >= self._pieces[at].first + self._pieces[at].length:
            raise UnknownTag(tag)
        return at

    def _put(self, at: int, piece: Piece[Holder]) -> None:
        self._pieces[at] = piece
        self._firsts[at] = piece.first

    def _shorten(self) -> None:
        if self._from > _SHORTEN:
            del self._firsts[: self._from], self._pieces[: self._from]
            self._from = 0
