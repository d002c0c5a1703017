"""The transient heap: plain files that are never synced and that a start deletes.

    <directory>/bodies.1  bodies.2  …          blocks of `records`, each file with a life of its own

What is in them is wanted only by this process. A crash leaves files that the next start removes before it writes, so
nothing here has to survive anything. Reading and collecting are those of the persistent heap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from warren.base.errors import Damage, Gone
from warren.base.ids import Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId, lsn_of
from warren.files.protocol import File, join
from warren.log.block_reading import BlockReader, blocks_of
from warren.log.entries import EntryKind
from warren.log.machine import Environment
from warren.log.rows import EntryRows
from warren.message_store.format import BodyPlace
from warren.message_store.heap import FoundRecord, Record, beside, grouped, record_at
from warren.message_store.log_heap import found_in
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns
from warren.records.entries import Versions, draft_entries

TIMELINE = TimelineId(0)
TRANSIENT_STREAM = StreamId(1)


@dataclass(slots=True)
class _PlainFile:
    file: File
    identity: FileIdentity
    end: int = 0


class TransientBodyFiles:
    def __init__(self, machine: Environment, directory: str, file_bytes: int, kept_bytes: int) -> None:
        self._machine = machine
        self._directory = directory
        self._file_bytes = file_bytes
        self._lock = machine.threads.condition()  # writers: one behind the other
        self._reader = BlockReader(self._open, machine.threads.condition(), kept_bytes)
        self._files: dict[FileNumber, _PlainFile] = {}  # oldest first; the last one is written to
        self._delete_everything()
        self._next = FileNumber(1)
        self._start_file()

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> list[BodyPlace]:
        places: list[BodyPlace] = []
        with self._lock:
            for group in grouped(records):
                block = self._write(group)
                places += [BodyPlace(block, entry) for entry in range(len(group))]
        return places

    def _write(self, group: list[Record]) -> Lsn:
        if self._files[self.present_file()].end >= self._file_bytes:
            self._start_file()
        rows = EntryRows()
        for record in group:
            rows.add(EntryKind.RECORD, 0, record.key, record.value, record.undo_prev)
        present = self._files[self.present_file()]
        made = draft_entries(rows.columns(), TRANSIENT_STREAM, versions=Versions.FROM_HEADER)
        header, _ = made.place(present.identity, present.end, Epoch(0))
        present.file.write_at(present.end, [header, *made.pieces])
        block = lsn_of(self.present_file(), present.end)
        present.end += made.size_bytes
        return block

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, place: BodyPlace, size_bytes: int, is_kept: bool = True) -> memoryview:
        found = self._reader.block(place.block, beside(size_bytes), is_kept)
        if isinstance(found, EntryColumns):
            return record_at(found, place, size_bytes, self.path(place.file))
        raise Damage(f"the transient store is damaged: {found.value}", self.path(place.file), place.offset)

    def records(self, file: FileNumber) -> Iterator[FoundRecord]:
        found = self._found(file)
        for header, columns in blocks_of(found.file, found.identity, 0, found.end):
            yield from found_in(columns, lsn_of(file, header.offset))

    # -- files ---------------------------------------------------------------------------------------------------

    def files(self) -> list[FileNumber]:
        with self._lock:
            return [number for number in self._files if number != self.present_file()]

    def present_file(self) -> FileNumber:
        return FileNumber(self._next - 1)

    def release(self, files: Collection[FileNumber]) -> None:
        with self._lock:
            going = {number: self._files.pop(number) for number in files if number in self._files}
        self._reader.forget(files)
        for number, gone in going.items():
            gone.file.close()
            self._machine.files.remove(self.path(number))

    def move_base(self, lsn: Lsn) -> None:
        """Files are released one by one: there is no base to move."""

    def path(self, file: FileNumber) -> str:
        return join(self._directory, f"bodies.{file}")

    def close(self) -> None:
        """Nobody needs any of it."""
        self.release(list(self._files))
        self._reader.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _delete_everything(self) -> None:
        files = self._machine.files
        files.make_directories(self._directory)
        for name in files.list(self._directory):
            files.remove(join(self._directory, name))

    def _start_file(self) -> None:
        number = self._next
        file = self._machine.files.create(self.path(number))
        self._files[number] = _PlainFile(file, FileIdentity(TIMELINE, Incarnation(self._machine.chance.id64())))
        self._next = FileNumber(number + 1)

    def _open(self, number: FileNumber) -> tuple[File, FileIdentity]:
        found = self._found(number)
        return self._machine.files.open(self.path(number)), found.identity

    def _found(self, number: FileNumber) -> _PlainFile:
        found = self._files.get(number)
        if found is None:
            raise Gone(f"transient file {number} is gone: what was in it has moved, or is no longer wanted")
        return found
