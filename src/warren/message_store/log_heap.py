"""The persistent heap: a stream of the log, on a channel of its own.

So its files take part in the epoch's commit and are sealed, voided, verified, repaired, pinned and purged like every
log file; nothing of that is here. A record is durable when its epoch is, and whoever names it in a session that ends
later is durable no earlier.

A record can be asked for before its bytes have left memory, or while its file is being renamed: what cannot be read in
a file that is not sealed is waited for, as long as anything is on its way to the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from warren.base.errors import Damage
from warren.base.ids import FileNumber, Lsn, lsn_of
from warren.log.block_reading import BlockReader, blocks_of
from warren.log.file_header import FileKind
from warren.log.file_lookup import open_record
from warren.log.file_record import FileRecord, FileState
from warren.log.numbered_files import NumberedFiles
from warren.log.scan_walk import counted
from warren.log.store import LogStore
from warren.message_store.format import BodyPlace
from warren.message_store.heap import FoundRecord, Record, beside, grouped, record_at
from warren.records.columns import EntryColumns
from warren.records.verdict import BlockVerdict

STREAM = "bodies"


class LogBodyFiles:
    def __init__(self, log: LogStore, kept_bytes: int, stream: str = STREAM) -> None:
        self._log = log
        self._files = log.machine.files
        self._stream = log.stream(stream)
        self._numbered = NumberedFiles(self._files, log.directory, log.manifest)
        self._reader = BlockReader(self._numbered.open, log.machine.threads.condition(), kept_bytes)

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
            was_sealed = self._is_sealed(place.file)  # it may be written, and sealed, behind our look
            found = self._block(place, size_bytes, is_kept)
            if isinstance(found, EntryColumns):
                return record_at(found, place, size_bytes, self.path(place.file))
            if was_sealed or not is_awaited:
                what = f"the message store is damaged: {found.value}"
                raise Damage(what, self.path(place.file), place.offset)
            is_awaited = self._log.commit.make_room()

    def records(self, file: FileNumber) -> Iterator[FoundRecord]:
        record = self._numbered.record(file)
        handle = open_record(self._files, self._log.directory, record).file
        try:
            for start, stop in counted(record, record.end):
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
        """A block that a file does not have yet is empty; one of a file that is gone is `Gone`."""
        if place.file not in self._log.manifest.state.files and place.file >= self.present_file():
            return BlockVerdict.EMPTY  # a rotation has planned it, and is about to create it
        found = self._reader.block(place.block, beside(size_bytes), is_kept)
        if isinstance(found, BlockVerdict):
            self._numbered.record(place.file)  # gone meanwhile, and its bytes another's?
        return found

    def _is_sealed(self, number: FileNumber) -> bool:
        record = self._log.manifest.state.files.get(number)
        return record is not None and record.state is FileState.SEALED

    def _last_lsn(self, record: FileRecord) -> int:
        """Of the stream in a file; -1 if it has none there, or none that is wanted."""
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
