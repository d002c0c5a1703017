"""Checkpoint: the store as it was at one epoch, as a set of immutable files and a manifest.

One operation behind points in time, backup and fork. The files are not copied: a file that reaches beyond the epoch is
included with the end it had then. `write_to` links them into a directory and puts a manifest beside them; opening that
directory begins a new timeline, so that its epochs are not confused with those of the store it came from.

A state consists of the newest compacted file at or before the epoch and the raw log behind it, all of which are
retained or purged together (log/retention). What was purged cannot be cut: `Gone` names the horizon; every epoch behind
it can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warren.base.environment import Random
from warren.base.errors import Gone, NotFound, WarrenError
from warren.base.ids import Epoch, FileNumber
from warren.base.threads import Threads
from warren.durability.closing_block import read_closing
from warren.files.protocol import Files, join
from warren.log.compaction.compaction import check_has_state
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.log_files import open_record
from warren.log.manifest import Manifest, ManifestState, file_change, read_manifest
from warren.log.read.blocks import sealed_walks
from warren.log.retention import Pin, Pins, is_needed
from warren.records.block import Header
from warren.records.format import BlockKind


@dataclass(frozen=True, slots=True)
class Checkpoint:
    epoch: Epoch
    state: ManifestState  # what the cut's own manifest says
    pin: Pin  # holds the files until it is released or lapses
    directory: str

    @property
    def paths(self) -> list[str]:
        return [join(self.directory, record.name) for _, record in sorted(self.state.files.items())]

    def write_to(self, files: Files, threads: Threads, rng: Random, directory: str) -> None:
        """Link the files into a new directory; its manifest comes last and makes it a store."""
        files.make_directories(directory)
        for record in self.state.files.values():
            self._link(files, record, directory)
        files.sync_directory(directory)
        Manifest(files, directory, threads, rng, self.state).close()

    def _link(self, files: Files, record: FileRecord, directory: str) -> None:
        path = join(self.directory, record.name)
        try:
            files.link(path, join(directory, record.name))
        except NotFound as error:
            horizon = read_manifest(files, self.directory).horizon
            what = f"{record.name} is gone: the pin of the cut at epoch {self.epoch} has lapsed, horizon is {horizon}"
            raise Gone(what, "cut again, and renew the pin of a cut that takes long") from error


def make_cut(
    files: Files, directory: str, manifest: Manifest, pins: Pins, epoch: Epoch, pin_seconds: float
) -> Checkpoint:
    """Cut at an epoch all of whose files are sealed (rotate first)."""
    chosen = choose_files(manifest.state, epoch)
    pin, _ = pins.take("cut", pin_seconds, numbers=[record.number for record in chosen])
    try:
        manifest.commit([file_change(record.changed(is_handed_out=True)) for record in chosen])
        trimmed, digest = _trim(files, directory, manifest.state, chosen, epoch)
    except WarrenError:
        pins.release(pin)
        raise
    return Checkpoint(epoch, _state_of_cut(manifest.state, trimmed, epoch, digest.hex()), pin, directory)


def _state_of_cut(state: ManifestState, trimmed: list[FileRecord], epoch: Epoch, digest: str) -> ManifestState:
    """The manifest as of the epoch: nothing in it refers to a later one."""
    bases = [record for record in trimmed if record.purpose is FileKind.COMPACTED]
    horizon, anchor = state.horizon, state.horizon_digest
    if bases:  # the log behind a compacted file is not part of the cut
        horizon, anchor = bases[0].sealed_epoch, bases[0].sealed_digest
    is_beyond = horizon > epoch
    return replace(
        state,
        is_cut=True,
        is_clean=True,
        run_first_epoch=Epoch(epoch + 1),
        epoch_floor=epoch,
        durable=epoch,
        digest=digest,
        horizon=epoch if is_beyond else horizon,
        horizon_digest=digest if is_beyond else anchor,
        compacted=tuple(record.number for record in bases),
        snapshot=FileNumber(0),
        snapshot_epoch=Epoch(0),
        files={
            record.number: record.changed(sealed_epoch=epoch, sealed_digest=digest)
            if record.sealed_epoch > epoch
            else record
            for record in trimmed
        },
    )


def choose_files(state: ManifestState, epoch: Epoch) -> list[FileRecord]:
    """The compacted file to start from, and the log files behind it that reach into the wanted past."""
    check_has_state(state)
    sealed = [record for record in state.of_state(FileState.SEALED) if record.purpose is not FileKind.SNAPSHOT]
    bases = _choose_bases(state, sealed, epoch)
    passed = {number for base in bases for number in base.sources}
    logs = [
        record
        for record in sealed
        if record.purpose is FileKind.LOG
        and record.first_epoch <= epoch
        and (record.number not in passed or is_needed(state, record))
    ]
    return [*bases, *logs]


def _choose_bases(state: ManifestState, sealed: list[FileRecord], epoch: Epoch) -> list[FileRecord]:
    """The newest compacted files at or before the epoch, if everything up to the next ones is still there."""
    bases = [record for record in sealed if record.purpose is FileKind.COMPACTED]
    newest = max((state.files[number].last_epoch for number in state.compacted), default=Epoch(0))
    chosen = max((record.last_epoch for record in bases if record.last_epoch <= epoch), default=Epoch(0))
    next_one = min((record.last_epoch for record in bases if record.last_epoch > epoch), default=Epoch(0))
    if epoch < newest and next_one <= state.horizon:
        raise Gone(f"epoch {epoch} is gone, horizon is {state.horizon}", f"cut at epoch {state.horizon} or later")
    return [record for record in bases if record.last_epoch == chosen]


def _trim(
    files: Files, directory: str, state: ManifestState, chosen: list[FileRecord], epoch: Epoch
) -> tuple[list[FileRecord], bytes]:
    """The records as of the epoch, and the chain's digest at it."""
    trimmed: list[FileRecord] = []
    digests: list[tuple[Epoch, bytes]] = [(Epoch(0), bytes.fromhex(state.horizon_digest))]
    for record in chosen:
        if record.purpose is FileKind.COMPACTED:
            trimmed.append(record)
            digests.append((record.last_epoch, bytes.fromhex(record.sealed_digest)))
            continue
        view, _ = open_record(files, directory, record).map()
        walks = sealed_walks(view, record, join(directory, record.name))
        blocks = [block for walked in walks for block in zip(walked.headers, walked.runnings, strict=True)]
        blocks = [block for block in blocks if block[0].epoch <= epoch]
        headers, running = [header for header, _ in blocks], blocks[-1][1]
        closings = [header for header in headers if header.kind == BlockKind.CLOSING]
        if closings:
            last = closings[-1]
            closing = read_closing(last.epoch, view[last.body_at : last.end])
            digests.append((last.epoch, closing.digest(record.timeline)))
        trimmed.append(_as_of(record, headers, running))
    return trimmed, max(digests)[1]


def _as_of(record: FileRecord, headers: list[Header], running: int) -> FileRecord:
    end = headers[-1].end
    if end == record.end:
        return record
    data = [header for header in headers if header.kind == BlockKind.ENTRIES]
    ends = {header.stream: (record.number << 32) + header.offset + header.entries - 1 for header in data}
    return record.changed(
        end=end,
        running=running,
        entries=sum(header.entries for header in data),
        last_epoch=data[-1].epoch if data else Epoch(0),
        stream_ends=tuple(sorted(ends.items())),
        voided=tuple(part for part in record.voided if part.end <= end),
    )
