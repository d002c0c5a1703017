"""Flying writes: contents that were submitted and are not written yet.

    submit q1 ─┐
    submit q2 ─┼─▶ flying: contents, who holds them ──before_end──▶ written once, each holder's run told where
    submit q3 ─┘                                    ──nobody wants them any more──▶ cancelled: not a byte

A publication flies once, however many queues submit it. Those who submit it in one `Changes` end together; if another
`Changes` ends first, it writes for all who have submitted so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from warren.base.ids import Epoch, FileNumber
from warren.base.runs import QueuePlace, Run, Sizes

HeldRun = tuple[QueuePlace, Run]


class IndexBatchParticipant(Protocol):
    """Somebody who writes elsewhere and ends together with changes. (queue_index/changes.py says the same.)"""

    def before_end(self, runs: Sequence[HeldRun]) -> None: ...

    def after_end(self, epoch: Epoch) -> None: ...

    def aborted(self) -> None: ...


class JoinedBodies(Protocol):
    """What is used of changes."""

    def join(self, participant: IndexBatchParticipant) -> None: ...


class Participation:
    """What one `Changes` has to do with the store."""

    __slots__ = ("files", "flying", "writes_from")

    def __init__(self) -> None:
        self.flying: dict[object, list[Run]] = {}  # by publication: the runs that these changes gave it
        self.writes_from: FileNumber | None = None  # it is writing now, into this file or later ones
        self.files: set[FileNumber] = set()  # that hold contents of its runs


class PendingWrites:
    """Contents on their way."""

    __slots__ = ("contents", "held", "sizes", "stored")

    def __init__(self, contents: Sequence[bytes], sizes: Sizes) -> None:
        self.contents = contents
        self.sizes = sizes
        self.held: dict[Run, tuple[QueuePlace, Participation]] = {}  # it is not written for these yet
        self.stored: dict[Run, bytes] = {}  # it is for these: where
