"""Keys of the queue index, and the two small rows: counters, and which messages of a run are gone.

    storage = queue id
    | "r" | level u8 | first u64 be | 0 |   run row (run_format)             runs of a level lie in their order,
    | "r" | level u8 | first u64 be | 1 |   ack row                          each with its ack row behind it
    | "c" | level u8 |                      counters row

    every row     | format u8 | flags u8 | extension_bytes u16 | … its own fields … | extension | …
    ack row       | gone_first u32 | bitmap: bit i = message gone_first + i is gone; no zero byte at its end |
    counters row  | next u64 | head u64 | count u64 | size_bytes u64 | delivered_to u64 |

A run that is acknowledged in order has an ack row of eight bytes, whatever its length.

Always true: the first byte of a row is its format, never 0xFF, which begins a pointer (log/referring). Of the flags the
lower four must be known to whoever reads, the upper four may be passed over; the extension is passed over. Whatever is
read from disk is checked before it is used: what does not fit is a `Damage` that names queue, level and sequence id.
Bytes: docs/formats/queue_index.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import SequenceId
from warren.base.runs import QueuePlace
from warren.files.protocol import Buffer

FORMAT = 1
FLAGS_TO_KNOW = 0x0F
LEVEL_MAX = 255
RUN_COUNT_MAX = 16384  # messages in one run
RUN_HEAP_BYTES_MAX = 512 << 10  # contents in one run, unless a single one is larger

KEY = struct.Struct(">cBQB")
assert KEY.size == 11
COUNTERS_KEY = struct.Struct(">cB")
assert COUNTERS_KEY.size == 2
HEAD = struct.Struct("<BBH")
assert HEAD.size == 4
ACK = struct.Struct("<BBHI")
assert ACK.size == 8
COUNTERS = struct.Struct("<BBHQQQQQ")
assert COUNTERS.size == 44

RUN_ROW, ACK_ROW = 0, 1  # last byte of a key
CLEAN = 0x01
FIRST = SequenceId(0)  # of every queue


@dataclass(slots=True)  # not frozen: every session that dequeues makes one
class Counters:
    """What a start has to know of a queue without looking at its messages."""

    next: SequenceId = FIRST  # the next message gets this one
    head: SequenceId = FIRST  # nothing below is alive
    count: int = 0  # messages that are not gone, ready or pending, among those below `next`
    size_bytes: int = 0  # of their contents
    delivered_to: SequenceId = FIRST  # everything below was delivered at least once
    is_clean: bool = False  # written at a stop; whoever goes on from here writes that it is not any more

    @property
    def is_possible(self) -> bool:
        return self.head <= self.next and self.delivered_to <= self.next and self.count <= self.next - self.head


# -- keys ----------------------------------------------------------------------------------------------------------


def run_key(level: int, first: int) -> bytes:
    return KEY.pack(b"r", level, first, RUN_ROW)


def ack_key(level: int, first: int) -> bytes:
    return KEY.pack(b"r", level, first, ACK_ROW)


def counters_key(level: int) -> bytes:
    return COUNTERS_KEY.pack(b"c", level)


def read_key(place: QueuePlace, key: bytes) -> tuple[SequenceId, int]:
    """First sequence id, and RUN_ROW or ACK_ROW."""
    if len(key) == KEY.size:
        letter, level, first, kind = KEY.unpack(key)
        if letter == b"r" and level == place.level and kind in (RUN_ROW, ACK_ROW):
            return SequenceId(first), kind
    raise Damage(f"{named(place)} has a row with the key {key[:32].hex()}, which is no run's")


def named(place: QueuePlace, first: int | None = None) -> str:
    """How messages speak of it."""
    level = f", level {place.level}" if place.level else ""
    return f"queue {place.queue}{level}" if first is None else f"queue {place.queue}{level}, sequence id {first}"


def check_place(place: QueuePlace) -> None:
    if not 0 <= place.level <= LEVEL_MAX:
        raise Misuse(f"{named(place)}: a level is from 0 to {LEVEL_MAX}")


# -- what every row begins with --------------------------------------------------------------------------------------


def opened(what: str, value: Buffer, fixed: int, known_flags: int) -> tuple[int, int]:
    """Flags, and where the fields behind the fixed ones begin, less their extension: both are checked. The extension's
    size is known to fit the value."""
    if len(value) < HEAD.size:
        raise Damage(f"{what} has {len(value)} bytes, too few for a row")
    format_, flags, extension_bytes = HEAD.unpack_from(value)
    if format_ != FORMAT:
        raise Refused(f"{what} is of format {format_}, this version of warren reads {FORMAT}", "use a newer warren")
    if flags & FLAGS_TO_KNOW & ~known_flags:
        raise Refused(f"{what} has flags {flags:#04x}, which this version does not know", "use a newer warren")
    if fixed + extension_bytes > len(value):
        raise Damage(f"{what} has {len(value)} bytes, fewer than it claims")
    return flags, extension_bytes


# -- ack row ---------------------------------------------------------------------------------------------------------


def encode_gone(gone: int) -> bytes:
    """`gone`: bit i says that message i of the run is gone."""
    gone_first = (~gone & (gone + 1)).bit_length() - 1
    rest = gone >> gone_first
    return ACK.pack(FORMAT, 0, 0, gone_first) + rest.to_bytes((rest.bit_length() + 7) // 8, "little")


def decode_gone(place: QueuePlace, first: int, count: int, value: Buffer) -> int:
    what = f"{named(place, first)}: the row of what is gone"
    if len(value) < ACK.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    _, extension_bytes = opened(what, value, ACK.size, 0)
    (gone_first,) = struct.unpack_from("<I", value, HEAD.size)
    bitmap = value[ACK.size + extension_bytes :]
    if gone_first <= count and len(bitmap) <= (count + 7) // 8:
        gone: int = int.from_bytes(bitmap, "little") << gone_first | (1 << gone_first) - 1
        if gone.bit_length() <= count:
            return gone
    raise Damage(f"{what} speaks of messages behind the {count} of the run")


# -- counters row ----------------------------------------------------------------------------------------------------


def encode_counters(counters: Counters) -> bytes:
    c = counters
    flags = CLEAN if c.is_clean else 0
    return COUNTERS.pack(FORMAT, flags, 0, c.next, c.head, c.count, c.size_bytes, c.delivered_to)


def decode_counters(place: QueuePlace, value: Buffer) -> Counters:
    what = f"{named(place)}: the row of its counters"
    if len(value) < COUNTERS.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    flags, _ = opened(what, value, COUNTERS.size, CLEAN)
    _, _, _, next_, head, count, size_bytes, delivered_to = COUNTERS.unpack_from(value)
    ids = SequenceId(next_), SequenceId(head), SequenceId(delivered_to)
    found = Counters(ids[0], ids[1], count, size_bytes, ids[2], bool(flags & CLEAN))
    if not found.is_possible:
        raise Damage(f"{what} contradicts itself: {count} messages from {head} to {next_}, {delivered_to} delivered")
    return found
