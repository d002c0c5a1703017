"""Whether a unit is alive, and which of its messages: asked of whoever knows.

    persistent     the rows of its holders: a unit is alive if a run that names it still has messages     HolderJudge
    transient      the index: a unit is alive while somebody counts on it                                 CountJudge

No count on disk can be wrong, since there is none. A record's key names the runs that were to hold it; a run that never
came, or was given the sequence id of one that never came, does not name the unit, and so does not hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from warren.base.ids import Lsn
from warren.base.runs import Sizes
from warren.message_store.format import Body, Reference, decode_stored, every
from warren.message_store.index import IndexEntry, LocationIndex
from warren.message_store.reading import LocatedBody


class HeldBodies(NamedTuple):
    """What the rows of a holder say; everything durable must be in them."""

    stored: bytes
    sizes: Sizes
    gone: int  # bitmap of the run's messages that are gone


class Liveness(Protocol):
    def held(self, holders: Sequence[Reference]) -> Sequence[HeldBodies | None]:
        """None: there is no such run."""
        ...


class LiveBodies(NamedTuple):
    """A unit that is wanted: where it is now, and what of it."""

    located: LocatedBody
    wanted: int  # bitmap of its messages that are alive
    sizes: Sizes | None  # of the run's messages, by their place in it; None: nobody knows, it is whole
    holders: tuple[Reference, ...]  # that are alive
    entry: IndexEntry | None


class LivenessQuestion(NamedTuple):
    unit: Lsn
    holders: tuple[Reference, ...]


class LivenessCheck(Protocol):
    def judge(self, asked: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        """Of each unit what is alive of it; None: nothing."""
        ...


class ReferenceCheck:
    def __init__(self, liveness: Liveness, index: LocationIndex) -> None:
        self._liveness = liveness
        self._index = index

    def judge(self, asked: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        every_holder = [holder for each in asked for holder in each.holders]
        answers = iter(self._liveness.held(every_holder))
        entries = self._index.look_up_many([each.unit for each in asked])
        named = _Named()
        return [
            _alive(each, [(holder, next(answers)) for holder in each.holders], entry, named)
            for each, entry in zip(asked, entries, strict=True)
        ]


class CountCheck:
    def __init__(self, index: LocationIndex) -> None:
        self._index = index

    def judge(self, asked: Sequence[LivenessQuestion]) -> list[LiveBodies | None]:
        return [_counted(entry) for entry in self._index.look_up_many([each.unit for each in asked])]


def _alive(
    asked: LivenessQuestion,
    told: Sequence[tuple[Reference, HeldBodies | None]],
    entry: IndexEntry | None,
    named: _Named,
) -> LiveBodies | None:
    wanted, holders, found = 0, [], None
    for holder, held in told:
        unit, chunk_bytes = (None, 0) if held is None else named.unit(held.stored, asked.unit)
        if held is None or unit is None:
            continue
        of_holder = every(unit.messages) & ~(held.gone >> unit.first)
        if of_holder:
            wanted |= of_holder
            holders.append(holder)
            found = found or (LocatedBody(chunk_bytes, (unit,)), held.sizes)
    if found is None:
        return None
    located, sizes = found
    if entry is not None:
        now = decode_stored(entry.location)
        located = LocatedBody(now.chunk_bytes, now.units)
    return LiveBodies(located, wanted & located.unit.kept, sizes, tuple(holders), entry)


class _Named:
    """Which units runs name; of a run with many units they are looked for again and again."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[dict[Lsn, Body], int]] = {}

    def unit(self, stored: bytes, unit: Lsn) -> tuple[Body | None, int]:
        if not stored:
            return None, 0
        if stored not in self._known:
            told = decode_stored(stored)
            self._known[stored] = {each.id: each for each in told.units}, told.chunk_bytes
        units, chunk_bytes = self._known[stored]
        return units.get(unit), chunk_bytes


def _counted(entry: IndexEntry | None) -> LiveBodies | None:
    if entry is None or not entry.references:
        return None
    located = LocatedBody(*decode_stored(entry.location))
    return LiveBodies(located, located.unit.kept, None, (), entry)
