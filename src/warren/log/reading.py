"""Reading a log directory without owning it: beside a running store, or when nobody runs.

    epoch file first, manifest second: the manifest is then at least as new as the witness, and names every file that
    the witness speaks of

Only epochs up to the epoch file's durable one may be read: what lies beyond it stands in the page cache, and a power
cut may still take it back. A rotation renames files meanwhile: log/file_lookup opens them under any of their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, FileNumber
from warren.durability.epoch_file import DurableRecord
from warren.durability.participant import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_lookup import horizon_if_gone
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import MANIFEST
from warren.log.manifest import read_manifest
from warren.log.manifest_state import ManifestState
from warren.log.opening import newest_witness
from warren.log.scan import LogInput, witnessed_end

TRIES = 5


@dataclass(frozen=True, slots=True)
class ReadOnlyLog:
    """A log directory as it was at one moment."""

    files: Files
    directory: str
    state: ManifestState
    witness: DurableRecord | None
    problems: tuple[str, ...] = field(default=())  # what was wrong with epoch files that a newer one makes up for

    @property
    def durable(self) -> Epoch:
        """The horizon: nothing beyond it is shown."""
        return Epoch(max(self.state.durable, self.witness.durable if self.witness else 0))

    def is_gone(self, record: FileRecord) -> bool:
        """Has a running store purged the file since its manifest was read?"""
        return horizon_if_gone(self.files, self.directory, record) is not None

    def witnessed(self, record: FileRecord) -> FileEnd | None:
        return witnessed_end(self.witness.ends if self.witness else (), record)

    def durable_ends(self) -> dict[FileNumber, int]:
        """Where what is witnessed ends in each file that was active then."""
        return {end.number: end.end for end in self.witness.ends} if self.witness else {}

    def records(self) -> list[FileRecord]:
        """Every file that is part of the store, oldest first."""
        return [record for _, record in sorted(self.state.files.items()) if record.state is not FileState.DOOMED]

    def input_of(self, record: FileRecord) -> LogInput:
        return LogInput(self.files, self.directory, record, self.durable, witnessed=self.witnessed(record))


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
