"""Reading a log directory without owning it: beside a running store, or when nobody runs.

    epoch file first, manifest second: the manifest is then at least as new as the witness, and names every file that
    the witness speaks of

Only epochs up to the epoch file's durable one may be read: what lies beyond it stands in the page cache, and a power
cut may still take it back. A rotation renames files while we look, so whatever is not found where it was named is
looked for again from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import Epoch, FileNumber
from warren.durability.epoch_file import Witness
from warren.durability.participant import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import MANIFEST
from warren.log.manifest import read_manifest
from warren.log.manifest_state import ManifestState
from warren.log.opening import find_file, newest_witness
from warren.log.scan import LogInput, witnessed_end

TRIES = 5


@dataclass(frozen=True, slots=True)
class ReadOnlyLog:
    """A log directory as it was at one moment."""

    files: Files
    directory: str
    state: ManifestState
    witness: Witness | None
    problems: tuple[str, ...] = field(default=())  # what was wrong with epoch files that a newer one makes up for

    @property
    def durable(self) -> Epoch:
        """The horizon: nothing beyond it is shown."""
        return Epoch(max(self.state.durable, self.witness.durable if self.witness else 0))

    def path_of(self, record: FileRecord) -> str:
        """Where a file is now, under whichever name."""
        try:
            return find_file(self.files, self.directory, record)
        except Damage:
            horizon = self.horizon_if_gone(record)
            if horizon is None:
                raise
            hint = f"begin at epoch {horizon + 1} or later"
            raise Gone(f"log file {record.number} is gone, horizon is {horizon}", hint) from None

    def horizon_if_gone(self, record: FileRecord) -> Epoch | None:
        """A running store may have let a file go since its manifest was read: the horizon then, else None."""
        now = read_manifest(self.files, self.directory)
        known = now.files.get(record.number)
        return now.horizon if known is None or known.state is FileState.DOOMED else None

    def witnessed(self, record: FileRecord) -> FileEnd | None:
        return witnessed_end(self.witness.ends if self.witness else (), record)

    def durable_ends(self) -> dict[FileNumber, int]:
        """Where what is witnessed ends in each file that was active then."""
        return {end.number: end.end for end in self.witness.ends} if self.witness else {}

    def records(self) -> list[FileRecord]:
        """Every file that is part of the store, oldest first."""
        return [record for _, record in sorted(self.state.files.items()) if record.state is not FileState.DOOMED]

    def input_of(self, record: FileRecord) -> LogInput:
        return LogInput(
            self.files,
            self.directory,
            record,
            self.durable,
            witnessed=self.witnessed(record),
            find=partial(self.path_of, record),
        )


def open_for_reading(files: Files, directory: str) -> ReadOnlyLog:
    """Take no lock and change nothing."""
    if not files.exists(join(directory, MANIFEST)):
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    for left in reversed(range(TRIES)):
        try:
            return _read(files, directory)
        except (Damage, Refused):
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _read(files: Files, directory: str) -> ReadOnlyLog:
    timeline = read_manifest(files, directory)
    witness, problems = newest_witness(files, directory, timeline)
    state = read_manifest(files, directory)
    if witness is not None and state.edits < witness.manifest_edits:
        path = join(directory, MANIFEST)
        raise Damage(f"the manifest ends with edit {state.edits}, {witness.manifest_edits} were synced", path, 0)
    return ReadOnlyLog(files, directory, state, witness, tuple(problems))
