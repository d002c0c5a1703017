"""The queue index for backing queues, with somebody who hears of damage: what cannot be read is passed over and told.

A backing queue passes over runs that cannot be read, and serves the others. That is right for whoever waits for the
next message; an operator has to know which ones are missing, and where the damage is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from warren.base.errors import Damage
from warren.base.ids import Epoch, SequenceId
from warren.base.runs import QueuePlace
from warren.queue_index.changes import NOTHING
from warren.queue_index.format import Counters
from warren.queue_index.index import IndexedRun, OnDamage, Piece, QueueIndex

Tell = Callable[[QueuePlace, SequenceId, Damage], None]


class DamageReportingIndex:
    """Is a `queues.contents.IndexSource`."""

    def __init__(self, index: QueueIndex, tell: Tell) -> None:
        self._index = index
        self._tell = tell

    def recover(self, place: QueuePlace, newest: Epoch = NOTHING, on_damage: OnDamage | None = None) -> Counters:
        return self._index.recover(place, newest, self._told(place, on_damage))

    def scan(
        self,
        place: QueuePlace,
        first: SequenceId,
        stop: SequenceId,
        newest: Epoch,
        runs_max: int | None = None,
        messages_max: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[IndexedRun]:
        return self._index.scan(place, first, stop, newest, runs_max, messages_max, self._told(place, on_damage))

    def contents_of(self, place: QueuePlace, pieces: Sequence[Piece]) -> list[list[bytes]]:
        return self._index.contents_of(place, pieces)

    def _told(self, place: QueuePlace, on_damage: OnDamage | None) -> OnDamage | None:
        """None stays None: whoever does not pass over damage gets it himself."""
        if on_damage is None:
            return None

        def told(first: SequenceId, damage: Damage) -> None:
            self._tell(place, first, damage)
            on_damage(first, damage)

        return told
