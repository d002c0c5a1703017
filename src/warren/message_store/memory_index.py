"""The index in memory: a dict. Every entry costs memory, which `facts` tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warren.base.ids import Lsn
from warren.base.threads import Condition
from warren.message_store.index import BodyMove, IndexEntry

ENTRY_BYTES = 180  # of the dict, the number, the tuple and the head of the location; measured by a test


class MemoryIndex:
    def __init__(self, lock: Condition) -> None:
        self._lock = lock  # among those who change it: looking takes no lock, an entry is replaced as a whole
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
            assert entry.references + by >= 0, "nobody lets go of what he does not hold"
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
