"""Row formats of the queue index: keys, run rows, ack rows, counters rows, delivery rows.

    storage = queue id
    | "r" | level u8 | first u64 be | 0 |   run row                          runs of a level are in order,
    | "r" | level u8 | first u64 be | 1 |   ack row                          each followed by its ack row
    | "c" | level u8 |                      counters row
    | "d" | level u8 | message u64 be |     delivery row: of a message that was requeued, where deliveries are counted

    every row     | format u8 | flags u8 | extension_bytes u16 | … its own fields … | extension | …
    ack row       | gone_first u32 | bitmap: bit i = message gone_first + i is gone; no zero byte at its end |
    counters row  | next u64 | head u64 | count u64 | size_bytes u64 | delivered_to u64 |
    delivery row  | requeues u32 |

The run row: messages published together, with their contents, or with the location of those in a message store.

    | format u8 | flags u8 | extension_bytes u16 | count u32 | expires_ms u64 | published_ms u64 |
    | size u32 | exchange_bytes u16 | routing_key_bytes u16 | user_bytes u16 | content kind u8 | 0 |        36 bytes
    | exchange | routing key | user |                                                                   UTF-8
    | extension |                                                                                        ignored
    | count × size u32 |                       only if sizes differ (flag); `size` is 0 then
    | contents, concatenated |                 or their location in the message store (flag)

A run that is acknowledged in order has an ack row of eight bytes, whatever its length. Writing a run joins contents,
reading copies only what is requested: neither loops over messages in Python.

`cuts` splits what is published together into runs that fit a row:

    contents   ▪▪▪▪▪▪▪▪▪▪▪█▪▪▪▪▪▪▪▪▪▪▪▪▪▪          ▪ small   █ at or over the limit for embedding
    cuts       [─────────)│[──────)[──────)         never mixed, never too many, never too many bytes

The contents of a run are all in its row or all in the message store, so small and large ones are never in one run. Cuts
are found by searching sums of sizes: a step per run, none per message. They are adjacent, not empty, and cover all.

`without_gone` is a run's row without the contents of gone messages, written by the cleaner. Count and sequence ids
stay, so that ack rows and references to the run remain valid; gone messages have no bytes. A run with contents in a
message store is left as it is: that store trims its own.

Invariants
* The first byte of a row is its format, never 0xFF, which begins a pointer (log/pointers).
* A reader must know the lower four flags, and ignores unknown upper four; the extension is ignored.
* Everything read from disk is checked: a mismatch is a `Damage` that names queue, level and sequence id.
* A row is at most as long as an entry of the log.

Bytes: docs/formats/queue_index.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import Origin, QueuePlace, Run, Sizes, sizes_of
from warren.files.protocol import Buffer
from warren.records.format import ENTRY_BYTES_MAX

FORMAT = 1
FLAGS_TO_KNOW = 0x0F
LEVEL_MAX = 255
RUN_COUNT_MAX = 16384  # messages in one run
RUN_HEAP_BYTES_MAX = 512 << 10  # contents in one run, unless a single one is larger

KEY = struct.Struct(">cBQB")
assert KEY.size == 11
COUNTERS_KEY = struct.Struct(">cB")
assert COUNTERS_KEY.size == 2
DELIVERY_KEY = struct.Struct(">cBQ")
assert DELIVERY_KEY.size == 10
HEAD = struct.Struct("<BBH")
assert HEAD.size == 4
ACK = struct.Struct("<BBHI")
assert ACK.size == 8
COUNTERS = struct.Struct("<BBHQQQQQ")
assert COUNTERS.size == 44
DELIVERY = struct.Struct("<BBHI")
assert DELIVERY.size == 8

RUN_ROW, ACK_ROW = 0, 1  # last byte of a key
CLEAN = 0x01
FIRST = SequenceId(0)  # of every queue


@dataclass(slots=True)  # not frozen: every session that dequeues makes one
class Counters:
    """The state of a queue that a start reads, without its messages."""

    next: SequenceId = FIRST  # of the next message
    head: SequenceId = FIRST  # nothing below is alive
    count: int = 0  # ready and pending messages below `next`
    size_bytes: int = 0  # of their contents
    delivered_to: SequenceId = FIRST  # everything below was delivered at least once
    is_clean: bool = False  # written at a stop; a queue that resumes clears it

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


def delivery_key(level: int, message: int) -> bytes:
    return DELIVERY_KEY.pack(b"d", level, message)


def read_key(place: QueuePlace, key: bytes) -> tuple[SequenceId, int]:
    """First sequence id, and RUN_ROW or ACK_ROW."""
    if len(key) == KEY.size:
        letter, level, first, kind = KEY.unpack(key)
        if letter == b"r" and level == place.level and kind in (RUN_ROW, ACK_ROW):
            return SequenceId(first), kind
    raise Damage(f"{named(place)} has a row with the key {key[:32].hex()}, which is not the key of a run")


def named(place: QueuePlace, first: int | None = None) -> str:
    """The name of a sub-queue or message in error texts."""
    level = f", level {place.level}" if place.level else ""
    return f"queue {place.queue}{level}" if first is None else f"queue {place.queue}{level}, sequence id {first}"


def check_place(place: QueuePlace) -> None:
    if not 0 <= place.level <= LEVEL_MAX:
        raise Misuse(f"{named(place)}: a level is from 0 to {LEVEL_MAX}")


# -- head of every row --------------------------------------------------------------------------------------


def opened(what: str, value: Buffer, fixed: int, known_flags: int) -> tuple[int, int]:
    """Flags and size of the extension, both checked: the extension fits the value."""
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
    """`gone`: bit i: message i of the run is gone."""
    gone_first = (~gone & (gone + 1)).bit_length() - 1
    rest = gone >> gone_first
    return ACK.pack(FORMAT, 0, 0, gone_first) + rest.to_bytes((rest.bit_length() + 7) // 8, "little")


def decode_gone(place: QueuePlace, first: int, count: int, value: Buffer) -> int:
    what = f"{named(place, first)}: the ack row"
    if len(value) < ACK.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    _, extension_bytes = opened(what, value, ACK.size, 0)
    (gone_first,) = struct.unpack_from("<I", value, HEAD.size)
    bitmap = value[ACK.size + extension_bytes :]
    if gone_first <= count and len(bitmap) <= (count + 7) // 8:
        gone: int = int.from_bytes(bitmap, "little") << gone_first | (1 << gone_first) - 1
        if gone.bit_length() <= count:
            return gone
    raise Damage(f"{what} names messages behind the {count} of the run")


# -- counters row ----------------------------------------------------------------------------------------------------


def encode_counters(counters: Counters) -> bytes:
    c = counters
    flags = CLEAN if c.is_clean else 0
    return COUNTERS.pack(FORMAT, flags, 0, c.next, c.head, c.count, c.size_bytes, c.delivered_to)


def decode_counters(place: QueuePlace, value: Buffer) -> Counters:
    what = f"{named(place)}: the counters row"
    if len(value) < COUNTERS.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    flags, _ = opened(what, value, COUNTERS.size, CLEAN)
    _, _, _, next_, head, count, size_bytes, delivered_to = COUNTERS.unpack_from(value)
    ids = SequenceId(next_), SequenceId(head), SequenceId(delivered_to)
    found = Counters(ids[0], ids[1], count, size_bytes, ids[2], bool(flags & CLEAN))
    if not found.is_possible:
        raise Damage(f"{what} contradicts itself: {count} messages from {head} to {next_}, {delivered_to} delivered")
    return found


# -- delivery row ----------------------------------------------------------------------------------------------------

REQUEUES_MAX = (1 << 32) - 1


def encode_requeues(count: int) -> bytes:
    return DELIVERY.pack(FORMAT, 0, 0, min(count, REQUEUES_MAX))


def decode_delivery(place: QueuePlace, key: bytes, value: Buffer) -> tuple[SequenceId, int]:
    """The message, and how often it was requeued."""
    if len(key) != DELIVERY_KEY.size:
        raise Damage(f"{named(place)} has a row with the key {key[:32].hex()}, which is not the key of a delivery row")
    _, _, message = DELIVERY_KEY.unpack(key)
    what = f"{named(place, message)}: the delivery row"
    if len(value) < DELIVERY.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    opened(what, value, DELIVERY.size, 0)
    return SequenceId(message), DELIVERY.unpack_from(value)[3]


RUN = struct.Struct("<BBHIQQIHHHBB")
assert RUN.size == 36
SIZE = np.dtype("<u4")
assert SIZE.itemsize == 4

SIZES_DIFFER = 0x01
STORED = 0x02
ROW_BYTES_MAX = ENTRY_BYTES_MAX - KEY.size
TEXT_BYTES_MAX = 0xFFFF
ORIGINS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class RunHead:
    """The head of a run row, and the offset of the contents."""

    flags: int
    count: int
    size: int
    sizes_at: int  # offset of the size column, if there is one
    rest_at: int  # offset of the contents, or of their location


# -- writing ---------------------------------------------------------------------------------------------------------


def row_bytes(run: Run, is_embedded: bool) -> int:
    """Size of its row: exact if contents are embedded, otherwise a lower bound."""
    sizes = 0 if isinstance(run.sizes, int) else run.count * SIZE.itemsize
    contents = run.size_of(0, run.count) if is_embedded else len(run.stored)
    return RUN.size + len(_texts(run.origin)[1]) + sizes + contents


def check_run(place: QueuePlace, run: Run, contents: Sequence[bytes] | None) -> None:
    """`Misuse` if the run does not fit a row; called before anything changes."""
    if not 0 < run.count <= RUN_COUNT_MAX:
        raise Misuse(f"{named(place, run.first)}: a run of {run.count} messages", f"cut it: 1 to {RUN_COUNT_MAX} go")
    if contents is not None and len(contents) != run.count:
        raise Misuse(f"{named(place, run.first)}: {run.count} messages with {len(contents)} contents")
    if row_bytes(run, contents is not None) > ROW_BYTES_MAX:
        what = f"{named(place, run.first)}: a run of {row_bytes(run, True)} bytes, {ROW_BYTES_MAX} fit an entry"
        raise Misuse(what, "cut it, or give its contents to the message store")


def encode_run(run: Run, contents: Sequence[bytes] | None) -> bytes:
    """`contents` None: `run.stored` has their location."""
    lengths, texts = _texts(run.origin)
    flags = 0 if contents is not None else STORED
    size, column = run.sizes if isinstance(run.sizes, int) else 0, b""
    if not isinstance(run.sizes, int):
        flags |= SIZES_DIFFER
        column = run.sizes.astype(SIZE, copy=False).tobytes()
    kind = run.origin.content_kind
    head = RUN.pack(FORMAT, flags, 0, run.count, run.expires_ms, run.published_ms, size, *lengths, kind, 0)
    return b"".join((head, texts, column, *(contents if contents is not None else (run.stored,))))


@lru_cache(maxsize=ORIGINS_KEPT)
def _texts(origin: Origin) -> tuple[tuple[int, int, int], bytes]:
    """Lengths of the texts of an origin, and the texts."""
    exchange, routing_key, user = (text.encode() for text in (origin.exchange, origin.routing_key, origin.user))
    lengths = len(exchange), len(routing_key), len(user)
    if max(lengths) > TEXT_BYTES_MAX or not 0 <= origin.content_kind <= 0xFF:
        raise Misuse(f"an origin of {sum(lengths)} bytes, kind {origin.content_kind}", "names have up to 65535 bytes")
    return lengths, exchange + routing_key + user


# -- reading ---------------------------------------------------------------------------------------------------------


def decode_run(place: QueuePlace, first: SequenceId, value: Buffer, epoch: Epoch) -> Run:
    """The run, without embedded contents."""
    head = _head(place, first, value)
    sizes = _sizes(place, first, value, head)
    _, _, _, count, expires_ms, published_ms, _, *lengths, kind, _ = RUN.unpack_from(value)
    ends = list(accumulate(lengths, initial=RUN.size))
    try:
        texts = [str(value[start:stop], "utf-8") for start, stop in pairwise(ends)]
    except UnicodeDecodeError as error:
        raise Damage(f"{named(place, first)}: a name in the run's row is not UTF-8: {error}") from error
    origin = Origin(texts[0], texts[1], texts[2], kind)
    stored = bytes(value[head.rest_at :]) if head.flags & STORED else b""
    return Run(first, count, sizes, True, expires_ms, published_ms, origin, stored, epoch)


def decode_contents(place: QueuePlace, first: SequenceId, value: Buffer, start: int, stop: int) -> list[bytes]:
    """Contents of messages start … stop of a run with embedded contents."""
    head = _head(place, first, value)
    sizes = _sizes(place, first, value, head)
    if head.flags & STORED:
        raise Misuse(f"{named(place, first)}: the contents are in the message store", "read them there")
    if not 0 <= start <= stop <= head.count:
        raise Misuse(f"{named(place, first)}: messages {start} … {stop} of a run of {head.count}")
    if isinstance(sizes, int):
        begin = head.rest_at + start * sizes
        heap = bytes(value[begin : begin + (stop - start) * sizes])
        return [heap[at : at + sizes] for at in range(0, len(heap), sizes)] if sizes else [b""] * (stop - start)
    begin = head.rest_at + int(sizes[:start].sum(dtype=np.int64))
    ends = np.cumsum(sizes[start:stop], dtype=np.int64).tolist()
    heap = bytes(value[begin : begin + (ends[-1] if ends else 0)])
    return [heap[at:end] for at, end in pairwise([0, *ends])]


def _head(place: QueuePlace, first: SequenceId, value: Buffer) -> RunHead:
    what = f"{named(place, first)}: the run's row"
    if len(value) < RUN.size:
        raise Damage(f"{what} has {len(value)} bytes, too few")
    flags, extension_bytes = opened(what, value, RUN.size, SIZES_DIFFER | STORED)
    _, _, _, count, _, _, size, *lengths, _, _ = RUN.unpack_from(value)
    if not 0 < count <= RUN_COUNT_MAX:
        raise Damage(f"{what} claims {count} messages")
    sizes_at = RUN.size + sum(lengths) + extension_bytes
    rest_at = sizes_at + (count * SIZE.itemsize if flags & SIZES_DIFFER else 0)
    if rest_at > len(value):
        raise Damage(f"{what} has {len(value)} bytes, its head alone claims {rest_at}")
    if flags & STORED and rest_at == len(value):
        raise Damage(f"{what} has no location of its contents")
    return RunHead(flags, count, size, sizes_at, rest_at)


def _sizes(place: QueuePlace, first: SequenceId, value: Buffer, head: RunHead) -> Sizes:
    """A copy: it must not keep the contents in memory."""
    sizes: Sizes = head.size
    if head.flags & SIZES_DIFFER:
        sizes = np.frombuffer(value, SIZE, head.count, head.sizes_at).astype(np.uint32)
    if not head.flags & STORED:
        total = head.count * head.size if isinstance(sizes, int) else int(sizes.sum(dtype=np.uint64))
        if total != len(value) - head.rest_at:
            present = len(value) - head.rest_at
            raise Damage(
                f"{named(place, first)}: the run's row has {present} bytes of contents, its sizes sum to {total}"
            )
    return sizes


Cut = tuple[int, int]  # start, stop


def cuts(
    sizes: Sizes,
    count: int,
    embed_below: int | None = None,
    bytes_max: int = RUN_HEAP_BYTES_MAX,
    count_max: int = RUN_COUNT_MAX,
) -> list[Cut]:
    """Where to cut `count` messages of these sizes. A single one may be larger than `bytes_max`."""
    if isinstance(sizes, int):
        step = min(count_max, max(1, bytes_max // sizes) if sizes else count_max)
        return [(start, min(start + step, count)) for start in range(0, count, step)]
    edges = [0, *_changes(sizes, embed_below), count] if count else []
    ends = np.cumsum(sizes, dtype=np.int64)
    return [cut for start, stop in pairwise(edges) for cut in _within(ends, start, stop, bytes_max, count_max)]


def _changes(sizes: Sizes, embed_below: int | None) -> list[int]:
    """Positions where small contents follow large ones, or the other way round."""
    if embed_below is None:
        return []
    is_large = np.asarray(sizes) >= embed_below
    return (np.flatnonzero(is_large[1:] != is_large[:-1]) + 1).tolist()


def _within(ends: npt.NDArray[np.int64], start: int, stop: int, bytes_max: int, count_max: int) -> list[Cut]:
    found = []
    while start < stop:
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(fitting, start + 1), start + count_max, stop)
        found.append((start, end))
        start = end
    return found


def without_gone(place: QueuePlace, first: SequenceId, value: Buffer, gone: int) -> bytes:
    """`gone`: bit i: message i is gone."""
    run = decode_run(place, first, value, Epoch(0))
    if run.stored or not gone:
        return bytes(value)
    bits = np.frombuffer(gone.to_bytes((run.count + 7) // 8, "little"), np.uint8)
    is_gone = np.unpackbits(bits, count=run.count, bitorder="little").tolist()
    contents = decode_contents(place, first, value, 0, run.count)
    left = [b"" if out else content for content, out in zip(contents, is_gone, strict=True)]
    return encode_run(replace(run, sizes=sizes_of(left)), left)
