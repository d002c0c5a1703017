"""Reading contents, straight from the files.

    stored ──▶ units ──▶ places ──▶ heap.read ──Gone?──▶ the index knows where the unit is now ──▶ heap.read

Nobody is asked and nothing is locked but the heap's own small tables: a reader needs what its run says, and the index
only if the collector has moved the unit and its old file has gone. Of a unit only the chunks that hold wanted bytes are
read. What is damaged is said, with file and offset and what it hits; other units are served.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise

from warren.base.errors import Damage, Gone, Misuse
from warren.base.ids import Lsn
from warren.base.runs import Sizes
from warren.message_store.format import Body, BodyPlace, Stored, decode_stored
from warren.message_store.heap import BodyFiles
from warren.message_store.index import LocationIndex
from warren.message_store.units import edges_of, pieces_of


class LocatedBody(Stored):
    """Where one unit is now."""

    __slots__ = ()

    @property
    def unit(self) -> Body:
        return self.units[0]


class BodyReader:
    def __init__(self, heap: BodyFiles, index: LocationIndex) -> None:
        self._heap = heap
        self._index = index

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        """Contents start … stop - 1 of a run."""
        told = decode_stored(stored)
        found: list[bytes] = []
        for unit in told.units:
            first, last = max(start, unit.first), min(stop, unit.first + unit.messages)
            if first < last:
                located = LocatedBody(told.chunk_bytes, (unit,))
                found += self._read_unit(located, sizes, first - unit.first, last - unit.first)
        if len(found) != max(0, stop - start):
            raise Misuse(f"messages {start} … {stop} of a run were asked for, {len(found)} of them are stored")
        return found

    def check(self, stored: bytes) -> None:
        """Read every unit of a run, one record at a time."""
        told = decode_stored(stored)
        for unit in told.units:
            located = LocatedBody(told.chunk_bytes, (unit,))
            try:
                for _ in self.pieces(located):
                    pass
            except (Gone, Damage) as error:
                moved = location_of(self._index, unit.id)
                if moved is None or moved.unit.places == unit.places:
                    raise self._lost(unit, 0, unit.messages, error) from error
                for _ in self.pieces(moved):
                    pass

    def pieces(self, located: LocatedBody) -> Iterator[memoryview]:
        """The bytes of a whole unit, record by record, for whoever writes them again."""
        for (begin, end), place in self._spans(located):
            yield self._heap.read(place, end - begin, is_kept=False)

    def _read_unit(self, located: LocatedBody, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        """From where the run says, or from where the unit is now."""
        while True:
            try:
                return self._read_from(located, sizes, start, stop)
            except (Gone, Damage) as error:
                moved = location_of(self._index, located.unit.id)
                if moved is None or moved.unit.places == located.unit.places:
                    raise self._lost(located.unit, start, stop, error) from error
                located = moved

    def _read_from(self, located: LocatedBody, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        unit = located.unit
        wanted = ((1 << (stop - start)) - 1) << start
        if unit.kept & wanted != wanted:
            raise Gone("the collector has dropped some of these messages: no run wanted them any more")
        edges = edges_of(unit, sizes)
        begin, end = int(edges[start]), int(edges[stop])
        if edges[-1] != unit.size_bytes:
            raise Damage(f"the run says that it has {edges[-1]} bytes there, the store that it has {unit.size_bytes}")
        raw = self._bytes(located, begin, end)
        if stop - start == 1:
            return [bytes(raw)]
        places = (edges[start : stop + 1] - begin).tolist()
        return [bytes(raw[a:b]) for a, b in pairwise(places)]

    def _bytes(self, located: LocatedBody, begin: int, end: int) -> bytes | memoryview:
        """Some bytes of a unit; of the chunks it has only those are read that hold some of them."""
        spans = self._spans(located)
        if len(spans) == 1:
            return self._heap.read(located.unit.places[0], located.unit.size_bytes)[begin:end]
        joined = BytesIO()  # grows in place: no chunk is in memory twice
        for (low, high), place in spans:
            if low < end and begin < high:
                chunk = self._heap.read(place, high - low, is_kept=False)
                joined.write(chunk[max(begin - low, 0) : end - low])
        return joined.getvalue()

    def _spans(self, located: LocatedBody) -> list[tuple[tuple[int, int], BodyPlace]]:
        unit = located.unit
        spans = pieces_of(unit.size_bytes, located.chunk_bytes)
        if len(spans) != len(unit.places):
            raise Damage(f"{unit.size_bytes} bytes should be {len(spans)} records, {len(unit.places)} are told of")
        return list(zip(spans, unit.places, strict=True))

    def _lost(self, unit: Body, start: int, stop: int, error: Gone | Damage) -> Damage:
        """Say what is hit."""
        which = f"messages {unit.first + start} … {unit.first + stop - 1} of a run"
        path, offset = self._heap.path(unit.places[0].file), unit.places[0].offset
        what = error.what
        if isinstance(error, Damage) and error.path:
            path, offset, what = error.path, error.offset, error.bare
        return Damage(f"{which} (unit {unit.id:#x}) cannot be read: {what}", path, offset)


def location_of(index: LocationIndex, unit: Lsn) -> LocatedBody | None:
    """Where a unit is now, if not where its run says."""
    entry = index.look_up(unit)
    return None if entry is None else LocatedBody(*decode_stored(entry.location))
