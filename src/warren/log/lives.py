"""The three lives of a sealed file, and the pin that may prolong the last.

needed     recovery reads it: a log file that is not compacted yet or that a stream's base has not passed, the compacted
           file in force, the start-up snapshot in force
retained   history reads it: the raw log and replaced compacted files, for `retention_seconds` and up to
           `retention_bytes`, whichever ends first
pinned     a reader holds it
free       nobody does

History is given up from its old end only: with a file that is too old or one too many goes everything that would lie
before the horizon then, whatever the clock said when it was sealed. Old means sealed at an earlier epoch, not having a
low number: a channel that seldom writes has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from warren.base.ids import Epoch, FileNumber, StreamId
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
        return record.number in state.compacted
    if record.purpose is Purpose.SNAPSHOT:
        return record.number == state.snapshot
    is_compacted = any(record.number in state.files[number].sources for number in state.compacted)
    for stream_id, last_lsn in record.stream_ends:
        stream = state.streams[StreamId(stream_id)]
        if last_lsn >= stream.base if stream.is_records else not is_compacted:
            return True
    return False


def lives(
    state: ManifestState, pins: Sequence[Pin], now_ns: int, retention_seconds: float, retention_bytes: int
) -> dict[FileNumber, Life]:
    """The life of every file the manifest knows."""
    found = {record.number: _life(state, record) for record in state.files.values()}
    history = [record for record in state.files.values() if found[record.number] is Life.RETAINED]
    over = _over(history, now_ns, retention_seconds, retention_bytes)
    going = [record for record in over if not is_held(state, record, pins)]
    edge = max((reach(state, record)[0] for record in going), default=state.horizon)
    for record in history:
        if record in over or reach(state, record)[0] <= edge:
            found[record.number] = Life.FREE
    for record in state.files.values():
        if found[record.number] is Life.FREE and is_held(state, record, pins):
            found[record.number] = Life.PINNED
    return found


def _life(state: ManifestState, record: FileRecord) -> Life:
    """Without regard to how old it is, and to who holds it."""
    if record.state is FileState.ACTIVE:
        return Life.ACTIVE
    if is_needed(state, record):
        return Life.NEEDED
    is_history = record.state is not FileState.DOOMED and record.purpose is not Purpose.SNAPSHOT
    return Life.RETAINED if is_history else Life.FREE


def _over(history: list[FileRecord], now_ns: int, seconds: float, bytes_max: int) -> list[FileRecord]:
    """What is too old, or too much when counted from the newest back."""
    newest_first = sorted(history, key=lambda record: (record.sealed_epoch, record.number), reverse=True)
    over, kept_bytes = [], 0
    for record in newest_first:
        kept_bytes += record.end
        if now_ns - record.sealed_ns >= seconds * 1e9 or kept_bytes > bytes_max:
            over.append(record)
    return over


def is_held(state: ManifestState, record: FileRecord, pins: Sequence[Pin]) -> bool:
    """A pin holds the files it names, and those whose going would move the horizon to where it reads, or past it."""
    epoch, _ = reach(state, record)
    return any(record.number in pin.files or (pin.from_epoch is not None and pin.from_epoch <= epoch) for pin in pins)


def reach(state: ManifestState, record: FileRecord) -> tuple[Epoch, str]:
    """Up to where history goes along with a file, and the chain's digest there. A replaced compacted file takes the
    time up to the next one along: the log behind it has nothing to stand on any more."""
    own = (record.sealed_epoch, record.sealed_digest)
    if record.purpose is Purpose.SNAPSHOT:
        return Epoch(0), ""
    if record.purpose is Purpose.LOG:
        return own
    bases = [(r.sealed_epoch, r.sealed_digest) for r in state.files.values() if r.purpose is Purpose.COMPACTED]
    return min((base for base in bases if base > own), default=own)
