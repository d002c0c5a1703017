"""Sorted files on their way into the manifest: the number and life given before one is made, the figures that come back
with it, and the record it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from warren.base.ids import ChannelId, Epoch, FileNumber
from warren.log.file_header import FileKind
from warren.log.file_record import FileRecord, FileState
from warren.records.block import FileIdentity


class OutputSlot(NamedTuple):
    """What a file to be made is to be called."""

    number: FileNumber
    identity: FileIdentity


class OutputFile(NamedTuple):
    """A file that was made, where it waits, and its figures."""

    place: OutputSlot
    staged: str
    figures: dict[str, Any]


def output_record(
    purpose: FileKind,
    inputs: Sequence[FileRecord],
    epoch: Epoch,
    place: OutputSlot,
    made: dict[str, Any],
    name: str,
    wall_ns: int,
) -> FileRecord:
    return FileRecord(
        place.number,
        ChannelId(0),
        place.identity.timeline,
        place.identity.incarnation,
        purpose,
        FileState.SEALED,
        name,
        end=made["end"],
        running=made["running"],
        entries=made["entries"],
        first_epoch=min((r.first_epoch for r in inputs if r.entries), default=Epoch(0)),
        last_epoch=epoch,
        sealed_ns=wall_ns,
        index_at=made["index_at"],
    )
