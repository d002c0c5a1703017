"""Blocks: building one, and checking one.

A `BlockDraft` is a block without an offset: its body and the body's part of the checksum are computed outside any lock;
`BlockDraft.place` fills in offset, epoch and incarnation and completes the checksum in a microsecond. `check_block` is
the reverse: a header and a verified body, or a verdict. Bytes from the disk get the same bounds checks as bytes from
the wire: nothing is allocated or sliced before the header's sizes are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from warren.base.errors import Misuse, Refused
from warren.base.ids import Epoch, Incarnation, StreamId, TimelineId
from warren.records.format import (
    ALIGNMENT_BYTES,
    BLOCK_BYTES_MAX,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_AT,
    FORMAT_VERSION,
    HEADER,
    MAGIC,
    BlockKind,
    BlockVerdict,
    crc32,
)

Buffer = bytes | bytearray | memoryview


class FileIdentity(NamedTuple):
    """What a block must contain to belong to this incarnation of a file."""

    timeline: TimelineId
    incarnation: Incarnation


class Header(NamedTuple):
    checksum: int
    kind: int
    format: int
    body_bytes: int
    entries: int
    stream: StreamId
    timeline: TimelineId
    incarnation: Incarnation
    offset: int
    epoch: Epoch
    first: int

    @property
    def body_at(self) -> int:
        return self.offset + HEADER.size

    @property
    def end(self) -> int:
        return self.offset + HEADER.size + self.body_bytes


@dataclass(slots=True)
class BlockDraft:
    """A block without an offset."""

    kind: BlockKind
    entries: int
    stream: StreamId
    pieces: list[Buffer]
    body_bytes: int
    body_checksum: int

    @property
    def size_bytes(self) -> int:
        return HEADER.size + self.body_bytes

    def place(self, identity: FileIdentity, offset: int, epoch: Epoch, first: int = 0) -> tuple[bytes, int]:
        """The finished header, and its checksum."""
        raw = bytearray(
            HEADER.pack(
                MAGIC,
                0,
                self.kind,
                0,
                FORMAT_VERSION,
                self.body_bytes,
                self.entries,
                self.stream,
                identity.timeline,
                identity.incarnation,
                offset,
                epoch,
                first,
            )
        )
        checksum = crc32(memoryview(raw)[CHECKED_FROM:], self.body_checksum)
        CHECKSUM.pack_into(raw, CHECKSUM_AT, checksum)
        return bytes(raw), checksum


def draft(kind: BlockKind, pieces: list[Buffer], entries: int = 0, stream: StreamId = StreamId(0)) -> BlockDraft:
    """A draft of the pieces, padded with zeros to a multiple of 8. `Misuse` if a reader would reject its size."""
    size = sum(len(piece) for piece in pieces)
    if size > BLOCK_BYTES_MAX:
        raise Misuse(
            f"a block of {size} bytes is over the limit of {BLOCK_BYTES_MAX}: readers would reject it", "split it"
        )
    if padding := -size % ALIGNMENT_BYTES:
        pieces = [*pieces, bytes(padding)]
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
    return BlockDraft(kind, entries, stream, pieces, size + padding, checksum)


def check_block(
    view: memoryview, offset: int, identity: FileIdentity | None, file_offset: int | None = None
) -> Header | BlockVerdict:
    """The header of the good block at `offset`, or the verdict. `identity` None accepts any incarnation (inspection).
    `file_offset`: the block's offset in the file, if `view` is only a piece of it."""
    head = view[offset : offset + HEADER.size]
    if len(head) < HEADER.size:
        return BlockVerdict.TORN if any(head) else BlockVerdict.EMPTY
    raw = HEADER.unpack(head)
    if raw[0] != MAGIC:
        return BlockVerdict.TORN if any(head) else BlockVerdict.EMPTY
    header = Header(raw[1], raw[2], raw[4], raw[5], *raw[6:])
    own_offset = offset if file_offset is None else file_offset
    if header.offset != own_offset or (identity and (header.timeline, header.incarnation) != identity):
        return _stale_or_torn(view, header, offset)
    return header if _is_whole(view, header, offset) else BlockVerdict.TORN


def require_known_format(header: Header, path: str) -> None:
    """Refuse a block that a newer version wrote: its other fields may have another meaning."""
    if header.format > FORMAT_VERSION:
        where = f"{path} has a block of format {header.format} at byte {header.offset}"
        raise Refused(f"{where}, this warren reads up to {FORMAT_VERSION}", "use a newer warren")


def _is_whole(view: memoryview, header: Header, offset: int) -> bool:
    size = header.body_bytes
    start = offset + HEADER.size
    if size > BLOCK_BYTES_MAX or size % ALIGNMENT_BYTES or start + size > len(view):
        return False
    body = crc32(view[start : start + size])
    return crc32(view[offset + CHECKED_FROM : start], body) == header.checksum


def _stale_or_torn(view: memoryview, header: Header, offset: int) -> BlockVerdict:
    """A whole block of another incarnation is stale; one with a wrong checksum may be a damaged block of this one."""
    return BlockVerdict.STALE if _is_whole(view, header, offset) else BlockVerdict.TORN
