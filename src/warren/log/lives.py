"""The three lives of a sealed file, and the pin that may prolong the last.

needed     recovery reads it: a log file that is not compacted yet or that a stream's base has not passed, the compacted
           file in force, the start-up snapshot in force
retained   history reads it: the raw log and replaced compacted files, for `retention_seconds` and up to
           `retention_bytes`, whichever ends first
pinned     a reader holds it
free       nobody does
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from warren.base.ids import FileNumber, StreamId
from warren.log.file_header import Purpose
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest_state import ManifestState
from warren.log.pins import Pin


class Life(StrEnum):
    ACTIVE = "active"
    NEEDED = "needed"
    RETAINED = "retained"
    PINNED = "pinned"
    FREE = "free"


def is_needed(state: ManifestState, record: FileRecord) -> bool:
    if record.state is FileState.DOOMED:
        return False
    if record.purpose is Purpose.COMPACTED:
        return record.number == state.compacted
    if record.purpose is Purpose.SNAPSHOT:
        return record.number == state.snapshot
    compacted = state.files.get(state.compacted)
    is_compacted = compacted is not None and record.number in compacted.sources
    for stream_id, last_lsn in record.stream_ends:
        stream = state.streams[StreamId(stream_id)]
        if last_lsn >= stream.base if stream.is_records else not is_compacted:
            return True
    return False


def lives(
    state: ManifestState, pins: Sequence[Pin], now_ns: int, retention_seconds: float, retention_bytes: int
) -> dict[FileNumber, Life]:
    """The life of every file the manifest knows."""
    found: dict[FileNumber, Life] = {}
    kept_bytes = 0
    for number, record in sorted(state.files.items(), reverse=True):  # newest first: history is cut off at its old end
        if record.state is FileState.ACTIVE:
            found[number] = Life.ACTIVE
        elif is_needed(state, record):
            found[number] = Life.NEEDED
        elif record.state is not FileState.DOOMED and record.purpose is not Purpose.SNAPSHOT:
            kept_bytes += record.end
            is_young = now_ns - record.sealed_ns < retention_seconds * 1e9
            found[number] = Life.RETAINED if is_young and kept_bytes <= retention_bytes else Life.FREE
        else:
            found[number] = Life.FREE
        if found[number] is Life.FREE and any(pin.holds(record) for pin in pins):
            found[number] = Life.PINNED
    return found
