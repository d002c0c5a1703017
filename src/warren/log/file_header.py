"""The first block of every log file: who it is.

    | number u64 | channel u32 | purpose u32 | container bytes u64 | created, wall ns i64 |

It is written and synced before the manifest names the file, so the manifest never points at nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from warren.base.errors import Damage, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber
from warren.records.block import BlockDraft, FileIdentity, Header, draft, look, require_known_format
from warren.records.format import HEADER, BlockKind

BODY = struct.Struct("<QIIQq")
assert BODY.size == 32
FILE_HEADER_BYTES = HEADER.size + BODY.size


class FileKind(IntEnum):
    LOG = 1
    COMPACTED = 2
    SNAPSHOT = 3


@dataclass(frozen=True, slots=True)
class FileHeader:
    number: FileNumber
    channel: ChannelId
    purpose: FileKind
    container_bytes: int
    created_ns: int

    def draft(self) -> BlockDraft:
        body = BODY.pack(self.number, self.channel, self.purpose, self.container_bytes, self.created_ns)
        return draft(BlockKind.FILE_HEADER, [body])

    def placed(self, identity: FileIdentity) -> tuple[bytes, int]:
        """The block's bytes and its checksum. It belongs to no epoch."""
        made = self.draft()
        header, checksum = made.place(identity, 0, Epoch(0))
        return header + b"".join(made.pieces), checksum


def read_file_header(view: memoryview, path: str) -> tuple[FileHeader, FileIdentity]:
    found = look(view, 0, None)
    if not isinstance(found, Header):
        raise Damage(f"the file does not begin with a file header ({found.value})", path, 0)
    require_known_format(found, path)
    if found.kind != BlockKind.FILE_HEADER or found.body_bytes != BODY.size:
        raise Damage("the file's first block is not a file header", path, 0)
    number, channel, purpose, container_bytes, created_ns = BODY.unpack(view[found.body_at : found.end])
    if purpose not in FileKind._value2member_map_:
        raise Refused(f"{path} is a file of kind {purpose}, which this version does not know", "use a newer warren")
    header = FileHeader(FileNumber(number), ChannelId(channel), FileKind(purpose), container_bytes, created_ns)
    return header, FileIdentity(found.timeline, found.incarnation)
