"""Pointers: large values of referring streams stay in the log, and the snapshot store holds where they are.

    in the log     PUT key → value, however large                     one write, one sync
    to the store   PUT key → pointer, if the value is over a limit    a few bytes a row, however large the value
                   PUT key → value, otherwise

A pointer names the block and the entry in it. A reader of such a storage resolves values that begin with the pointer's
first byte, so no value of a referring stream may begin with it; a session checks that. Records of the stream (history)
say nothing about keys: they do not go to the store.

    lease(file) ──▶ handle ──pread──▶ bytes ──checksum, incarnation, own offset──▶ columns ──▶ cached

`PointerReader` reads one block, checked, and takes the value from it. Values that were written together stand in one
block, and are mostly read together: the last few blocks are cached, within a budget, and a queue that is read from its
head reads each block once. A file stays open under its number, since a rotation may rename it. A released handle is
closed when the last thread that reads by it is done: a descriptor that is closed under a reader may be another file's a
moment later. `blocks_of` reads a whole file through windows of some megabytes. It is not mapped: a page fault would
wait for the disk with the interpreter lock held.

Invariants
* What is made of a block depends on the block alone, so every reader of the log makes the same of it.
* Nothing of a block is served before its checksum matches and it names this incarnation of the file.
* The lock guards two small tables and is not held during disk reads. Any thread may read.
* A file that a row points into stays until the owner of the rows releases it (`Streams.release`).

Bytes: docs/formats/pointers.md. Not here: which rows point where (snapshot).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from warren.base.errors import Damage
from warren.base.ids import FileNumber, Lsn, file_of_lsn, position_of_lsn
from warren.base.threads import Condition
from warren.files.protocol import File, Files
from warren.log.log_files import NumberedFiles
from warren.log.manifest import Manifest
from warren.log.merge.pool import Pool
from warren.log.settings import EntryKind
from warren.records.block import FileIdentity, Header, check_block
from warren.records.columns import EntryColumns, Texts
from warren.records.entries import read_entries
from warren.records.format import BLOCK_BYTES_MAX, HEADER, MAGIC, BlockKind, BlockVerdict

POINTER_MARK = 0xFF
POINTER_PREFIX = bytes([POINTER_MARK])
VALUE_BYTES_MAX = 256  # a value up to this goes into the store itself: a pointer and a read would cost more
ROW_BYTES = VALUE_BYTES_MAX + 64  # what a row of a referring stream costs on its way to the store, at most

#   | mark u8 | block LSN u64 | entry u32 | value bytes u32 | block bytes u32 |
POINTER = struct.Struct("<BQIII")
assert POINTER.size == 21


class Pointer(NamedTuple):
    block: Lsn  # of the block's first entry: file and offset
    entry: int  # which one of the block's
    size_bytes: int  # of the value
    block_bytes: int

    @property
    def file(self) -> FileNumber:
        return file_of_lsn(self.block)

    @property
    def offset(self) -> int:
        return position_of_lsn(self.block)

    def encode(self) -> bytes:
        return POINTER.pack(POINTER_MARK, *self)

    @classmethod
    def decode(cls, raw: bytes) -> Pointer:
        if len(raw) != POINTER.size or raw[0] != POINTER_MARK:
            raise Damage(f"this is no pointer into the log: {raw[:24].hex()}")
        _, block, entry, size_bytes, block_bytes = POINTER.unpack(raw)
        return cls(Lsn(block), entry, size_bytes, block_bytes)


def is_pointer(value: bytes) -> bool:
    return value.startswith(POINTER_PREFIX)


def by_reference(columns: EntryColumns, block: Lsn, block_bytes: int) -> EntryColumns:
    """What of a block of a referring stream goes to the store: its key-values, the large ones as pointers."""
    if block_bytes <= VALUE_BYTES_MAX and columns.kinds.is_constant and columns.kinds.base != EntryKind.RECORD:
        return columns
    rows = np.flatnonzero(columns.kinds.array() != EntryKind.RECORD)
    _, sizes = columns.values.bounds()
    is_large = sizes[rows] > VALUE_BYTES_MAX
    if len(rows) == columns.count and not is_large.any():
        return columns
    values = [
        Pointer(block, row, size, block_bytes).encode() if large else columns.values.at(row)
        for row, size, large in zip(rows.tolist(), sizes[rows].tolist(), is_large.tolist(), strict=True)
    ]
    slim = replace(columns, values=Texts.empty(columns.count))
    selected = slim if len(rows) == columns.count else Pool.of([slim]).take(rows)
    return replace(selected, values=Texts.of_list(values))


HANDLES_MAX = 64
WINDOW_BYTES = 4 << 20

OpenFile = Callable[[FileNumber], tuple[File, FileIdentity]]


class _Handle:
    __slots__ = ("file", "identity", "is_released", "readers")

    def __init__(self, file: File, identity: FileIdentity) -> None:
        self.file = file
        self.identity = identity
        self.readers = 0
        self.is_released = False


class BlockReader:
    def __init__(self, open_file: OpenFile, lock: Condition, cache_bytes: int) -> None:
        self._open_file = open_file
        self._lock = lock
        self._cache_bytes = cache_bytes
        self._handles: OrderedDict[FileNumber, _Handle] = OrderedDict()
        self._blocks: OrderedDict[Lsn, tuple[EntryColumns, int]] = OrderedDict()
        self._bytes = 0
        self.reads = 0  # of blocks, from files

    def block(self, block: Lsn, size_bytes: int, is_cached: bool = True) -> EntryColumns | BlockVerdict:
        """The block at a place, which has about so many bytes, or why there is none. Opening a file may raise.
        `is_cached`: other entries of the block will be read soon."""
        cached = self._cached(block)
        if cached is not None:
            return cached
        offset = position_of_lsn(block)
        with self._lease(file_of_lsn(block)) as handle:
            raw = _read(handle.file, offset, size_bytes)
            identity = handle.identity
        self.reads += 1
        header = check_block(raw, 0, identity, offset)
        if not isinstance(header, Header):
            return header
        columns = read_entries(raw, header._replace(offset=0))
        if is_cached:
            self._cache(block, columns, len(raw))
        return columns

    def forget(self, files: Collection[FileNumber]) -> None:
        """Close these files and drop their cached blocks."""
        with self._lock:
            for number in files:
                self._release(number)
            for block in [block for block in self._blocks if file_of_lsn(block) in files]:
                self._bytes -= self._blocks.pop(block)[1]

    def close(self) -> None:
        self.forget(list(self._handles))

    def _cached(self, block: Lsn) -> EntryColumns | None:
        with self._lock:
            cached = self._blocks.get(block)
            if cached is None:
                return None
            self._blocks.move_to_end(block)
            return cached[0]

    def _cache(self, block: Lsn, columns: EntryColumns, size_bytes: int) -> None:
        with self._lock:
            if block in self._blocks or file_of_lsn(block) not in self._handles:
                return
            self._blocks[block] = (columns, size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._cache_bytes:
                _, (_, dropped_bytes) = self._blocks.popitem(last=False)
                self._bytes -= dropped_bytes

    @contextmanager
    def _lease(self, number: FileNumber) -> Iterator[_Handle]:
        handle = self._leased(number)
        try:
            yield handle
        finally:
            with self._lock:
                handle.readers -= 1
                if handle.is_released and not handle.readers:
                    handle.file.close()

    def _leased(self, number: FileNumber) -> _Handle:
        with self._lock:
            if (handle := self._known(number)) is not None:
                return handle
        opened = _Handle(*self._open_file(number))
        with self._lock:
            if (handle := self._known(number)) is not None:
                opened.file.close()
                return handle
            self._handles[number] = opened
            opened.readers += 1
            while len(self._handles) > HANDLES_MAX:
                self._release(next(iter(self._handles)))
            return opened

    def _known(self, number: FileNumber) -> _Handle | None:
        handle = self._handles.get(number)
        if handle is not None:
            self._handles.move_to_end(number)
            handle.readers += 1
        return handle

    def _release(self, number: FileNumber) -> None:
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.is_released = True
            if not handle.readers:
                handle.file.close()


def value_at(columns: EntryColumns, entry: int, size_bytes: int) -> memoryview | None:
    """The value of one entry of a block; None if there is none, or of another size than it should have."""
    if entry >= columns.count:
        return None
    values = columns.values
    start, stop = values.offsets.at(entry), values.offsets.at(entry + 1)
    return values.heap[start:stop].data if stop - start == size_bytes else None


def blocks_of(file: File, identity: FileIdentity, start: int, stop: int) -> Iterator[tuple[Header, EntryColumns]]:
    """Header and entries of each block in a part of a file; `Damage` where there is none. What was read is not
    cached, neither here nor by the system."""
    base, window = start, memoryview(b"")
    at = start
    while at < stop:
        header = check_block(window, at - base, identity, at)
        if not isinstance(header, Header):  # it may begin in this window and end behind it
            file.forget(base, len(window))
            base, window = at, _read(file, at, WINDOW_BYTES)
            header = check_block(window, 0, identity, at)
        if not isinstance(header, Header):
            raise Damage(f"a sealed file is damaged: {header.value}", file.path, at)
        if header.kind == BlockKind.ENTRIES:
            yield header, read_entries(window, header._replace(offset=at - base))
        at = header.end
    file.forget(base, len(window))


def _read(file: File, offset: int, size_bytes: int) -> memoryview:
    """A block; one read, if it is not larger than expected."""
    raw = file.read_at(offset, size_bytes)
    if len(raw) >= HEADER.size:
        header = HEADER.unpack_from(raw)
        body_bytes = header[5]
        if header[0] == MAGIC and len(raw) < HEADER.size + body_bytes <= HEADER.size + BLOCK_BYTES_MAX:
            raw += file.read_at(offset + len(raw), HEADER.size + body_bytes - len(raw))
    return memoryview(raw)


CACHE_BYTES = 8 << 20
BLOCK_BYTES_GUESS = 16 << 10  # read at once of a block whose size is not known; the rest of a larger one follows


class PointerReader:
    def __init__(
        self, files: Files, directory: str, manifest: Manifest, lock: Condition, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._files = NumberedFiles(files, directory, manifest)
        self._reader = BlockReader(self._files.open, lock, cache_bytes)

    @property
    def reads(self) -> int:
        """Of blocks, from files."""
        return self._reader.reads

    def value(self, pointer: Pointer) -> memoryview:
        """The bytes; `Gone` if the file has been released."""
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
        """Close these files and drop their cached blocks."""
        self._reader.forget(files)

    def close(self) -> None:
        self._reader.close()

    def _block(self, block: Lsn, size_bytes: int) -> EntryColumns:
        found = self._reader.block(block, size_bytes)
        if isinstance(found, BlockVerdict):
            number = file_of_lsn(block)
            self._files.record(number)  # raises `Gone` if it was purged and recycled meanwhile
            raise Damage(f"the log is damaged: {found.value}", self._files.path(number), position_of_lsn(block))
        return found

    def _damage(self, what: str, pointer: Pointer) -> Damage:
        return Damage(what, self._files.path(pointer.file), pointer.offset)
