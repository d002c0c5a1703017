"""Body files: files of records, appended at the end, read anywhere, released as a whole.

    append ──▶ | … sealed file 3 | … sealed file 5 | file 6, being written ▸          returns places
                    ▲ read, by place                        release(3): nothing in it is referenced any more

`LogBodyFiles` (persistent) is a stream of the log on a channel of its own. Its files take part in the epoch's commit,
and are sealed, voided, verified, repaired, pinned and purged like every log file. A record is durable when its epoch
is, and a session that names it and ends later is durable no earlier. A record may be read before its bytes have left
memory, or while its file is being renamed: a read that fails in an unsealed file waits while commits are pending.

`TransientBodyFiles` are plain files that are never synced and that a start deletes:

    <directory>/bodies.1  bodies.2  …          blocks of `records`, each file with its own incarnation

They are used by this process only. A crash leaves files that the next start removes before it writes.

Invariants
* Nothing is returned whose checksum does not match.
* A released file may be readable for a while, or raise `Gone`.
* Any thread may read at any time; readers wait for the disk only.

Both pass one test suite (tests/message_store/test_body_files.py). Reading and collecting: read, collector.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from warren.base.errors import Damage, Gone
from warren.base.ids import Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId, lsn_of
from warren.files.environment import Environment
from warren.files.protocol import File, join
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.log_files import NumberedFiles, open_record
from warren.log.pointers import BlockReader, blocks_of, value_at
from warren.log.read.blocks import valid_ranges
from warren.log.session import EntryRows
from warren.log.settings import EntryKind
from warren.log.store import LogStore
from warren.message_store.body_format import BodyPlace
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns
from warren.records.entries import Versions, draft_entries
from warren.records.format import HEADER, BlockVerdict

SHARED_BYTES_MAX = 64 << 10  # records up to this, together, go into one block
SHARED_RECORDS_MAX = 512
BESIDE_BYTES = 2048  # usual overhead of a value in its block: header, columns, key
READ_BYTES_MIN = 16 << 10


class Record(NamedTuple):
    """A record to append: contents, and the key with their references."""

    key: bytes
    value: bytes
    undo_prev: Lsn = Lsn(0)


class FoundRecord(NamedTuple):
    """A record in a file."""

    place: BodyPlace
    key: bytes
    size_bytes: int  # of the value
    undo_prev: Lsn


class BodyFiles(Protocol):
    def append(self, records: Sequence[Record]) -> list[BodyPlace]:
        """Append records in order; the place of each. Durability depends on the implementation."""
        ...

    def read(self, place: BodyPlace, size_bytes: int, is_kept: bool = True) -> memoryview:
        """The value of the record at a place, which has `size_bytes` bytes. `Gone`: its file was released. `is_kept`:
        cache its block, since records beside it will be read soon."""
        ...

    def files(self) -> list[FileNumber]:
        """Sealed files in use, oldest first."""
        ...

    def present_file(self) -> FileNumber:
        """The next record goes to this file, or to a later one."""
        ...

    def records(self, file: FileNumber) -> Iterator[FoundRecord]:
        """All records of a sealed file, in order; `Damage` if it is not whole."""
        ...

    def release(self, files: Collection[FileNumber]) -> None:
        """Release files without live records. Durable when it returns."""
        ...

    def move_base(self, lsn: Lsn) -> None:
        """No record before `lsn` is alive."""
        ...

    def path(self, file: FileNumber) -> str:
        """The path of a file, for messages."""
        ...


def grouped(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Groups of records that share a block: adjacent small ones. A large one has its own block, so that reading it
    reads nothing else."""
    group: list[Record] = []
    size_bytes = 0
    for record in records:
        own_bytes = len(record.key) + len(record.value)
        if group and (size_bytes + own_bytes > SHARED_BYTES_MAX or len(group) == SHARED_RECORDS_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(record)
        size_bytes += own_bytes
    if group:
        yield group


def record_at(columns: EntryColumns, place: BodyPlace, size_bytes: int, path: str) -> memoryview:
    """The value of one record of a block; `Damage` if its size differs."""
    value = value_at(columns, place.entry, size_bytes)
    if value is None:
        what = f"record {place.entry} of a block should have {size_bytes} bytes, and has another size"
        raise Damage(what, path, place.offset)
    return value


def beside(size_bytes: int) -> int:
    """The usual size of the block of a record of this size."""
    return max(HEADER.size + size_bytes + BESIDE_BYTES, READ_BYTES_MIN)


STREAM = "bodies"


class LogBodyFiles:
    def __init__(self, log: LogStore, cache_bytes: int, stream: str = STREAM) -> None:
        self._log = log
        self._files = log.environment.files
        self._stream = log.stream(stream)
        self._numbered = NumberedFiles(self._files, log.directory, log.manifest)
        self._reader = BlockReader(self._numbered.open, log.environment.threads.condition(), cache_bytes)

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> list[BodyPlace]:
        places: list[BodyPlace] = []
        for group in grouped(records):
            session = self._stream.begin()
            try:
                for record in group:
                    session.record(record.value, undo_prev=record.undo_prev, key=record.key)
            except BaseException:
                session.abort()
                raise
            session.end()
            for placed in session.placed:
                places += [BodyPlace(placed.block, placed.entry + index) for index in range(placed.entries)]
        return places

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, place: BodyPlace, size_bytes: int, is_kept: bool = True) -> memoryview:
        is_awaited = True
        while True:
            was_sealed = self._is_sealed(place.file)  # before the read: it may be written and sealed meanwhile
            found = self._block(place, size_bytes, is_kept)
            if isinstance(found, EntryColumns):
                return record_at(found, place, size_bytes, self.path(place.file))
            if was_sealed or not is_awaited:
                what = f"the message store is damaged: {found.value}"
                raise Damage(what, self.path(place.file), place.offset)
            is_awaited = self._log.commit.commit_pending()

    def records(self, file: FileNumber) -> Iterator[FoundRecord]:
        record = self._numbered.record(file)
        handle = open_record(self._files, self._log.directory, record).file
        try:
            for start, stop in valid_ranges(record, record.end):
                for header, columns in blocks_of(handle, record.identity, start, stop):
                    if header.stream == self._stream.id:
                        yield from found_in(columns, lsn_of(file, header.offset))
        finally:
            handle.close()

    # -- files ---------------------------------------------------------------------------------------------------

    def files(self) -> list[FileNumber]:
        base, state = self._stream.base, self._log.manifest.state
        return [r.number for r in state.of_state(FileState.SEALED) if self._last_lsn(r) >= base]

    def present_file(self) -> FileNumber:
        return self._log.channels[self._stream.record.channel].participant.number

    def release(self, files: Collection[FileNumber]) -> None:
        self._log.streams.release(self._stream, files)
        self._reader.forget(files)

    def move_base(self, lsn: Lsn) -> None:
        if lsn > self._stream.base:
            self._stream.move_base(lsn)

    @property
    def base(self) -> Lsn:
        return self._stream.base

    def path(self, file: FileNumber) -> str:
        return self._numbered.path(file)

    def close(self) -> None:
        self._reader.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _block(self, place: BodyPlace, size_bytes: int, is_kept: bool) -> EntryColumns | BlockVerdict:
        """EMPTY: the file does not have the block yet. A released file raises `Gone`."""
        if place.file not in self._log.manifest.state.files and place.file >= self.present_file():
            return BlockVerdict.EMPTY  # a rotation is about to create it
        found = self._reader.block(place.block, beside(size_bytes), is_kept)
        if isinstance(found, BlockVerdict):
            self._numbered.record(place.file)  # raises `Gone` if the file was released meanwhile and its bytes reused
        return found

    def _is_sealed(self, number: FileNumber) -> bool:
        record = self._log.manifest.state.files.get(number)
        return record is not None and record.state is FileState.SEALED

    def _last_lsn(self, record: FileRecord) -> int:
        """Of the stream in a file; -1 if it has none there."""
        if record.purpose is not FileKind.LOG or record.channel != self._stream.record.channel:
            return -1
        return dict(record.stream_ends).get(self._stream.id, -1)


