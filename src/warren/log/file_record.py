"""What the manifest knows of one file.

    active ──rotation or opening──▶ sealed ──compacted into another, or passed by its base──▶ … ──▶ doomed ──▶ dropped

The seeds' marks are here and nowhere else: a voided range is the mark of what was not durable, `sealed` is detached,
`voided` together with the state says repaired. No byte of the file itself is ever changed for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from warren.base.errors import Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.log.file_header import FileKind
from warren.records.block import FileIdentity


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
    is_recycled: bool = False  # bytes of an earlier life may stand behind `end`
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
        made = dict(raw)
        made["purpose"] = FileKind(raw["purpose"])
        made["state"] = FileState(raw["state"])
        made["sources"] = tuple(raw.get("sources", ()))
        made["stream_ends"] = tuple((stream, lsn) for stream, lsn in raw.get("stream_ends", ()))
        made["voided"] = tuple(Voided(**part) for part in raw.get("voided", ()))
        return cls(**made)


_NAMES = tuple(field.name for field in fields(FileRecord))
_FIELDS = set(_NAMES)
