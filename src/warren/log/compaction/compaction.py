"""Compaction: the rotated files and the previous compacted file become one compacted file.

    1  rotate                                          targets are chosen from its answer, never from the directory
    2  a job merges targets + previous compacted file into staging/<job>/, synced           (log/compaction/jobs)
    3  the proposal is checked: are its inputs still what the manifest says?
    4  staging/<job>/output → pwal_0000.compacted.<number>, directory synced
    5  one manifest edit: the new file is in force, its sources are detached
    6  later, separately: purge (log/retention). Targets are not deleted here.

After a power cut: behind 2 there is a staging directory (cleared on opening); behind 4 a file that the manifest does
not know (set aside on opening: it is a copy); behind 5 the new state, with the previous file waiting for the purge. At
every step there is a whole set of files. Offline compaction is the same, by a process that opened the store for it.

`CompactionCatalog` is a view of the manifest in limestone's words:

    compacted files     the sorted files, one behind the other by key, that contain everything compacted so far
    detached PWALs      the rotated files that went into it: skipped from now on
    max epoch           the last epoch that is in it

A rotated file is chosen by *membership*: it is a target unless the catalog names it as compacted. limestone's rule by
epoch (first session's epoch greater than the catalog's) would drop a file whose first session is old; it is used only
in the safe form, where a file's last epoch decides (checklist C-25), and there it agrees with membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from warren.base.environment import Clock
from warren.base.errors import Refused
from warren.base.ids import Epoch, FileNumber
from warren.base.threads import Condition
from warren.files.protocol import Files, join
from warren.log.compaction.jobs import OUTPUT, Job, MergeWorker, OutputFile, OutputSlot, clear_staging, output_record
from warren.log.file_record import STAGING, FileKind, FileRecord, FileState, compacted_name
from warren.log.log_files import LogFileFactory
from warren.log.manifest import Manifest, ManifestState, file_change, set_change
from warren.log.rotation import Rotation
from warren.log.settings import LogSettings
from warren.workers.tasks import Progress


@dataclass(frozen=True, slots=True)
class CompactionCatalog:
    compacted: tuple[FileRecord, ...]
    detached: frozenset[FileNumber]
    max_epoch: Epoch

    @classmethod
    def of(cls, state: ManifestState) -> CompactionCatalog:
        records = tuple(state.files[number] for number in state.compacted)
        detached = frozenset(number for record in records for number in record.sources)
        return cls(records, detached, max((record.last_epoch for record in records), default=Epoch(0)))

    def targets(self, rotated: Iterable[FileRecord]) -> list[FileRecord]:
        """Of the rotated files, those that were never compacted and hold key-value entries."""
        return [record for record in rotated if record.number not in self.detached and has_key_values(record)]


def has_key_values(record: FileRecord) -> bool:
    return any(stream == 0 for stream, _ in record.stream_ends)


def snapshot_inputs(state: ManifestState) -> list[FileRecord]:
    """What a start-up snapshot reads: the compacted file and every log file not in it, oldest first."""
    catalog = CompactionCatalog.of(state)
    logs = [r for _, r in sorted(state.files.items()) if r.purpose is FileKind.LOG and r.state is FileState.SEALED]
    return [*catalog.compacted, *catalog.targets(logs)]


def check_has_state(state: ManifestState) -> None:
    """Refuse to take the log alone for the state when the safe snapshot store has a part of it."""
    if state.reflected:
        what = f"what was written up to epoch {state.reflected} has left the log for the safe snapshot store"
        raise Refused(what, "open the directory with warren.open")


@dataclass(frozen=True, slots=True)
class Proposal:
    """The result of a job: its inputs and its output files."""

    inputs: tuple[FileRecord, ...]
    outputs: tuple[FileRecord, ...]  # by key range, one behind the other
    staged: tuple[str, ...]  # their paths in staging
    entries_in: int


NOTHING_TO_DO: dict[str, Any] = {"compacted": 0, "entries": 0, "message": "nothing to compact"}


class Compaction:
    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        upkeep: Condition,
        manifest: Manifest,
        log_files: LogFileFactory,
        rotation: Rotation,
        worker: MergeWorker,
        settings: LogSettings,
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._manifest = manifest
        self._log_files = log_files
        self._rotation = rotation
        self._worker = worker
        self._settings = settings
        self._upkeep = upkeep  # locked while files are merged, put in force or purged: one of these at a time

    def run(self, progress: Progress = lambda share: None) -> dict[str, Any]:
        """Compact everything up to now; what was done, for the result file. Never two at once."""
        with self._upkeep:
            inputs = self.choose()
            if not inputs:
                return dict(NOTHING_TO_DO)
            staging = join(self._directory, STAGING, f"compaction-{inputs[-1].number}")
            [place] = self.places(1)
            job = Job(
                self._directory, staging, place.number, place.identity, FileKind.COMPACTED, tuple(inputs),
                epoch_of(inputs), True, self._settings.merge_memory_bytes, self._settings.scan_threads,
                self._clock.wall_ns(),
            )  # fmt: skip
            try:
                output = OutputFile(place, join(staging, OUTPUT), self._worker.run(job, progress))
                proposal = self.proposal(inputs, [output])
                self.commit(proposal)
            finally:
                clear_staging(self._files, staging)
            return proposal_to_json(proposal)

    def choose(self) -> list[FileRecord]:
        """Rotate, then name the files to merge: those compacted before, and what was never compacted. Nothing, if a
        safe snapshot store takes what stays, also before it has taken anything: it reads log files only, so what a
        merge put into a compacted file would never reach it, and a remove it has not seen must not be settled here."""
        rotated = self._rotation.rotate()
        if self._manifest.state.reflected or not self._settings.keeps_snapshot:
            return []
        catalog = CompactionCatalog.of(self._manifest.state)
        targets = catalog.targets(rotated.rotated)
        return [*catalog.compacted, *targets] if targets else []

    def places(self, count: int) -> list[OutputSlot]:
        """Numbers and incarnations for files to be written. An unused number is never used again."""
        places = [OutputSlot(self._log_files.take_number(), self._log_files.new_identity()) for _ in range(count)]
        self._manifest.commit([set_change(next_file=self._log_files.next_number)])
        return places

    def proposal(self, inputs: Sequence[FileRecord], files: Sequence[OutputFile]) -> Proposal:
        """The files that were written from these inputs, with their manifest records."""
        sources = {record.number for record in inputs if record.purpose is FileKind.LOG}
        sources |= {n for record in inputs for n in record.sources if n in self._manifest.state.files}
        # Behind the newest input only streams were written: its epoch and its digest are those of the new file, too.
        epoch, digest = max((record.sealed_epoch, record.sealed_digest) for record in inputs)
        outputs = tuple(
            output_record(
                FileKind.COMPACTED, inputs, epoch, each.place, each.figures, compacted_name(each.place.number),
                self._clock.wall_ns(),
            ).changed(sources=tuple(sorted(sources)), sealed_epoch=epoch, sealed_digest=digest, stream_ends=((0, 0),))
            for each in files
        )  # fmt: skip
        entries_in = sum(record.entries for record in inputs)
        return Proposal(tuple(inputs), outputs, tuple(each.staged for each in files), entries_in)

    def is_due(self) -> bool:
        """Every uncompacted byte may supersede a compacted one: is their share above the ratio?"""
        ratio = self._settings.compaction_garbage_ratio
        state = self._manifest.state
        catalog = CompactionCatalog.of(state)
        sealed = [record for record in state.of_state(FileState.SEALED) if record.purpose is FileKind.LOG]
        fresh = sum(record.end for record in catalog.targets(sealed))
        old = sum(record.end for record in catalog.compacted)
        return (
            ratio > 0
            and not state.reflected
            and fresh >= self._settings.compaction_bytes_min
            and fresh >= ratio * (fresh + old)
        )

    def commit(self, proposal: Proposal) -> None:
        """Put a proposal in force, if its inputs are still current."""
        state = self._manifest.state
        check_current(state, proposal.inputs)
        for staged, output in zip(proposal.staged, proposal.outputs, strict=True):
            self._files.rename(staged, join(self._directory, output.name))
        self._files.sync_directory(self._directory)
        changes = [file_change(output) for output in proposal.outputs]
        self._manifest.commit([*changes, set_change(compacted=tuple(output.number for output in proposal.outputs))])


def proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    """What a compaction did, for the result file."""
    outputs = proposal.outputs
    return {
        "compacted": sum(1 for record in proposal.inputs if record.purpose is FileKind.LOG),
        "entries_in": proposal.entries_in,
        "entries": sum(output.entries for output in outputs),
        "epoch": outputs[0].last_epoch,
        "file": ", ".join(output.name for output in outputs),
        "bytes": sum(output.end for output in outputs),
    }


def check_current(state: ManifestState, inputs: tuple[FileRecord, ...]) -> None:
    """A proposal made from files that are no longer what they were is refused, and costs nothing."""
    for record in inputs:
        known = state.files.get(record.number)
        if (
            known is None
            or known.state is not FileState.SEALED
            or (known.incarnation, known.end, known.voided)
            != (
                record.incarnation,
                record.end,
                record.voided,
            )
        ):
            raise Refused(
                f"the proposal was made from log file {record.number}, which has changed since", "compact again"
            )
    bases = tuple(record.number for record in inputs if record.purpose is FileKind.COMPACTED)
    if bases != state.compacted:
        raise Refused("the proposal was made from a compacted file that is no longer in force", "compact again")


def epoch_of(inputs: Sequence[FileRecord]) -> Epoch:
    return max(record.sealed_epoch for record in inputs)
