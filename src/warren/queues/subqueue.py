"""One of the four sub-queues: slices in a row, with their counts.

    first ▸ [ slice ][ slice ][ slice ] ◂ last            count, bytes, and how much of it has contents in memory

The length is known at once, however long it is (VQ-08): every move adds or takes a slice and corrects four numbers.
A sub-queue owns its slices: it shortens one in place when only a part is taken. So nobody else may hold them, and what
is taken out belongs to whoever took it. Lists of contents are never changed, only replaced: they may be shared.

Always true: slices stand in the order of sequence ids and none is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from warren.base.ids import SequenceId
from warren.base.runs import Run, Slice

CUT_MESSAGES = 1024  # longer slices are cut to this before a few messages are taken from one: copying them costs


class SubQueue:
    __slots__ = ("count", "ram_bytes", "ram_count", "size_bytes", "slices")

    def __init__(self) -> None:
        self.slices: deque[Slice] = deque()
        self.count = 0
        self.size_bytes = 0
        self.ram_count = 0  # of those that have contents
        self.ram_bytes = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)

    @property
    def first(self) -> Slice:
        return self.slices[0]

    @property
    def last(self) -> Slice:
        return self.slices[-1]

    def append(self, slice_: Slice) -> None:
        self.slices.append(slice_)
        self._count(slice_, 1)

    def appendleft(self, slice_: Slice) -> None:
        self.slices.appendleft(slice_)
        self._count(slice_, 1)

    def extend(self, slices: Iterable[Slice]) -> None:
        for slice_ in slices:
            self.append(slice_)

    def take_first(self, count: int) -> Slice:
        """The first slice, or as many messages of it as asked for."""
        slice_ = self.slices[0]
        size = slice_.stop - slice_.start
        if count >= size:
            taken = self.slices.popleft()
        else:
            if size > 2 * CUT_MESSAGES > 2 * count and slice_.contents is not None:
                self.slices[0], rest = slice_.split(CUT_MESSAGES)
                self.slices.insert(1, rest)
                slice_ = self.slices[0]
            taken = _cut_first(slice_, count)
        self._count(taken, -1)
        return taken

    def take_last(self, count: int) -> Slice:
        """The last slice, or as many messages of its end as asked for."""
        slice_ = self.slices[-1]
        if count >= slice_.stop - slice_.start:
            taken = self.slices.pop()
        else:
            self.slices[-1], taken = slice_.split(len(slice_) - count)
        self._count(taken, -1)
        return taken

    def insert(self, slice_: Slice) -> None:
        """Put one where its sequence ids belong."""
        first, slices = slice_.first, self.slices
        if not slices or slices[-1].first < first:
            slices.append(slice_)
        elif first < slices[0].first:
            slices.appendleft(slice_)
        else:
            slices.insert(bisect_left(slices, first, key=first_of), slice_)
        self._count(slice_, 1)

    def let_go(self, may_go: Callable[[Run], bool]) -> int:
        """Forget contents of those runs that may; of how many messages."""
        before = self.ram_count
        for slice_ in self.slices:
            if slice_.contents is not None and may_go(slice_.run):
                slice_.contents = None
                self.ram_count -= len(slice_)
                self.ram_bytes -= slice_.size_bytes
        return before - self.ram_count

    def take_all(self) -> list[Slice]:
        slices = list(self.slices)
        self.slices.clear()
        self.count = self.size_bytes = self.ram_count = self.ram_bytes = 0
        return slices

    def _count(self, slice_: Slice, sign: int) -> None:
        count, size_bytes = (slice_.stop - slice_.start) * sign, slice_.size_bytes * sign
        self.count += count
        self.size_bytes += size_bytes
        if slice_.contents is not None:
            self.ram_count += count
            self.ram_bytes += size_bytes


def first_of(slice_: Slice) -> SequenceId:
    return SequenceId(slice_.run.first + slice_.start)


def _cut_first(slice_: Slice, count: int) -> Slice:
    """Its first messages; the slice itself keeps the others."""
    contents = slice_.contents
    middle = slice_.start + count
    taken = Slice(slice_.run, slice_.start, middle, None if contents is None else contents[:count])
    slice_.start = middle
    slice_.size_bytes -= taken.size_bytes
    if contents is not None:
        slice_.contents = contents[count:]
    return taken
