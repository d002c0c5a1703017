"""Reading what a pointer points to: one read of a block, checked, and the value out of it.

Values that were written together stand in one block, and are mostly read together: the last few blocks are kept, within
a budget (`block_reading`), and a queue that is read from its head reads each block once.

Always true: nothing of a block is served before its checksum holds and it names this life of the file. Any thread may
ask. Not here: which rows point where (snapshot), when a file may go (`Streams.release`).
"""

from __future__ import annotations

from collections.abc import Collection

from warren.base.errors import Damage
from warren.base.ids import FileNumber, Lsn, file_of_lsn, position_of_lsn
from warren.base.threads import Condition
from warren.files.protocol import Files
from warren.log.block_reading import BlockReader, value_at
from warren.log.entries import EntryKind
from warren.log.manifest import Manifest
from warren.log.numbered_files import NumberedFiles
from warren.log.referring import Pointer
from warren.records.columns import EntryColumns
from warren.records.format import BLOCK_BYTES_MAX, HEADER
from warren.records.verdict import BlockVerdict

KEPT_BYTES = 8 << 20
BLOCK_BYTES_GUESS = 16 << 10  # read at once of a block whose size is not known; the rest of a larger one follows


class PointerReader:
    def __init__(
        self, files: Files, directory: str, manifest: Manifest, lock: Condition, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._files = NumberedFiles(files, directory, manifest)
        self._reader = BlockReader(self._files.open, lock, kept_bytes)

    @property
    def reads(self) -> int:
        """Of blocks, from files."""
        return self._reader.reads

    def value(self, pointer: Pointer) -> memoryview:
        """The bytes; `Gone` if the file has been let go of."""
        if not HEADER.size <= pointer.block_bytes <= HEADER.size + BLOCK_BYTES_MAX:
            raise self._damage(f"a pointer names a block of {pointer.block_bytes} bytes", pointer)
        value = value_at(self._block(pointer.block, pointer.block_bytes), pointer.entry, pointer.size_bytes)
        if value is None:
            what = f"a pointer names entry {pointer.entry} of {pointer.size_bytes} bytes, which its block does not have"
            raise self._damage(what, pointer)
        return value

    def row(self, block: Lsn, entry: int, storage: int, key: bytes) -> memoryview:
        """The value of the row that was written at a position; `Gone` as above. The entry must name this very row."""
        columns = self._block(block, BLOCK_BYTES_GUESS)
        is_there = entry < columns.count and columns.kinds.at(entry) == EntryKind.PUT
        if not is_there or columns.storages.at(entry) != storage or columns.keys.at(entry) != key:
            where = self._files.path(file_of_lsn(block)), position_of_lsn(block)
            raise Damage(f"entry {entry} of a block is not row {key.hex()} of storage {storage}", *where)
        values = columns.values
        return values.heap[values.offsets.at(entry) : values.offsets.at(entry + 1)].data

    def forget(self, files: Collection[FileNumber]) -> None:
        """Let go of what is kept of these."""
        self._reader.forget(files)

    def close(self) -> None:
        self._reader.close()

    def _block(self, block: Lsn, size_bytes: int) -> EntryColumns:
        found = self._reader.block(block, size_bytes)
        if isinstance(found, BlockVerdict):
            number = file_of_lsn(block)
            self._files.record(number)  # gone meanwhile, and its bytes another's?
            raise Damage(f"the log is damaged: {found.value}", self._files.path(number), position_of_lsn(block))
        return found

    def _damage(self, what: str, pointer: Pointer) -> Damage:
        return Damage(what, self._files.path(pointer.file), pointer.offset)
