"""The compaction catalog: a view of the manifest, in the words of the seed.

    compacted files     the sorted files, one behind the other by key, that stand for everything compacted so far
    detached PWALs      the rotated files that went into it: passed over from now on
    max epoch           the last epoch that is in it

A rotated file is chosen by *membership*: it is a target unless the catalog names it as compacted. The seed's rule by
epoch (first session's epoch greater than the catalog's) would drop a file whose first session is old; it is used only
the safe way round, where a file's last epoch decides (checklist C-25), and there it says the same as membership.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warren.base.errors import Refused
from warren.base.ids import Epoch, FileNumber
from warren.log.file_header import FileKind
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest_state import ManifestState


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
