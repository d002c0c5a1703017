"""Byte formats of the message store: the key of a record, and `stored`, the location of a run's contents.

    record key   | format u8 | kind u8 | flags u16 | chunk u32 | unit u64 | holders × ( queue, first u64, level u8 ) |
    stored       | format u8 | 0 × 3 | units u32 | chunk bytes u32 | units × unit |
    unit         | id u64 | bytes u64 | first u32 | messages u32 | places u32 | kept bytes u32 | places × place | kept |
    place        | block LSN u64 | entry u32 |

A record's value is the joined contents, and nothing else. `unit` in a record's key is 0 in a unit's first
Message-Start, whose own LSN is the unit's id; chunks and copies have the id. `first` and `messages` are the messages of
the run that a unit (`Body`) has; `kept`, a bitmap, those still in it, if not all (bit i: message first + i).

Invariant: decoded values were checked against the length of the bytes. Page: docs/formats/message_store.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from warren.base.errors import Damage, Refused
from warren.base.ids import FileNumber, Lsn, QueueId, SequenceId, file_of_lsn, position_of_lsn

FORMAT = 1
CHUNK_BYTES = 512 << 10
UNIT_MESSAGES_MAX = 1 << 16
HOLDERS_MAX = 8192  # in one record's key: with a chunk it stays below the limit of an entry

KEY = struct.Struct("<BBHIQ")
assert KEY.size == 16
HOLDER = struct.Struct("<QQB")
assert HOLDER.size == 17
STORED = struct.Struct("<B3xII")
assert STORED.size == 12
UNIT = struct.Struct("<QQIIII")
assert UNIT.size == 32
PLACE = struct.Struct("<QI")
assert PLACE.size == 12


class RecordKind(IntEnum):
    START = 1  # Message-Start: the first, usually the only piece of a unit
    CHUNK = 2  # Message-Chunk: a later piece of a content too large for one entry


class Reference(NamedTuple):
    """A run of a sub-queue that references a unit."""

    queue: QueueId
    level: int
    first: SequenceId


class RecordKey(NamedTuple):
    kind: RecordKind
    chunk: int  # 0 of a start, then 1, 2, …
    unit: Lsn  # 0: the record's own LSN
    holders: tuple[Reference, ...]


class BodyPlace(NamedTuple):
    """Entry `entry` of a block."""

    block: Lsn  # of the block's first entry: file and offset
    entry: int

    @property
    def file(self) -> FileNumber:
        return file_of_lsn(self.block)

    @property
    def offset(self) -> int:
        return position_of_lsn(self.block)

    @property
    def lsn(self) -> Lsn:
        return Lsn(self.block + self.entry)


class Body(NamedTuple):
    """A unit: messages of a run from `first` on, and their places."""

    id: Lsn
    size_bytes: int  # of kept messages
    first: int
    messages: int
    places: tuple[BodyPlace, ...]  # of the start, then of each chunk
    kept: int  # bitmap of the messages in it

    @property
    def is_whole(self) -> bool:
        return self.kept == every(self.messages)


class Stored(NamedTuple):
    chunk_bytes: int  # size of every piece of a unit but the last
    units: tuple[Body, ...]


def every(count: int) -> int:
    """The bitmap of all messages."""
    return (1 << count) - 1


def encode_key(key: RecordKey) -> bytes:
    head = KEY.pack(FORMAT, key.kind, 0, key.chunk, key.unit)
    return head + b"".join(HOLDER.pack(holder.queue, holder.first, holder.level) for holder in key.holders)


def decode_key(raw: bytes) -> RecordKey:
    if len(raw) < KEY.size or (len(raw) - KEY.size) % HOLDER.size:
        raise Damage(f"a record of the message store has a key of {len(raw)} bytes: {raw[:24].hex()}")
    version, kind, flags, chunk, unit = KEY.unpack_from(raw)
    _require_known(version)
    if flags or kind not in RecordKind._value2member_map_:
        raise Refused(f"the message store has a record of kind {kind}, flags {flags:#x}", "use a newer warren")
    fields = HOLDER.iter_unpack(raw[KEY.size :])
    holders = tuple(Reference(QueueId(queue), level, SequenceId(first)) for queue, first, level in fields)
    return RecordKey(RecordKind(kind), chunk, Lsn(unit), holders)


def encode_stored(units: Sequence[Body], chunk_bytes: int = CHUNK_BYTES) -> bytes:
    pieces = [STORED.pack(FORMAT, len(units), chunk_bytes)]
    for unit in units:
        kept = b"" if unit.is_whole else unit.kept.to_bytes(-(-unit.messages // 8), "little")
        pieces.append(UNIT.pack(unit.id, unit.size_bytes, unit.first, unit.messages, len(unit.places), len(kept)))
        pieces += [PLACE.pack(*place) for place in unit.places]
        pieces.append(kept)
    return b"".join(pieces)


def decode_stored(raw: bytes) -> Stored:
    if len(raw) < STORED.size:
        raise _no_location(raw)
    version, count, chunk_bytes = STORED.unpack_from(raw)
    _require_known(version)
    units: list[Body] = []
    at = STORED.size
    for _ in range(min(count, len(raw) // UNIT.size)):
        unit, at = _decode_unit(raw, at)
        units.append(unit)
    if len(units) != count or at != len(raw) or not chunk_bytes:
        raise _no_location(raw)
    return Stored(chunk_bytes, tuple(units))


def _decode_unit(raw: bytes, at: int) -> tuple[Body, int]:
    if at + UNIT.size > len(raw):
        raise _no_location(raw)
    unit, size_bytes, first, count, place_count, kept_bytes = UNIT.unpack_from(raw, at)
    at += UNIT.size
    kept_at = at + place_count * PLACE.size
    end = kept_at + kept_bytes
    if end > len(raw) or not place_count or kept_bytes not in (0, -(-count // 8)):
        raise _no_location(raw)
    places = tuple(BodyPlace(Lsn(block), entry) for block, entry in PLACE.iter_unpack(raw[at:kept_at]))
    kept = int.from_bytes(raw[kept_at:end], "little") if kept_bytes else every(count)
    if kept >> count:
        raise _no_location(raw)
    return Body(Lsn(unit), size_bytes, first, count, places, kept), end


def _no_location(raw: bytes) -> Damage:
    return Damage(f"this is not a location of contents: {raw[:48].hex()}")


def _require_known(version: int) -> None:
    if version > FORMAT:
        raise Refused(f"the message store has format {version}, this warren reads up to {FORMAT}", "use a newer warren")
