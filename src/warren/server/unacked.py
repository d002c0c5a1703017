"""Unacked deliveries of a channel: delivery tags, in ranges.

    delivery tags   1 … 500     ▶ queue 7, its tags 93 … 592
                    501 … 501   ▶ queue 9, its tag 4

A range is what was delivered together. An ack removes whole ranges from the front while clients settle in order, and
splits a range otherwise. There is no object per message.

Ranges are stored in buckets of 1,024 tags, and cut at their edges: removing one from anywhere among a million moves at
most a thousand references.

`OldestDelivery` says how long the oldest of them waits, without a time for each: now and then it notes the next tag.

    noted    at 0 s: tag 1 · at 60 s: tag 40 · at 120 s: tag 97       the oldest unacked is 55: delivered by 120 s

Invariants: tags only grow; ranges do not overlap, and are sorted by tag. An unknown tag is refused before anything of
its range is removed (AMQP: 406).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from warren.base.errors import Refused

Holder = TypeVar("Holder")
BITS = 10  # a bucket holds 1 << BITS delivery tags
_ANY_LENGTH = 1 << 62


class UnknownTag(Refused):
    def __init__(self, tag: int) -> None:
        super().__init__(f"unknown delivery tag {tag}")
        self.tag = tag


class UnackedRange(NamedTuple, Generic[Holder]):
    """Messages of one delivery."""

    first: int  # delivery tag
    length: int
    tag: int  # of the queue, for the first message
    holder: Holder  # source of the delivery, defined by the caller


class OldestDelivery:
    """Of one channel."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: list[tuple[int, int]] = []  # time, next tag; only those above the oldest tag

    def waited_ns(self, tag: int, next_tag: int, now_ns: int, step_ns: int) -> int:
        """The time since the delivery of the oldest unacked tag, at least. `step_ns`: between two notes; the result may
        be too short by so much."""
        noted = self._noted
        while noted and noted[0][1] <= tag:
            noted.pop(0)
        if not noted or (noted[-1][1] < next_tag and now_ns - noted[-1][0] >= step_ns):
            noted.append((now_ns, next_tag))
        return now_ns - noted[0][0]

    def clear(self) -> None:
        self._noted.clear()


class Unacked(Generic[Holder]):
    __slots__ = ("_buckets", "_low", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, list[UnackedRange[Holder]]] = {}  # by number; none is empty
        self._low = 0  # no bucket has a lower number
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, first: int, count: int, tag: int, holder: Holder) -> None:
        self.count += count
        while count:
            number = first >> BITS
            room = (number + 1 << BITS) - first
            length = count if count <= room else room
            piece = UnackedRange(first, length, tag, holder)
            bucket = self._buckets.get(number)
            if bucket is None:
                self._buckets[number] = [piece]
            else:
                bucket.append(piece)
            first, count, tag = first + length, count - length, tag + length

    def oldest(self) -> UnackedRange[Holder] | None:
        return self._buckets[min(self._buckets)][0] if self._buckets else None

    def pieces(self) -> list[UnackedRange[Holder]]:
        return [piece for number in sorted(self._buckets) for piece in self._buckets[number]]

    def take_all(self) -> list[UnackedRange[Holder]]:
        removed = self.pieces()
        self._buckets, self.count = {}, 0
        return removed

    def take_to(self, tag: int) -> list[UnackedRange[Holder]]:
        """Remove everything up to a tag, which must be unacked; 0 removes everything."""
        if tag == 0:
            return self.take_all()
        number = tag >> BITS
        bucket, at = self._find(tag)
        removed: list[UnackedRange[Holder]] = []
        while self._low < number:  # over all calls, each number is visited once
            removed += self._buckets.pop(self._low, ())
            self._low += 1
        last = bucket[at]
        removed += bucket[:at]
        upto = tag + 1 - last.first
        removed.append(last._replace(length=upto))
        rest = [UnackedRange(last.first + upto, last.length - upto, last.tag + upto, last.holder)]
        bucket[: at + 1] = rest if upto < last.length else []
        if not bucket:
            del self._buckets[number]
        self.count -= sum([piece.length for piece in removed])
        return removed

    def take(self, tags: Sequence[int], removed: list[UnackedRange[Holder]]) -> None:
        """Remove these tags, and append their ranges to `removed`. The first unknown tag raises `UnknownTag`; the tags
        before it are removed, as if they had arrived alone."""
        at = 0
        while at < len(tags):
            first, stop = tags[at], at + 1
            while stop < len(tags) and tags[stop] == first + stop - at:
                stop += 1
            self._take_range(first, first + stop - at, removed)
            at = stop

    def _take_range(self, first: int, stop: int, removed: list[UnackedRange[Holder]]) -> None:
        while first < stop:
            bucket, at = self._find(first)
            piece = bucket[at]
            start = first - piece.first
            count = min(stop - first, piece.length - start)
            removed.append(UnackedRange(first, count, piece.tag + start, piece.holder))
            behind = piece.length - start - count
            rest = [piece._replace(length=start)] if start else []
            if behind:
                rest.append(UnackedRange(first + count, behind, piece.tag + start + count, piece.holder))
            bucket[at : at + 1] = rest
            if not bucket:
                del self._buckets[first >> BITS]
            self.count -= count
            first += count

    def _find(self, tag: int) -> tuple[list[UnackedRange[Holder]], int]:
        """The range with this tag: its bucket, and the position there."""
        bucket = self._buckets.get(tag >> BITS)
        if bucket is None:
            raise UnknownTag(tag)
        at = bisect_right(bucket, (tag, _ANY_LENGTH)) - 1
        if at < 0 or tag >= bucket[at].first + bucket[at].length:
            raise UnknownTag(tag)
        return bucket, at
