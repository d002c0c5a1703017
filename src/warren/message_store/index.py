"""Location index: reference counts of units, and the location of units that are not where their run says.

    store      ── insert, add_references ──▶ ┌────────────────────────────────┐
    queues     ── look_up ─────────────────▶ │ unit id → references, location │
    collector  ── move, delete_object ─────▶ └────────────────────────────────┘

Queues, store and collector meet here (S1). A run has the location of its units, so most units need no entry: a unit
without one has one reference, and the location in its run. An entry is of a unit that several runs share, or that the
collector has moved. So looking up a unit without an entry is the usual case, and cheap.

Access: only the store inserts and counts; the collector moves units, which leaves the count alone, and removes an entry
only if it is unchanged since the collector read it; queues only look up. Each call is atomic. Another index can be
used: it must pass tests/message_store/index_suite.py.

`MemoryIndex` is a dict; `facts` has its memory. `RowIndex` has counts in memory, and moved units in storage 3:

    storage 3     unit id u64, big-endian → location, as in body_format

A moved unit is a row and costs no memory; a start reads none of them. Counts are of units that runs of this process
share: after a start they are not needed, since liveness is decided by the rows of the referencing runs. A row is
removed when the file it points into is collected.

Invariants: `RowIndex.move` returns when its rows are durable, so the old location may be released. Only the collector,
one thread at a time, moves and deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from warren.base.ids import Epoch, Lsn
from warren.base.threads import Condition


class IndexEntry(NamedTuple):
    references: int
    location: bytes  # of one unit, as in body_format


class BodyMove(NamedTuple):
    unit: Lsn
    old: bytes  # location that the collector read
    new: bytes


class LocationIndex(Protocol):
    def look_up(self, unit: Lsn) -> IndexEntry | None:
        """None: one reference, at the location in its run."""
        ...

    def look_up_many(self, units: Sequence[Lsn]) -> list[IndexEntry | None]: ...

    def insert(self, unit: Lsn, entry: IndexEntry) -> None:
        """For the store: a shared unit, or one whose location is in no run."""
        ...

    def add_references(self, unit: Lsn, by: int) -> int | None:
        """For the store: the new count; None: no entry, nothing was counted."""
        ...

    def move(self, moves: Sequence[BodyMove]) -> list[bool]:
        """For the collector: set new locations, also after a crash if the body files survive one. A unit whose
        location is not `old` stays as it is; its result is False."""
        ...

    def delete_object(self, seen: Sequence[tuple[Lsn, IndexEntry]]) -> list[bool]:
        """For the collector: remove entries that are unchanged since `seen`."""
        ...

    def facts(self) -> Mapping[str, int]:
        """Figures for operators, with the memory of the entries."""
        ...


ENTRY_BYTES = 180  # dict, number, tuple and head of the location; measured by a test


class MemoryIndex:
    def __init__(self, lock: Condition) -> None:
        self._lock = lock  # of writers: reads take no lock, an entry is replaced as a whole
        self._entries: dict[Lsn, IndexEntry] = {}
        self._location_bytes = 0

    def look_up(self, unit: Lsn) -> IndexEntry | None:
        return self._entries.get(unit)

    def look_up_many(self, units: Sequence[Lsn]) -> list[IndexEntry | None]:
        return [self._entries.get(unit) for unit in units]

    def insert(self, unit: Lsn, entry: IndexEntry) -> None:
        with self._lock:
            assert unit not in self._entries, "a unit is inserted once"
            self._set(unit, entry)

    def add_references(self, unit: Lsn, by: int) -> int | None:
        with self._lock:
            entry = self._entries.get(unit)
            if entry is None:
                return None
            assert entry.references + by >= 0, "references are released once"
            self._set(unit, IndexEntry(entry.references + by, entry.location))
            return entry.references + by

    def move(self, moves: Sequence[BodyMove]) -> list[bool]:
        return [self._move(each) for each in moves]

    def delete_object(self, seen: Sequence[tuple[Lsn, IndexEntry]]) -> list[bool]:
        return [self._delete(unit, entry) for unit, entry in seen]

    def facts(self) -> Mapping[str, int]:
        count = len(self._entries)
        return {"entries": count, "memory_bytes": count * ENTRY_BYTES + self._location_bytes}

    def _move(self, move: BodyMove) -> bool:
        with self._lock:
            entry = self._entries.get(move.unit)
            if entry is not None and entry.location != move.old:
                return False
            self._set(move.unit, IndexEntry(1 if entry is None else entry.references, move.new))
            return True

    def _delete(self, unit: Lsn, seen: IndexEntry) -> bool:
        with self._lock:
            if self._entries.get(unit) != seen:
                return False
            del self._entries[unit]
            self._location_bytes -= len(seen.location)
            return True

    def _set(self, unit: Lsn, entry: IndexEntry) -> None:
        before = self._entries.get(unit)
        self._location_bytes += len(entry.location) - (0 if before is None else len(before.location))
        self._entries[unit] = entry


MOVED_STORAGE = 3

Row = tuple[bytes, bytes | None]  # key and value; None: the row goes
ReadRows = Callable[
    [Sequence[bytes]], Sequence[bytes | None]
]  # must include what was written, once `wait` has returned


class RowIndex:
    def __init__(
        self,
        counted: MemoryIndex,
        read: ReadRows,
        write_moved: Callable[[Sequence[Row]], Epoch],
        wait: Callable[[Epoch], None],
    ) -> None:
        self._counted = counted
        self._read = read
        self._write = write_moved
        self._wait = wait

    def look_up(self, unit: Lsn) -> IndexEntry | None:
        return self._counted.look_up(unit) or self.look_up_many([unit])[0]

    def look_up_many(self, units: Sequence[Lsn]) -> list[IndexEntry | None]:
        found = self._counted.look_up_many(units)
        missing = [place for place, entry in enumerate(found) if entry is None]
        if missing:
            rows = self._read([row_key(units[place]) for place in missing])
            for place, row in zip(missing, rows, strict=True):
                found[place] = None if row is None else IndexEntry(1, row)
        return found

    def insert(self, unit: Lsn, entry: IndexEntry) -> None:
        self._counted.insert(unit, entry)

    def add_references(self, unit: Lsn, by: int) -> int | None:
        return self._counted.add_references(unit, by)

    def move(self, moves: Sequence[BodyMove]) -> list[bool]:
        before = self.look_up_many([each.unit for each in moves])
        is_there = [entry is None or entry.location == each.old for entry, each in zip(before, moves, strict=True)]
        going = [each for each, is_so in zip(moves, is_there, strict=True) if is_so]
        if going:
            self._wait(self._write([(row_key(each.unit), each.new) for each in going]))
            self._counted.move([each for each in going if self._counted.look_up(each.unit) is not None])
        return is_there

    def delete_object(self, seen: Sequence[tuple[Lsn, IndexEntry]]) -> list[bool]:
        rows = self._read([row_key(unit) for unit, _ in seen]) if seen else []
        gone = [self._is_deleted(unit, entry, row) for (unit, entry), row in zip(seen, rows, strict=True)]
        stored = [unit for (unit, _), row, is_gone in zip(seen, rows, gone, strict=True) if is_gone and row is not None]
        if stored:
            self._wait(self._write([(row_key(unit), None) for unit in stored]))
        return gone

    def _is_deleted(self, unit: Lsn, seen: IndexEntry, row: bytes | None) -> bool:
        if self._counted.look_up(unit) is not None:
            return self._counted.delete_object([(unit, seen)])[0]
        return row is not None and IndexEntry(1, row) == seen

    def facts(self) -> Mapping[str, int]:
        return self._counted.facts()


def row_key(unit: Lsn) -> bytes:
    return unit.to_bytes(8, "big")
