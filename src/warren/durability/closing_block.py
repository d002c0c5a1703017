"""Closing block: makes an epoch atomic.

    | previous epoch u64 | wall ns i64 | monotone wall ns i64 | previous digest 16 bytes | parts u32 | 0 u32 |
    | parts × ( file u64, incarnation u64, end u64, running u32, blocks u32 ) |

Every file written in epoch E ends E with the same closing body, which names all of these files: the end of each (up to
its own closing block) and the running checksum of its blocks. The files are synced in parallel, without a second serial
sync: E is durable if and only if every named part verifies.

The digest of an epoch covers timeline, epoch and body, and the body contains the previous digest: a chain from which no
epoch can be removed undetected. Wall time is recorded at most every 100 ms; otherwise both fields are 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

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
