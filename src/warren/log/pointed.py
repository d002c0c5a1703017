"""Reading what a pointer points to: one read of a block, checked, and the value out of it.

Values that were written together stand in one block, and are mostly read together: the last few blocks are kept, within
a budget, and a queue that is read from its head reads each block once. A file stays open under its number, since a
rotation may rename it; what was let go of is closed.

Always true: nothing of a block is served before its checksum holds and it names this life of the file. Any thread may
ask. Not here: which rows point where (snapshot), when a file may go (`Streams.release`).
"""

from __future__ import annotations

from collections import OrderedDict

from warren.base.errors import Damage, Gone, WarrenError
from warren.base.ids import FileNumber, Lsn
from warren.base.threads import Condition
from warren.files.protocol import File, Files, join
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest import Manifest
from warren.log.opening import find_file
from warren.log.referring import Pointer
from warren.records.block import Header, look
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.format import BLOCK_BYTES_MAX, HEADER

KEPT_BYTES = 8 << 20


class Pointed:
    def __init__(
        self, files: Files, directory: str, manifest: Manifest, lock: Condition, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._files = files
        self._directory = directory
        self._manifest = manifest
        self._lock = lock
        self._kept_bytes = kept_bytes
        self._handles: dict[FileNumber, File] = {}
        self._blocks: OrderedDict[Lsn, tuple[EntryColumns, int]] = OrderedDict()
        self._bytes = 0
        self.reads = 0  # of blocks, from files

    def value(self, pointer: Pointer) -> memoryview:
        """The bytes; `Gone` if the file has been let go of."""
        columns = self._block(pointer)
        if pointer.entry < columns.count:
            values = columns.values
            start, stop = values.offsets.at(pointer.entry), values.offsets.at(pointer.entry + 1)
            if stop - start == pointer.size_bytes:
                return values.heap[start:stop].data
        what = f"a pointer names entry {pointer.entry} of {pointer.size_bytes} bytes, which its block does not have"
        raise Damage(what, self._path(pointer.file), pointer.offset)

    def forget(self, files: list[FileNumber]) -> None:
        """Let go of what is kept of these."""
        with self._lock:
            for number in files:
                if (handle := self._handles.pop(number, None)) is not None:
                    handle.close()
            for block in [block for block in self._blocks if Pointer(block, 0, 0, 0).file in files]:
                self._bytes -= self._blocks.pop(block)[1]

    def close(self) -> None:
        with self._lock:
            for handle in self._handles.values():
                handle.close()
            self._handles.clear()
            self._blocks.clear()
            self._bytes = 0

    def _block(self, pointer: Pointer) -> EntryColumns:
        with self._lock:
            kept = self._blocks.get(pointer.block)
            if kept is not None:
                self._blocks.move_to_end(pointer.block)
                return kept[0]
            columns = self._read(pointer)
            self._blocks[pointer.block] = (columns, pointer.block_bytes)
            self._bytes += pointer.block_bytes
            while self._bytes > self._kept_bytes and len(self._blocks) > 1:
                _, (_, size) = self._blocks.popitem(last=False)
                self._bytes -= size
            return columns

    def _read(self, pointer: Pointer) -> EntryColumns:
        record = self._record(pointer.file)
        if not HEADER.size <= pointer.block_bytes <= HEADER.size + BLOCK_BYTES_MAX:
            raise Damage(f"a pointer names a block of {pointer.block_bytes} bytes", self._path(pointer.file), 0)
        raw = memoryview(self._handle(record).read_at(pointer.offset, pointer.block_bytes))
        self.reads += 1
        header = look(raw, 0, record.identity, pointer.offset)
        if not isinstance(header, Header):
            self._record(pointer.file)  # gone meanwhile, and its bytes another's?
            raise Damage(f"the log is damaged: {header.value}", self._path(pointer.file), pointer.offset)
        return read_entries(raw, header._replace(offset=0))

    def _handle(self, record: FileRecord) -> File:
        handle = self._handles.get(record.number)
        if handle is None:
            try:
                handle = self._files.open(find_file(self._files, self._directory, record))
            except WarrenError:  # renamed as we looked
                handle = self._files.open(find_file(self._files, self._directory, self._record(record.number)))
            self._handles[record.number] = handle
        return handle

    def _record(self, number: FileNumber) -> FileRecord:
        record = self._manifest.state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            raise Gone(f"log file {number} is gone: what was in it has moved, or is no longer wanted", "look again")
        return record

    def _path(self, number: FileNumber) -> str:
        record = self._manifest.state.files.get(number)
        return join(self._directory, record.name if record is not None else f"file {number}")