def found_in(columns: EntryColumns, block: Lsn) -> Iterator[FoundRecord]:
    """The records of a block."""
    values, links = columns.values, columns.undo_prev
    edges = values.offsets.array().tolist()
    keys = columns.keys.to_list()
    for entry, key in enumerate(keys):
        yield FoundRecord(BodyPlace(block, entry), key, edges[entry + 1] - edges[entry], Lsn(links.at(entry)))


TIMELINE = TimelineId(0)
TRANSIENT_STREAM = StreamId(1)


@dataclass(slots=True)
class _PlainFile:
    file: File
    identity: FileIdentity
    end: int = 0


class TransientBodyFiles:
    def __init__(self, environment: Environment, directory: str, file_bytes: int, cache_bytes: int) -> None:
        self._environment = environment
        self._directory = directory
        self._file_bytes = file_bytes
        self._lock = environment.threads.condition()  # serialises writers
        self._reader = BlockReader(self._open, environment.threads.condition(), cache_bytes)
        self._files: dict[FileNumber, _PlainFile] = {}  # oldest first; the last one is being written
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
        draft = draft_entries(rows.columns(), TRANSIENT_STREAM, versions=Versions.FROM_HEADER)
        header, _ = draft.place(present.identity, present.end, Epoch(0))
        present.file.write_at(present.end, [header, *draft.pieces])
        block = lsn_of(self.present_file(), present.end)
        present.end += draft.size_bytes
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
            self._environment.files.remove(self.path(number))

    def move_base(self, lsn: Lsn) -> None:
        """Files are released one by one: there is no base to move."""

    def path(self, file: FileNumber) -> str:
        return join(self._directory, f"bodies.{file}")

    def close(self) -> None:
        """Delete all files."""
        self.release(list(self._files))
        self._reader.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _delete_everything(self) -> None:
        files = self._environment.files
        files.make_directories(self._directory)
        for name in files.list(self._directory):
            files.remove(join(self._directory, name))

    def _start_file(self) -> None:
        number = self._next
        file = self._environment.files.create(self.path(number))
        self._files[number] = _PlainFile(file, FileIdentity(TIMELINE, Incarnation(self._environment.rng.id64())))
        self._next = FileNumber(number + 1)

    def _open(self, number: FileNumber) -> tuple[File, FileIdentity]:
        found = self._found(number)
        return self._environment.files.open(self.path(number)), found.identity

    def _found(self, number: FileNumber) -> _PlainFile:
        found = self._files.get(number)
        if found is None:
            raise Gone(f"transient file {number} is gone: its contents have moved, or are no longer referenced")
        return found
