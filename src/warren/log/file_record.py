"""File records: names in a log directory, the file header, and what the manifest knows of one file.

    lock  manifest  epoch  epoch.<epoch>  ballast
    pwal_<channel>                     the file being written
    pwal_<channel>.<number>            rotated
    pwal_0000.compacted.<number>       compacted
    ctrl/  pins/  staging/  quarantine/  recycle/  snapshot/

A file is identified by the number and incarnation in its first block; its name is for operators. The header is written
and synced before the manifest names the file, so the manifest never points at nothing:

    | number u64 | channel u32 | purpose u32 | container bytes u64 | created, wall ns i64 |

States of a file:

    active ──rotation or opening──▶ sealed ──compacted into another, or passed by its base──▶ … ──▶ doomed ──▶ dropped

limestone's marks are here and nowhere else: a voided range marks what was not durable, `sealed` is detached, `voided`
together with the state means repaired. No byte of the file itself is ever changed for it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum, StrEnum
from typing import Any

from warren.base.errors import Damage, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.files.protocol import join
from warren.records.block import BlockDraft, FileIdentity, Header, check_block, draft, require_known_format
from warren.records.format import HEADER, BlockKind

LOCK = "lock"
MANIFEST = "manifest"
EPOCH = "epoch"
DISK_RESERVE = "ballast"
CTRL = "ctrl"
PINS = "pins"
STAGING = "staging"
QUARANTINE = "quarantine"
RECYCLE = "recycle"
SNAPSHOT = "snapshot"
DIRECTORIES = (CTRL, PINS, STAGING, QUARANTINE, SNAPSHOT)

_WAL = re.compile(r"pwal_\d{4}(\.(compacted\.)?\d{10})?")
_DETACHED = re.compile(r"pwal_\d{4}\.\d{10}")
_ROTATED_EPOCH = re.compile(r"epoch\.(\d{20})")


def active_name(channel: ChannelId) -> str:
    return f"pwal_{channel:04d}"


def rotated_name(channel: ChannelId, number: FileNumber) -> str:
    return f"pwal_{channel:04d}.{number:010d}"


def compacted_name(number: FileNumber) -> str:
    return f"pwal_0000.compacted.{number:010d}"


def snapshot_name(number: FileNumber) -> str:
    return join(SNAPSHOT, f"snapshot.{number:010d}")


def rotated_epoch_name(epoch: Epoch) -> str:
    return f"epoch.{epoch:020d}"


def epoch_of_name(name: str) -> Epoch | None:
    found = _ROTATED_EPOCH.fullmatch(name)
    return Epoch(int(found[1])) if found else None


def is_wal(name: str) -> bool:
    """Is this the name of a log file? Everything else in the directory is passed over."""
    return _WAL.fullmatch(name) is not None


def is_detached_wal(name: str) -> bool:
    """Is this the name of a rotated log file?"""
    return _DETACHED.fullmatch(name) is not None


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
        block = self.draft()
        header, checksum = block.place(identity, 0, Epoch(0))
        return header + b"".join(block.pieces), checksum


def read_file_header(view: memoryview, path: str) -> tuple[FileHeader, FileIdentity]:
    found = check_block(view, 0, None)
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


class FileState(StrEnum):
    ACTIVE = "active"  # being written
    SEALED = "sealed"  # whole and immutable
    DOOMED = "doomed"  # no longer needed, retained or pinned: its name will go


@dataclass(frozen=True, slots=True)
class Voided:
    """Bytes of a file that do not count."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class FileRecord:
    number: FileNumber
    channel: ChannelId
    timeline: TimelineId
    incarnation: Incarnation
    purpose: FileKind
    state: FileState
    name: str
    end: int = 0  # first byte behind the valid blocks
    running: int = 0  # checksum over the checksums of the blocks up to `end`
    entries: int = 0
    first_epoch: Epoch = Epoch(0)  # of the entries in it
    last_epoch: Epoch = Epoch(0)
    first_wall_ns: int = 0
    last_wall_ns: int = 0
    sealed_ns: int = 0  # wall time of the sealing …
    sealed_epoch: Epoch = Epoch(0)  # … the epoch that was closed last by then …
    sealed_digest: str = ""  # … and the chain's digest at it
    index_at: int = 0  # sorted files: where the index begins
    sources: tuple[FileNumber, ...] = ()  # compacted files: the log files that went into it
    stream_ends: tuple[tuple[int, int], ...] = ()  # (stream, its last LSN in this file)
    voided: tuple[Voided, ...] = ()
    is_recycled: bool = False  # bytes of an earlier incarnation may follow `end`
    is_handed_out: bool = False  # linked into a cut: never recycled

    @property
    def identity(self) -> FileIdentity:
        return FileIdentity(self.timeline, self.incarnation)

    @property
    def is_repaired(self) -> bool:
        return bool(self.voided)

    def changed(self, **changes: Any) -> FileRecord:
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _NAMES}
        return plain | {"voided": [asdict(part) for part in self.voided]}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> FileRecord:
        unknown = sorted(set(raw) - _FIELDS)
        if unknown:
            raise Refused(
                f"the manifest says '{unknown[0]}' of a file, which this version does not know", "use a newer warren"
            )
        values = dict(raw)
        values["purpose"] = FileKind(raw["purpose"])
        values["state"] = FileState(raw["state"])
        values["sources"] = tuple(raw.get("sources", ()))
        values["stream_ends"] = tuple((stream, lsn) for stream, lsn in raw.get("stream_ends", ()))
        values["voided"] = tuple(Voided(**part) for part in raw.get("voided", ()))
        return cls(**values)


_NAMES = tuple(field.name for field in fields(FileRecord))
_FIELDS = set(_NAMES)
