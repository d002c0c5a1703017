"""Writing units: contents in, places out.

    one unit         Message-Start                       value: contents, joined
    a large content  Message-Start ◀─ Chunk ◀─ Chunk …   every chunk links back to the start by undo_prev

Starts of many units are appended together, so that small ones share a block. Chunks need their start's LSN and come
after it, one at a time: of a large content there is never more in memory than the content itself and what the heap has
gathered. If a crash leaves a start without its chunks nobody names it, and the collector finds it dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warren.base.ids import Lsn
from warren.base.runs import Sizes
from warren.message_store.format import (
    CHUNK_BYTES,
    Body,
    BodyPlace,
    RecordKey,
    RecordKind,
    Reference,
    encode_key,
    every,
)
from warren.message_store.heap import BodyFiles, Record
from warren.message_store.units import BodyPart, cut, pieces_of

NEW = Lsn(0)


def write_units(
    heap: BodyFiles,
    contents: Sequence[bytes],
    sizes: Sizes,
    holders: Sequence[Reference],
    chunk_bytes: int = CHUNK_BYTES,
) -> list[Body]:
    """Contents as units; where they are."""
    parts = cut(sizes, len(contents), chunk_bytes)
    units: list[Body] = []
    waiting: list[BodyPart] = []  # whole in one record: appended together, but never more than a few chunks at once
    waiting_bytes = 0
    for part in parts:
        if part.size_bytes > chunk_bytes:
            units += _write_joined(heap, contents, waiting, holders)
            waiting, waiting_bytes = [], 0
            units.append(_write_large(heap, contents[part.first], part.first, holders, chunk_bytes))
            continue
        if waiting_bytes + part.size_bytes > chunk_bytes:
            units += _write_joined(heap, contents, waiting, holders)
            waiting, waiting_bytes = [], 0
        waiting.append(part)
        waiting_bytes += part.size_bytes
    return units + _write_joined(heap, contents, waiting, holders)


def append_pieces(
    heap: BodyFiles, unit: Lsn, holders: Sequence[Reference], pieces: Iterable[bytes]
) -> tuple[BodyPlace, ...]:
    """The records of one unit, taken one by one; `unit` is NEW, or the id of the unit that they are a copy of."""
    places: list[BodyPlace] = []
    for number, piece in enumerate(pieces):
        if not places:
            key = RecordKey(RecordKind.START, 0, unit, tuple(holders))
            places += heap.append([Record(encode_key(key), piece)])
        else:
            start = places[0].lsn
            key = RecordKey(RecordKind.CHUNK, number, unit or start, tuple(holders))
            places += heap.append([Record(encode_key(key), piece, start)])
    return tuple(places)


def _write_joined(
    heap: BodyFiles, contents: Sequence[bytes], parts: Sequence[BodyPart], holders: Sequence[Reference]
) -> list[Body]:
    key = encode_key(RecordKey(RecordKind.START, 0, NEW, tuple(holders)))
    records = [Record(key, b"".join(contents[part.first : part.first + part.messages])) for part in parts]
    places = heap.append(records) if records else []
    return [
        Body(place.lsn, part.size_bytes, part.first, part.messages, (place,), every(part.messages))
        for part, place in zip(parts, places, strict=True)
    ]


def _write_large(heap: BodyFiles, content: bytes, first: int, holders: Sequence[Reference], chunk_bytes: int) -> Body:
    view = memoryview(content)
    pieces = (bytes(view[start:stop]) for start, stop in pieces_of(len(content), chunk_bytes))
    places = append_pieces(heap, NEW, holders, pieces)
    return Body(places[0].lsn, len(content), first, 1, places, every(1))
