"""Timelines, and the mapping between epochs and wall time.

A timeline is a random 64-bit id. A new one is created with a store, when a checkpoint is opened as a store
(log/checkpoint), and when a repair goes back to an epoch. A copy of a directory keeps its timeline, also when it
replaces the original. The ancestry records at which epoch each earlier timeline was left. Epoch numbers keep rising
across a fork, so (timeline, epoch) is unique; a reader whose epoch is on an abandoned branch is refused with the epoch
of the fork.

Wall time is recorded in a closing block at most every 100 ms, with a monotone companion that never goes back when the
clock is set. `as of T` is the last epoch whose monotone wall time is ≤ T.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from warren.base.environment import Clock
from warren.base.errors import Refused
from warren.base.ids import Epoch, TimelineId


@dataclass(frozen=True, slots=True)
class Ancestor:
    timeline: TimelineId
    fork_epoch: Epoch  # the last epoch taken over from it


@dataclass(frozen=True, slots=True)
class Timeline:
    id: TimelineId
    ancestry: tuple[Ancestor, ...] = ()  # oldest first

    def fork(self, new: TimelineId, at: Epoch) -> Timeline:
        return Timeline(new, (*self.ancestry, Ancestor(self.id, at)))

    def admit(self, timeline: TimelineId, epoch: Epoch) -> None:
        """Refuse a reader whose (timeline, epoch) is not part of this history."""
        if timeline == self.id:
            return
        for ancestor in self.ancestry:
            if ancestor.timeline == timeline:
                if epoch <= ancestor.fork_epoch:
                    return
                raise Refused(
                    f"epoch {epoch} of timeline {timeline:016x} was abandoned: this store left it "
                    f"at epoch {ancestor.fork_epoch}",
                    f"start again from epoch {ancestor.fork_epoch} of timeline {self.id:016x}",
                )
        raise Refused(
            f"timeline {timeline:016x} is not part of this store's past (timeline {self.id:016x})",
            "it belongs to another store",
        )


MARK_INTERVAL_NS = 100_000_000


class WallMarks:
    """Decides which closing blocks contain the time."""

    def __init__(self, clock: Clock, monotone_ns: int = 0) -> None:
        self._clock = clock
        self._monotone_ns = monotone_ns
        self._marked_at: int | None = None
        self._wall_ns = monotone_ns

    @property
    def wall_ns(self) -> int:
        """The wall time of the last mark; before the first mark of this process, the one that was recovered."""
        return self._wall_ns

    @property
    def monotone_ns(self) -> int:
        return self._monotone_ns

    def next_mark(self) -> tuple[int, int]:
        """(wall, monotone wall) for the epoch being closed, or (0, 0) if the last mark is fresh."""
        now = self._clock.monotonic_ns()
        if self._marked_at is not None and now - self._marked_at < MARK_INTERVAL_NS:
            return 0, 0
        self._marked_at = now
        wall = self._wall_ns = self._clock.wall_ns()
        self._monotone_ns = max(self._monotone_ns + 1, wall)
        return wall, self._monotone_ns


def epoch_at(marks: Iterable[tuple[int, Epoch]], wall_ns: int) -> Epoch | None:
    """The last epoch with a monotone wall time ≤ `wall_ns`, from (monotone wall, epoch) pairs in epoch order. Epochs
    between two marks belong to the later mark: until then they may have been open."""
    pairs = list(marks)
    index = bisect_right([monotone for monotone, _ in pairs], wall_ns)
    return pairs[index - 1][1] if index else None
