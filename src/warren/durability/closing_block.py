"""Closing block: makes an epoch atomic.

    | previous epoch u64 | wall ns i64 | monotone wall ns i64 | previous digest 16 bytes | parts u32 | 0 u32 |
    | parts × ( file u64, incarnation u64, end u64, running u32, blocks u32 ) |

Every file written in epoch E ends E with the same closing body, which names all of these files: the end of each (up to
its own closing block) and the running checksum of its blocks. The files are synced in parallel, without a second serial
sync: E is durable if and only if every named part verifies.

The digest of an epoch covers timeline, epoch and body, and the body contains the previous digest: a chain from which no
epoch can be removed undetected.

Wall time is recorded at most every 100 ms, with a monotone companion that never goes back when the clock is set;
otherwise both fields are 0. `as of T` is the last epoch whose monotone wall time is ≤ T.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from warren.base.environment import Clock
from warren.base.errors import Damage
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.records.block import BlockDraft, draft
from warren.records.format import BlockKind

BODY = struct.Struct("<Qqq16sII")
assert BODY.size == 48
PART = struct.Struct("<QQQII")
assert PART.size == 32
DIGEST_BYTES = 16
NO_DIGEST = bytes(DIGEST_BYTES)


@dataclass(slots=True)
class ClosingPart:
    file: FileNumber
    incarnation: Incarnation
    end: int
    running: int
    blocks: int


@dataclass(slots=True)
class Closing:
    epoch: Epoch
    previous: Epoch
    wall_ns: int
    monotone_ns: int
    previous_digest: bytes
    parts: tuple[ClosingPart, ...]

    def draft(self) -> BlockDraft:
        return draft(BlockKind.CLOSING, [self.body()])

    def body(self) -> bytes:
        head = BODY.pack(self.previous, self.wall_ns, self.monotone_ns, self.previous_digest, len(self.parts), 0)
        return head + b"".join(PART.pack(p.file, p.incarnation, p.end, p.running, p.blocks) for p in self.parts)

    def digest(self, timeline: TimelineId) -> bytes:
        return digest_of(timeline, self.epoch, self.body())


def digest_of(timeline: TimelineId, epoch: Epoch, body: bytes) -> bytes:
    """The chain's digest at an epoch, from the body of its closing block."""
    salt = timeline.to_bytes(8, "little") + epoch.to_bytes(8, "little")
    return blake2b(salt + body, digest_size=DIGEST_BYTES).digest()


def read_closing(epoch: Epoch, body: memoryview) -> Closing:
    """The closing of a verified block."""
    if len(body) < BODY.size:
        raise Damage("a closing block is too short")
    previous, wall_ns, monotone_ns, digest, count, _ = BODY.unpack_from(body)
    if len(body) != BODY.size + count * PART.size:
        raise Damage("a closing block does not hold the parts it counts")
    parts = tuple(
        ClosingPart(FileNumber(file), Incarnation(life), end, running, blocks)
        for file, life, end, running, blocks in PART.iter_unpack(body[BODY.size :])
    )
    return Closing(epoch, Epoch(previous), wall_ns, monotone_ns, digest, parts)


MARK_INTERVAL_NS = 100_000_000


class WallMarks:
    """Decides which closing blocks contain the time."""

    def __init__(self, clock: Clock, monotone_ns: int = 0) -> None:
        self._clock = clock
        self._monotone_ns = monotone_ns
        self._marked_at: int | None = None
        self._wall_ns = monotone_ns

    @property
    def wall_ns(self) -> int:
        """The wall time of the last mark; before the first mark of this process, the one that was recovered."""
        return self._wall_ns

    @property
    def monotone_ns(self) -> int:
        return self._monotone_ns

    def next_mark(self) -> tuple[int, int]:
        """(wall, monotone wall) for the epoch being closed, or (0, 0) if the last mark is fresh."""
        now = self._clock.monotonic_ns()
        if self._marked_at is not None and now - self._marked_at < MARK_INTERVAL_NS:
            return 0, 0
        self._marked_at = now
        wall = self._wall_ns = self._clock.wall_ns()
        self._monotone_ns = max(self._monotone_ns + 1, wall)
        return wall, self._monotone_ns


def epoch_at(marks: Iterable[tuple[int, Epoch]], wall_ns: int) -> Epoch | None:
    """The last epoch with a monotone wall time ≤ `wall_ns`, from (monotone wall, epoch) pairs in epoch order. Epochs
    between two marks belong to the later mark: until then they may have been open."""
    pairs = list(marks)
    index = bisect_right([monotone for monotone, _ in pairs], wall_ns)
    return pairs[index - 1][1] if index else None
