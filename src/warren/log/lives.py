"""The three lives of a sealed file, and the pin that may prolong the last.

needed     recovery reads it: a log file that is neither compacted nor reflected yet or that a stream's base has not
           passed, the compacted file in force, the start-up snapshot in force
retained   history reads it: the raw log and replaced compacted files, for `retention_seconds` and up to
           `retention_bytes`, whichever ends first
pinned     a reader holds it
free       nobody does

History is given up from its old end only, and by whole stretches: from one compacted file to the next, which together
with the log between them show every moment of that time, and without any of them none. So every epoch behind the
horizon can be cut (log/cut). A stretch is too old when its newest file is, whatever the clock said in between.

Retention counts the bytes in use of a file: a file that was sealed with little in it does not displace the history of
others. `release_bytes` shortens history further, oldest first, when the disk is short of free space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import groupby

from warren.base.ids import Epoch, FileNumber, StreamId
from warren.log.compaction_catalog import has_key_values
from warren.log.file_header import FileKind
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest_state import ManifestState
from warren.log.pins import Pin


class FileLifecycle(StrEnum):
    ACTIVE = "active"
    NEEDED = "needed"
    RETAINED = "retained"
    PINNED = "pinned"
    FREE = "free"


def is_needed(state: ManifestState, record: FileRecord) -> bool:
    if record.state is FileState.DOOMED:
        return False
    if record.purpose is FileKind.COMPACTED:
        return record.number in state.compacted
    if record.purpose is FileKind.SNAPSHOT:
        return record.number == state.snapshot
    # What goes moves the horizon to where it was sealed: everything up to there must be in the store.
    is_settled = max(record.last_epoch, record.sealed_epoch) <= state.reflected or any(
        record.number in state.files[number].sources for number in state.compacted
    )
    for stream_id, last_lsn in record.stream_ends:
        stream = state.streams[StreamId(stream_id)]
        if last_lsn >= stream.base if stream.is_records else not is_settled:
            return True
    return False


def lives(
    state: ManifestState,
    pins: Sequence[Pin],
    now_ns: int,
    retention_seconds: float,
    retention_bytes: int,
    release_bytes: int = 0,
    sealed_ns: Callable[[FileRecord], int] = lambda record: record.sealed_ns,
) -> dict[FileNumber, FileLifecycle]:
    """The life of every file the manifest knows. `release_bytes`: so much of the history becomes free in any case.
    `sealed_ns`: when a file was sealed, by the clock of `now_ns`; the wall clock unless it is given."""
    found = {record.number: _life(state, record) for record in state.files.values()}
    history = [record for record in state.files.values() if found[record.number] is FileLifecycle.RETAINED]
    old = {record.number for record in history if now_ns - sealed_ns(record) >= retention_seconds * 1e9}
    over = _over(state, history, old, retention_bytes)
    over += [record for record in _released(state, history, pins, release_bytes) if record not in over]
    going = [record for record in over if not is_held(state, record, pins)]
    edge = max((reach(state, record)[0] for record in going), default=state.horizon)
    for record in history:
        if record in over or reach(state, record)[0] <= edge:
            found[record.number] = FileLifecycle.FREE
    for record in state.files.values():
        if found[record.number] is FileLifecycle.FREE and is_held(state, record, pins):
            found[record.number] = FileLifecycle.PINNED
    return found


def _life(state: ManifestState, record: FileRecord) -> FileLifecycle:
    """Without regard to how old it is, and to who holds it."""
    if record.state is FileState.ACTIVE:
        return FileLifecycle.ACTIVE
    if is_needed(state, record):
        return FileLifecycle.NEEDED
    is_history = record.state is not FileState.DOOMED and record.purpose is not FileKind.SNAPSHOT
    return FileLifecycle.RETAINED if is_history else FileLifecycle.FREE


def _over(state: ManifestState, history: list[FileRecord], old: set[FileNumber], size: int) -> list[FileRecord]:
    """What is too old, or too much when counted from the newest back; stretch by stretch."""
    over: list[FileRecord] = []
    kept_bytes = 0
    by_reach = sorted(history, key=lambda record: reach(state, record), reverse=True)
    for _, group in groupby(by_reach, key=lambda record: reach(state, record)):
        stretch = list(group)
        kept_bytes += sum(record.end for record in stretch)
        is_old = all(record.number in old for record in stretch)
        if is_old or kept_bytes > size:
            over += stretch
    return over


def _released(
    state: ManifestState, history: list[FileRecord], pins: Sequence[Pin], release_bytes: int
) -> list[FileRecord]:
    """The oldest stretches, until the files that no pin holds have so many bytes."""
    released: list[FileRecord] = []
    free_bytes = 0
    by_reach = sorted(history, key=lambda record: reach(state, record)) if release_bytes > 0 else []
    for _, group in groupby(by_reach, key=lambda record: reach(state, record)):
        if free_bytes >= release_bytes:
            break
        stretch = list(group)
        released += stretch
        free_bytes += sum(disk_bytes(state, record) for record in stretch if not is_held(state, record, pins))
    return released


def disk_bytes(state: ManifestState, record: FileRecord) -> int:
    """Space that the removal of a file frees: of a log file whole containers, since it is allocated ahead by them."""
    if record.purpose is not FileKind.LOG:
        return record.end
    containers = max(state.initial_containers, -(-record.end // state.container_bytes))
    return containers * state.container_bytes


def is_held(state: ManifestState, record: FileRecord, pins: Sequence[Pin]) -> bool:
    """A pin holds the files it names, and those whose going would move the horizon to where it reads, or past it."""
    epoch, _ = reach(state, record)
    return any(record.number in pin.files or (pin.from_epoch is not None and pin.from_epoch <= epoch) for pin in pins)


def reach(state: ManifestState, record: FileRecord) -> tuple[Epoch, str]:
    """Up to where history goes along with a file, and the chain's digest there: for key-values, to the compacted file
    that ends the stretch they belong to, unless that is gone already."""
    own = (record.sealed_epoch, record.sealed_digest)
    if record.purpose is FileKind.SNAPSHOT:
        return Epoch(0), ""
    if not has_key_values(record):
        return own
    is_base = record.purpose is FileKind.COMPACTED
    bases = [(r.sealed_epoch, r.sealed_digest) for r in state.files.values() if r.purpose is FileKind.COMPACTED]
    end = min((base for base in bases if base[0] > own[0] or (base[0] == own[0] and not is_base)), default=own)
    return end if end[0] > state.horizon else own
