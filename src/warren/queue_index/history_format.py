"""History of messages: what happened, when and why, as records of the message stream. Recovery does not need them.

    key      | "h" | queue u64 be | level u8 |                                          readers may filter by it
    value    | format u8 | flags u8 | extension_bytes u16 | kind u8 | why u8 | detail_bytes u16 |
             | wall_ms u64 | ranges u32 |                                               20 bytes
             | detail | extension | ranges × ( first u64, stop u64 ) |

One record covers all messages of a sub-queue with the same event in one session. `detail` is a consumer's name, or data
of the reason: the target of a dead-letter move, and its cause. A publish has its run row, and no record.

`DequeueReason`: why a message left its queue. A dead-lettered message has the reason for which it left, whether or not
it was routed to a queue; its run in the target queue has the destination. So there is no separate reason for that: 8
was reserved for it, and is not written. The numbers of both enums are on disk: never change one, only add (DESIGN
section 8).

Invariants: ranges are not empty, and in the order of events. Bytes: docs/formats/queue_index.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import QueueId
from warren.base.messages import QueuePlace
from warren.files.protocol import Buffer
from warren.queue_index.row_format import FORMAT, HEAD, named, opened


class DequeueReason(IntEnum):
    ACKED = 1  # acknowledged by a consumer
    EXPIRED = 2  # time to live of the message or the queue
    OVER_LIMIT = 3  # dropped from the head of a full queue
    REJECTED = 4  # rejected by a consumer
    PURGED = 5  # queue.purge
    QUEUE_DELETED = 6
    MOVED = 7  # to another queue, by an operator
    TRANSACTION = 9  # by the outcome of a transaction
    DELIVERY_LIMIT = 10  # requeued too often


Ranges = Sequence[tuple[int, int]]  # sequence ids: first, stop

HISTORY_KEY = struct.Struct(">cQB")
assert HISTORY_KEY.size == 10
RECORD = struct.Struct("<BBHBBHQI")
assert RECORD.size == 20
RANGE_BYTES = 16
RANGES_MAX = 16384  # in one record
DETAIL_BYTES_MAX = 0xFFFF
HISTORY = b"h"


class HistoryRecord(IntEnum):
    """The numbers are on disk: never change one, only add."""

    DEQUEUED = 1
    REQUEUED = 2
    DELIVERED = 3


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """A decoded record."""

    place: QueuePlace
    kind: int
    reason: int  # 0: none
    wall_ms: int
    ranges: tuple[tuple[int, int], ...]
    detail: bytes = b""


def check_detail(place: QueuePlace, detail: bytes) -> None:
    if len(detail) > DETAIL_BYTES_MAX:
        raise Misuse(f"{named(place)}: a detail of {len(detail)} bytes", f"up to {DETAIL_BYTES_MAX} fit a record")


def history_key(place: QueuePlace) -> bytes:
    return HISTORY_KEY.pack(HISTORY, place.queue, place.level)


def encode_events(
    kind: HistoryRecord, reason: DequeueReason | None, wall_ms: int, ranges: Ranges, detail: bytes
) -> list[bytes]:
    """One record, or several if there are many ranges."""
    pieces = [ranges[at : at + RANGES_MAX] for at in range(0, len(ranges), RANGES_MAX)]
    number = 0 if reason is None else int(reason)
    return [
        RECORD.pack(FORMAT, 0, 0, kind, number, len(detail), wall_ms, len(piece))
        + detail
        + struct.pack(f"<{2 * len(piece)}Q", *(edge for pair in piece for edge in pair))
        for piece in pieces
    ]


def is_history(key: bytes) -> bool:
    return key[:1] == HISTORY


def decode_event(key: bytes, value: Buffer) -> HistoryEvent:
    if len(key) != HISTORY_KEY.size or not is_history(key):
        raise Damage(f"a record of the message stream has the key {key[:32].hex()}, which names no queue")
    _, queue, level = HISTORY_KEY.unpack(key)
    place = QueuePlace(QueueId(queue), level)
    what = f"{named(place)}: a record of its history"
    if len(value) < RECORD.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    _, extension_bytes = opened(what, value, RECORD.size, 0)
    kind, reason, detail_bytes, wall_ms, count = struct.unpack_from("<BBHQI", value, HEAD.size)
    if kind not in HistoryRecord._value2member_map_:
        raise Refused(f"{what} is of kind {kind}, which this version does not know", "use a newer warren")
    ranges_at = RECORD.size + detail_bytes + extension_bytes
    if count > RANGES_MAX or ranges_at + count * RANGE_BYTES != len(value):
        raise Damage(f"{what} has {len(value)} bytes and claims {count} ranges")
    edges = np.frombuffer(value, "<u8", 2 * count, ranges_at).tolist()
    ranges = tuple(zip(edges[::2], edges[1::2], strict=True))
    if any(first >= stop for first, stop in ranges):
        raise Damage(f"{what} has a range that ends before it begins")
    return HistoryEvent(place, kind, reason, wall_ms, ranges, bytes(value[RECORD.size : RECORD.size + detail_bytes]))
