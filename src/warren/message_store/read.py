"""Reading and writing units: contents of a run as records of body files.

    contents    | c₀ | c₁ | c₂ |        large c₃        | c₄ | c₅ |
    units       |--- one unit --|-- start, chunk, chunk -|- one --|

Contents that are written together are joined up to 512 KiB; a larger one is its own unit and cut into chunks. So most
units are one record, one block and one read, and no content shares its chunks with others.

Reading:

    stored ──▶ units ──▶ places ──▶ body_files.read ──Gone?──▶ index: new location of the unit ──▶ body_files.read

A reader takes no lock but those of the body files' small tables: it needs `run.stored`, and the index only if the
collector has moved the unit and released its old file. Of a unit only the chunks with requested bytes are read. Damage
is reported with file, offset and the affected messages; other units are served.

Writing:

    one unit         Message-Start                       value: contents, joined
    a large content  Message-Start ◀─ Chunk ◀─ Chunk …   every chunk links back to the start by undo_prev

Starts of many units are appended together, so that small ones share a block. Chunks need their start's LSN and follow
it, one at a time: a large content is in memory once, besides the buffers of the body files. If a crash leaves a start
without its chunks no run names it, and the collector finds it dead.

Invariant: units are adjacent, and each has at least one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from warren.base.errors import Damage, Gone, Misuse
from warren.base.ids import Lsn
from warren.base.messages import Sizes
from warren.message_store.body_files import BodyFiles, Record
from warren.message_store.body_format import (
    CHUNK_BYTES,
    UNIT_MESSAGES_MAX,
    Body,
    BodyPlace,
    RecordKey,
    RecordKind,
    Reference,
    Stored,
    decode_stored,
    encode_key,
    every,
)
from warren.message_store.index import LocationIndex

Edges = npt.NDArray[np.int64]


class BodyPart(NamedTuple):
    """Messages that form one unit."""

    first: int
    messages: int
    size_bytes: int


def cut(sizes: Sizes, count: int, bytes_max: int = CHUNK_BYTES) -> list[BodyPart]:
    """Cut contents of these sizes into units."""
    edges = np.concatenate(([0], np.cumsum(of_messages(sizes, 0, count))))
    parts: list[BodyPart] = []
    first = 0
    while first < count:
        stop = int(np.searchsorted(edges, edges[first] + bytes_max, side="right")) - 1
        stop = min(max(stop, first + 1), first + UNIT_MESSAGES_MAX, count)
        parts.append(BodyPart(first, stop - first, int(edges[stop] - edges[first])))
        first = stop
    return parts


def of_messages(sizes: Sizes, start: int, stop: int) -> Edges:
    """The sizes of some messages, as an array."""
    if isinstance(sizes, int):
        return np.full(stop - start, sizes, dtype=np.int64)
    return sizes[start:stop].astype(np.int64)


def edges_of(unit: Body, sizes: Sizes) -> Edges:
    """Offset of each message in the bytes of a unit, and the end of the unit. A message that is not kept has no
    bytes."""
    own = of_messages(sizes, unit.first, unit.first + unit.messages)
    if not unit.is_whole:
        own[~flags(unit.kept, unit.messages)] = 0
    edges = np.zeros(unit.messages + 1, dtype=np.int64)
    np.cumsum(own, out=edges[1:])
    return edges


def flags(bitmap: int, count: int) -> npt.NDArray[np.bool_]:
    raw = np.frombuffer(bitmap.to_bytes(-(-count // 8), "little"), dtype=np.uint8)
    return np.unpackbits(raw, count=count, bitorder="little").astype(np.bool_)


def pieces_of(size_bytes: int, chunk_bytes: int) -> list[tuple[int, int]]:
    """The byte ranges of the records of a unit; one empty range for a unit without bytes."""
    edges = [*range(0, size_bytes, chunk_bytes), size_bytes]
    return list(pairwise(edges)) or [(0, 0)]


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """Distribute a number by weight; the sum is exact."""
    sums = [0, *accumulate(weights)]
    edges = [total * each // (sums[-1] or 1) for each in sums]
    return [high - low for low, high in pairwise(edges)]


class LocatedBody(Stored):
    """The current location of one unit."""

    __slots__ = ()

    @property
    def unit(self) -> Body:
        return self.units[0]


class BodyReader:
    def __init__(self, body_files: BodyFiles, index: LocationIndex) -> None:
        self._body_files = body_files
        self._index = index

    def read(self, stored: bytes, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        """Contents start … stop - 1 of a run."""
        location = decode_stored(stored)
        found: list[bytes] = []
        for unit in location.units:
            first, last = max(start, unit.first), min(stop, unit.first + unit.messages)
            if first < last:
                located = LocatedBody(location.chunk_bytes, (unit,))
                found += self._read_unit(located, sizes, first - unit.first, last - unit.first)
        if len(found) != max(0, stop - start):
            raise Misuse(f"messages {start} … {stop} of a run were asked for, {len(found)} of them are stored")
        return found

    def check(self, stored: bytes) -> None:
        """Read every unit of a run, one record at a time."""
        location = decode_stored(stored)
        for unit in location.units:
            located = LocatedBody(location.chunk_bytes, (unit,))
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
        """The bytes of a whole unit, record by record, for copying."""
        for (begin, end), place in self._spans(located):
            yield self._body_files.read(place, end - begin, is_kept=False)

    def _read_unit(self, located: LocatedBody, sizes: Sizes, start: int, stop: int) -> list[bytes]:
        """From the location in the run, or from the current one."""
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
            raise Gone("the collector has dropped some of these messages: no run referenced them")
        edges = edges_of(unit, sizes)
        begin, end = int(edges[start]), int(edges[stop])
        if edges[-1] != unit.size_bytes:
            raise Damage(f"the run has {edges[-1]} bytes there, the store has {unit.size_bytes}")
        raw = self._bytes(located, begin, end)
        if stop - start == 1:
            return [bytes(raw)]
        places = (edges[start : stop + 1] - begin).tolist()
        return [bytes(raw[a:b]) for a, b in pairwise(places)]

    def _bytes(self, located: LocatedBody, begin: int, end: int) -> bytes | memoryview:
        """Bytes of a unit; only the chunks that contain some of them are read."""
        spans = self._spans(located)
        if len(spans) == 1:
            return self._body_files.read(located.unit.places[0], located.unit.size_bytes)[begin:end]
        joined = BytesIO()  # grows in place: no chunk is in memory twice
        for (low, high), place in spans:
            if low < end and begin < high:
                chunk = self._body_files.read(place, high - low, is_kept=False)
                joined.write(chunk[max(begin - low, 0) : end - low])
        return joined.getvalue()

    def _spans(self, located: LocatedBody) -> list[tuple[tuple[int, int], BodyPlace]]:
        unit = located.unit
        spans = pieces_of(unit.size_bytes, located.chunk_bytes)
        if len(spans) != len(unit.places):
            raise Damage(f"{unit.size_bytes} bytes should be {len(spans)} records, {len(unit.places)} are listed")
        return list(zip(spans, unit.places, strict=True))

    def _lost(self, unit: Body, start: int, stop: int, error: Gone | Damage) -> Damage:
        """`Damage` with the affected messages."""
        which = f"messages {unit.first + start} … {unit.first + stop - 1} of a run"
        path, offset = self._body_files.path(unit.places[0].file), unit.places[0].offset
        what = error.what
        if isinstance(error, Damage) and error.path:
            path, offset, what = error.path, error.offset, error.bare
        return Damage(f"{which} (unit {unit.id:#x}) cannot be read: {what}", path, offset)


def location_of(index: LocationIndex, unit: Lsn) -> LocatedBody | None:
    """The current location of a unit; None: that in its run."""
    entry = index.look_up(unit)
    return None if entry is None else LocatedBody(*decode_stored(entry.location))


NEW = Lsn(0)


def write_units(
    body_files: BodyFiles,
    contents: Sequence[bytes],
    sizes: Sizes,
    holders: Sequence[Reference],
    chunk_bytes: int = CHUNK_BYTES,
) -> list[Body]:
    """Write contents as units."""
    parts = cut(sizes, len(contents), chunk_bytes)
    units: list[Body] = []
    waiting: list[BodyPart] = []  # single-record units: appended together, up to a few chunks at once
    waiting_bytes = 0
    for part in parts:
        if part.size_bytes > chunk_bytes:
            units += _write_joined(body_files, contents, waiting, holders)
            waiting, waiting_bytes = [], 0
            units.append(_write_large(body_files, contents[part.first], part.first, holders, chunk_bytes))
            continue
        if waiting_bytes + part.size_bytes > chunk_bytes:
            units += _write_joined(body_files, contents, waiting, holders)
            waiting, waiting_bytes = [], 0
        waiting.append(part)
        waiting_bytes += part.size_bytes
    return units + _write_joined(body_files, contents, waiting, holders)


def append_pieces(
    body_files: BodyFiles, unit: Lsn, holders: Sequence[Reference], pieces: Iterable[bytes]
) -> tuple[BodyPlace, ...]:
    """Append the records of one unit one by one; `unit` is NEW, or the id of the unit that is copied."""
    places: list[BodyPlace] = []
    for number, piece in enumerate(pieces):
        if not places:
            key = RecordKey(RecordKind.START, 0, unit, tuple(holders))
            places += body_files.append([Record(encode_key(key), piece)])
        else:
            start = places[0].lsn
            key = RecordKey(RecordKind.CHUNK, number, unit or start, tuple(holders))
            places += body_files.append([Record(encode_key(key), piece, start)])
    return tuple(places)


def _write_joined(
    body_files: BodyFiles, contents: Sequence[bytes], parts: Sequence[BodyPart], holders: Sequence[Reference]
) -> list[Body]:
    key = encode_key(RecordKey(RecordKind.START, 0, NEW, tuple(holders)))
    records = [Record(key, b"".join(contents[part.first : part.first + part.messages])) for part in parts]
    places = body_files.append(records) if records else []
    return [
        Body(place.lsn, part.size_bytes, part.first, part.messages, (place,), every(part.messages))
        for part, place in zip(parts, places, strict=True)
    ]


def _write_large(
    body_files: BodyFiles, content: bytes, first: int, holders: Sequence[Reference], chunk_bytes: int
) -> Body:
    view = memoryview(content)
    pieces = (bytes(view[start:stop]) for start, stop in pieces_of(len(content), chunk_bytes))
    places = append_pieces(body_files, NEW, holders, pieces)
    return Body(places[0].lsn, len(content), first, 1, places, every(1))
