"""The run row: messages that came together, with their contents, or with where those lie in a message store.

    | format u8 | flags u8 | extension_bytes u16 | count u32 | expires_ms u64 | published_ms u64 |
    | size u32 | exchange_bytes u16 | routing_key_bytes u16 | user_bytes u16 | content kind u8 | 0 |        36 bytes
    | exchange | routing key | user |                                                                   UTF-8
    | extension |                                                                                        passed over
    | count × size u32 |                       only if sizes differ (flag); `size` is 0 then
    | contents, one behind the other |         or what the message store said (flag): where they are

Writing joins pieces: nothing happens for each message. Reading takes the head and the sizes, or the contents of some of
the messages; it copies what is asked for and no more.

Always true: a row is at most as long as an entry of the log may be. Bytes: docs/formats/queue_index.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from warren.base.errors import Damage, Misuse
from warren.base.ids import Epoch, SequenceId
from warren.base.runs import Origin, QueuePlace, Run, Sizes
from warren.files.protocol import Buffer
from warren.queue_index.format import FORMAT, KEY, RUN_COUNT_MAX, named, opened
from warren.records.format import ENTRY_BYTES_MAX

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
    """What stands in front of the contents, and where they begin."""

    flags: int
    count: int
    size: int
    sizes_at: int  # of the column, if there is one
    rest_at: int  # contents, or where they are stored


# -- writing ---------------------------------------------------------------------------------------------------------


def row_bytes(run: Run, is_embedded: bool) -> int:
    """How long its row will be, at least; exactly if it is embedded."""
    sizes = 0 if isinstance(run.sizes, int) else run.count * SIZE.itemsize
    contents = run.size_of(0, run.count) if is_embedded else len(run.stored)
    return RUN.size + len(_texts(run.origin)[1]) + sizes + contents


def check_run(place: QueuePlace, run: Run, contents: Sequence[bytes] | None) -> None:
    """Whether a row can be made of it; whoever asks is told, before anything has changed."""
    if not 0 < run.count <= RUN_COUNT_MAX:
        raise Misuse(f"{named(place, run.first)}: a run of {run.count} messages", f"cut it: 1 to {RUN_COUNT_MAX} go")
    if contents is not None and len(contents) != run.count:
        raise Misuse(f"{named(place, run.first)}: {run.count} messages with {len(contents)} contents")
    if row_bytes(run, contents is not None) > ROW_BYTES_MAX:
        what = f"{named(place, run.first)}: a run of {row_bytes(run, True)} bytes, {ROW_BYTES_MAX} fit an entry"
        raise Misuse(what, "cut it, or give its contents to the message store")


def encode_run(run: Run, contents: Sequence[bytes] | None) -> bytes:
    """`contents` None: `run.stored` says where they are."""
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
    """Lengths of an origin's texts, and the texts."""
    exchange, routing_key, user = (text.encode() for text in (origin.exchange, origin.routing_key, origin.user))
    lengths = len(exchange), len(routing_key), len(user)
    if max(lengths) > TEXT_BYTES_MAX or not 0 <= origin.content_kind <= 0xFF:
        raise Misuse(f"an origin of {sum(lengths)} bytes, kind {origin.content_kind}", "names have up to 65535 bytes")
    return lengths, exchange + routing_key + user


# -- reading ---------------------------------------------------------------------------------------------------------


def decode_run(place: QueuePlace, first: SequenceId, value: Buffer, epoch: Epoch) -> Run:
    """Everything but embedded contents."""
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
    """The contents of messages start … stop of a run that holds them itself."""
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
        raise Damage(f"{what} does not say where its contents are stored")
    return RunHead(flags, count, size, sizes_at, rest_at)


def _sizes(place: QueuePlace, first: SequenceId, value: Buffer, head: RunHead) -> Sizes:
    """A copy: it must not keep the contents alive."""
    sizes: Sizes = head.size
    if head.flags & SIZES_DIFFER:
        sizes = np.frombuffer(value, SIZE, head.count, head.sizes_at).astype(np.uint32)
    if not head.flags & STORED:
        total = head.count * head.size if isinstance(sizes, int) else int(sizes.sum(dtype=np.uint64))
        if total != len(value) - head.rest_at:
            held = len(value) - head.rest_at
            raise Damage(f"{named(place, first)}: the run's row holds {held} bytes of contents, its sizes say {total}")
    return sizes
