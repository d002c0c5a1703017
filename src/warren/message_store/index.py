"""The index: how often a unit is held, and where it is if it is no longer where its run says.

    store   ── insert, add_references ──▶ ┌────────────────────────────────┐
    queues  ── look_up ─────────────────▶ │ unit id → references, location │
    GC      ── move, delete_object ─────▶ └────────────────────────────────┘

It is where queues, store and collector meet (S1). The location of a unit travels in the run that holds it, so most
units need no entry: one that is not here is held once, and lies where its run says. What is here is shared by several
runs, or was moved by the collector. So looking up what is not here is the usual case, and cheap.

Who may do what: only the store inserts and counts; the collector moves, which leaves the count alone, and removes an
entry only if it is still exactly what the collector saw; queues only look. Each of these happens whole, or not at all.
Another index can be put in: it must pass the suite in tests/message_store/index_suite.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from warren.base.ids import Lsn


class IndexEntry(NamedTuple):
    references: int
    location: bytes  # of the one unit, in the words of `format`


class BodyMove(NamedTuple):
    unit: Lsn
    old: bytes  # where it was when the collector looked
    new: bytes


class LocationIndex(Protocol):
    def look_up(self, unit: Lsn) -> IndexEntry | None:
        """None: held once, and where its run says."""
        ...

    def look_up_many(self, units: Sequence[Lsn]) -> list[IndexEntry | None]: ...

    def insert(self, unit: Lsn, entry: IndexEntry) -> None:
        """The store's: a unit that is shared, or of which nobody else keeps the location."""
        ...

    def add_references(self, unit: Lsn, by: int) -> int | None:
        """The store's: how many there are now; None: it has no entry, nothing was counted."""
        ...

    def move(self, moves: Sequence[BodyMove]) -> list[bool]:
        """The collector's: from here on units are found elsewhere, also after a crash if the heap survives one. One
        that is not where the collector saw it stays as it is."""
        ...

    def delete_object(self, seen: Sequence[tuple[Lsn, IndexEntry]]) -> list[bool]:
        """The collector's: remove entries that are still what was seen, and no others."""
        ...

    def facts(self) -> Mapping[str, int]:
        """What an operator may want to know of it; among it what its entries cost in memory."""
        ...
