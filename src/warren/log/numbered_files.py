"""Log files by their numbers, opened for reading beside whoever writes, rotates and purges.

`file_lookup` opens them by number and incarnation, whatever a rotation has renamed. A file that was let go of is
`Gone`, whatever its bytes are by now.
"""

from __future__ import annotations

from warren.base.errors import Damage, Gone
from warren.base.ids import FileNumber
from warren.files.protocol import File, Files, join
from warren.log.file_lookup import open_record
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest import Manifest
from warren.records.block import FileIdentity


class NumberedFiles:
    def __init__(self, files: Files, directory: str, manifest: Manifest) -> None:
        self._files = files
        self._directory = directory
        self._manifest = manifest

    def open(self, number: FileNumber) -> tuple[File, FileIdentity]:
        """A file, and the life that its blocks must name."""
        record = self.record(number)
        try:
            return open_record(self._files, self._directory, record).file, record.identity
        except (Damage, Gone):
            self.record(number)  # purged meanwhile
            raise

    def record(self, number: FileNumber) -> FileRecord:
        record = self._manifest.state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            raise Gone(f"log file {number} is gone: what was in it has moved, or is no longer wanted", "look again")
        return record

    def path(self, number: FileNumber) -> str:
        """For people."""
        record = self._manifest.state.files.get(number)
        return join(self._directory, record.name if record is not None else f"file {number}")
