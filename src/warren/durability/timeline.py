"""Timelines: which histories a store has been part of.

A timeline is a random 64-bit id. A new one is created with a store, when a checkpoint is opened as a store
(log/checkpoint), and when a repair goes back to an epoch. A copy of a directory keeps its timeline, also when it
replaces the original. The ancestry records at which epoch each earlier timeline was left. Epoch numbers keep rising
across a fork, so (timeline, epoch) is unique; a reader whose epoch is on an abandoned branch is refused with the epoch
of the fork.
"""

from __future__ import annotations

from dataclasses import dataclass

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
