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
from warren.message_store.format import Holder, Unit, decode_stored, every
from warren.message_store.index import Entry, LocationIndex
from warren.message_store.reading import Located


class Held(NamedTuple):
    """What the rows of a holder say; everything durable must be in them."""

    stored: bytes
    sizes: Sizes
    gone: int  # bitmap of the run's messages that are gone


class Liveness(Protocol):
    def held(self, holders: Sequence[Holder]) -> Sequence[Held | None]:
        """None: there is no such run."""
        ...


class Alive(NamedTuple):
    """A unit that is wanted: where it is now, and what of it."""

    located: Located
    wanted: int  # bitmap of its messages that are alive
    sizes: Sizes | None  # of the run's messages, by their place in it; None: nobody knows, it is whole
    holders: tuple[Holder, ...]  # that are alive
    entry: Entry | None


class Asked(NamedTuple):
    unit: Lsn
    holders: tuple[Holder, ...]


class Judge(Protocol):
    def judge(self, asked: Sequence[Asked]) -> list[Alive | None]:
        """Of each unit what is alive of it; None: nothing."""
        ...


class HolderJudge:
    def __init__(self, liveness: Liveness, index: LocationIndex) -> None:
        self._liveness = liveness
        self._index = index

    def judge(self, asked: Sequence[Asked]) -> list[Alive | None]:
        every_holder = [holder for each in asked for holder in each.holders]
        answers = iter(self._liveness.held(every_holder))
        entries = self._index.look_up_many([each.unit for each in asked])
        named = _Named()
        return [
            _alive(each, [(holder, next(answers)) for holder in each.holders], entry, named)
            for each, entry in zip(asked, entries, strict=True)
        ]


class CountJudge:
    def __init__(self, index: LocationIndex) -> None:
        self._index = index

    def judge(self, asked: Sequence[Asked]) -> list[Alive | None]:
        return [_counted(entry) for entry in self._index.look_up_many([each.unit for each in asked])]


def _alive(
    asked: Asked, told: Sequence[tuple[Holder, Held | None]], entry: Entry | None, named: _Named
) -> Alive | None:
    wanted, holders, found = 0, [], None
    for holder, held in told:
        unit, chunk_bytes = (None, 0) if held is None else named.unit(held.stored, asked.unit)
        if held is None or unit is None:
            continue
        of_holder = every(unit.messages) & ~(held.gone >> unit.first)
        if of_holder:
            wanted |= of_holder
            holders.append(holder)
            found = found or (Located(chunk_bytes, (unit,)), held.sizes)
    if found is None:
        return None
    located, sizes = found
    if entry is not None:
        now = decode_stored(entry.location)
        located = Located(now.chunk_bytes, now.units)
    return Alive(located, wanted & located.unit.kept, sizes, tuple(holders), entry)


class _Named:
    """Which units runs name; of a run with many units they are looked for again and again."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[dict[Lsn, Unit], int]] = {}

    def unit(self, stored: bytes, unit: Lsn) -> tuple[Unit | None, int]:
        if not stored:
            return None, 0
        if stored not in self._known:
            told = decode_stored(stored)
            self._known[stored] = {each.id: each for each in told.units}, told.chunk_bytes
        units, chunk_bytes = self._known[stored]
        return units.get(unit), chunk_bytes


def _counted(entry: Entry | None) -> Alive | None:
    if entry is None or not entry.references:
        return None
    located = Located(*decode_stored(entry.location))
    return Alive(located, located.unit.kept, None, (), entry)
