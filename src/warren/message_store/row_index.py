"""The index over rows of the snapshot store: counts in memory, places that changed in storage 3.

    storage 3     unit id u64, big-endian → where it is now, in the words of `format`

A unit that the collector has moved is remembered by a row, however many there are, and costs no memory; a start reads
none of them. Counts are of units that runs of this process share: after a start nobody needs them, for whether a unit
is alive is asked of the rows of its holders. A row goes with the file it points into, when that is collected.

Always true: `move` returns when its rows are durable, so what was moved may go from where it was. Only the collector,
one at a time, moves and deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from warren.base.ids import Epoch, Lsn
from warren.message_store.index import BodyMove, IndexEntry
from warren.message_store.memory_index import MemoryIndex

MOVED_STORAGE = 3

Row = tuple[bytes, bytes | None]  # key and value; None: the row goes
ReadRows = Callable[[Sequence[bytes]], Sequence[bytes | None]]  # reads what was written, once `wait` has returned


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
        told = [unit for (unit, _), row, is_gone in zip(seen, rows, gone, strict=True) if is_gone and row is not None]
        if told:
            self._wait(self._write([(row_key(unit), None) for unit in told]))
        return gone

    def _is_deleted(self, unit: Lsn, seen: IndexEntry, row: bytes | None) -> bool:
        if self._counted.look_up(unit) is not None:
            return self._counted.delete_object([(unit, seen)])[0]
        return row is not None and IndexEntry(1, row) == seen

    def facts(self) -> Mapping[str, int]:
        return self._counted.facts()


def row_key(unit: Lsn) -> bytes:
    return unit.to_bytes(8, "big")
