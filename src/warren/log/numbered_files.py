"""Log files by their numbers, opened for reading beside whoever writes, rotates and purges.

A rotation renames a file and gives its name to the next; so what was opened is looked at before it is believed, and
found again if it was another. A file that was let go of is `Gone`, whatever its bytes are by now.
"""

from __future__ import annotations

from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import FileNumber
from warren.files.protocol import File, Files, join
from warren.log.file_header import FILE_HEADER_BYTES
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest import Manifest
from warren.log.opening import find_file
from warren.records.block import FileIdentity, Header, look

TRIES = 3


class NumberedFiles:
    def __init__(self, files: Files, directory: str, manifest: Manifest) -> None:
        self._files = files
        self._directory = directory
        self._manifest = manifest

    def open(self, number: FileNumber) -> tuple[File, FileIdentity]:
        """A file, and the life that its blocks must name."""
        for left in reversed(range(TRIES)):
            record = self.record(number)
            try:
                return self._opened(record), record.identity
            except (Damage, Refused):
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def record(self, number: FileNumber) -> FileRecord:
        record = self._manifest.state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            raise Gone(f"log file {number} is gone: what was in it has moved, or is no longer wanted", "look again")
        return record

    def path(self, number: FileNumber) -> str:
        """For people."""
        record = self._manifest.state.files.get(number)
        return join(self._directory, record.name if record is not None else f"file {number}")

    def _opened(self, record: FileRecord) -> File:
        path = find_file(self._files, self._directory, record)
        file = self._files.open(path)
        if isinstance(look(memoryview(file.read_at(0, FILE_HEADER_BYTES)), 0, record.identity), Header):
            return file
        file.close()
        raise Damage(f"this is not log file {record.number}", path, 0)
