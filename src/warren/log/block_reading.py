"""Reading one block of one file, checked, by many threads at once.

    lease(file) ──▶ handle ──pread──▶ bytes ──checksum, life, own offset──▶ columns ──▶ kept for a while

A file stays open under its number, since a rotation may rename it. A handle that was let go of is closed when the last
thread that reads by it is done: a descriptor that is closed under a reader may be another file's a moment later.

Whoever reads a whole file gets block after block out of windows of some megabytes. It is not mapped: whoever touches a
page that is not there waits for the disk with the interpreter in hand, and everybody waits with him.

Always true: nothing of a block is served before its checksum holds and it names this life of the file. The lock here
guards two small tables and is never held while the disk is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from warren.base.errors import Damage
from warren.base.ids import FileNumber, Lsn, file_of_lsn, position_of_lsn
from warren.base.threads import Condition
from warren.files.protocol import File
from warren.records.block import FileIdentity, Header, look
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.format import BLOCK_BYTES_MAX, HEADER, MAGIC, BlockKind
from warren.records.verdict import BlockVerdict

HANDLES_MAX = 64
WINDOW_BYTES = 4 << 20

OpenFile = Callable[[FileNumber], tuple[File, FileIdentity]]


class _Handle:
    __slots__ = ("file", "identity", "is_let_go", "readers")

    def __init__(self, file: File, identity: FileIdentity) -> None:
        self.file = file
        self.identity = identity
        self.readers = 0
        self.is_let_go = False


class BlockReader:
    def __init__(self, open_file: OpenFile, lock: Condition, kept_bytes: int) -> None:
        self._open_file = open_file
        self._lock = lock
        self._kept_bytes = kept_bytes
        self._handles: OrderedDict[FileNumber, _Handle] = OrderedDict()
        self._blocks: OrderedDict[Lsn, tuple[EntryColumns, int]] = OrderedDict()
        self._bytes = 0
        self.reads = 0  # of blocks, from files

    def block(self, block: Lsn, size_bytes: int, is_kept: bool = True) -> EntryColumns | BlockVerdict:
        """The block at a place, which has about so many bytes, or why there is none. Whoever opens files may raise.
        `is_kept`: what else stands in it will be asked for soon."""
        kept = self._kept(block)
        if kept is not None:
            return kept
        offset = position_of_lsn(block)
        with self._lease(file_of_lsn(block)) as handle:
            raw = _read(handle.file, offset, size_bytes)
            identity = handle.identity
        self.reads += 1
        header = look(raw, 0, identity, offset)
        if not isinstance(header, Header):
            return header
        columns = read_entries(raw, header._replace(offset=0))
        if is_kept:
            self._keep(block, columns, len(raw))
        return columns

    def forget(self, files: Collection[FileNumber]) -> None:
        """Let go of what is kept of these."""
        with self._lock:
            for number in files:
                self._let_go(number)
            for block in [block for block in self._blocks if file_of_lsn(block) in files]:
                self._bytes -= self._blocks.pop(block)[1]

    def close(self) -> None:
        self.forget(list(self._handles))

    def _kept(self, block: Lsn) -> EntryColumns | None:
        with self._lock:
            kept = self._blocks.get(block)
            if kept is None:
                return None
            self._blocks.move_to_end(block)
            return kept[0]

    def _keep(self, block: Lsn, columns: EntryColumns, size_bytes: int) -> None:
        with self._lock:
            if block in self._blocks or file_of_lsn(block) not in self._handles:
                return
            self._blocks[block] = (columns, size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._kept_bytes:
                _, (_, dropped_bytes) = self._blocks.popitem(last=False)
                self._bytes -= dropped_bytes

    @contextmanager
    def _lease(self, number: FileNumber) -> Iterator[_Handle]:
        handle = self._taken(number)
        try:
            yield handle
        finally:
            with self._lock:
                handle.readers -= 1
                if handle.is_let_go and not handle.readers:
                    handle.file.close()

    def _taken(self, number: FileNumber) -> _Handle:
        with self._lock:
            if (handle := self._found(number)) is not None:
                return handle
        opened = _Handle(*self._open_file(number))
        with self._lock:
            if (handle := self._found(number)) is not None:
                opened.file.close()
                return handle
            self._handles[number] = opened
            opened.readers += 1
            while len(self._handles) > HANDLES_MAX:
                self._let_go(next(iter(self._handles)))
            return opened

    def _found(self, number: FileNumber) -> _Handle | None:
        handle = self._handles.get(number)
        if handle is not None:
            self._handles.move_to_end(number)
            handle.readers += 1
        return handle

    def _let_go(self, number: FileNumber) -> None:
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.is_let_go = True
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
    kept in memory, neither here nor by the system."""
    base, window = start, memoryview(b"")
    at = start
    while at < stop:
        header = look(window, at - base, identity, at)
        if not isinstance(header, Header):  # it may only begin in this window
            file.forget(base, len(window))
            base, window = at, _read(file, at, WINDOW_BYTES)
            header = look(window, 0, identity, at)
        if not isinstance(header, Header):
            raise Damage(f"a sealed file is damaged: {header.value}", file.path, at)
        if header.kind == BlockKind.ENTRIES:
            yield header, read_entries(window, header._replace(offset=at - base))
        at = header.end
    file.forget(base, len(window))


def _read(file: File, offset: int, size_bytes: int) -> memoryview:
    """A block; one read, if it is not much larger than it was said to be."""
    raw = file.read_at(offset, size_bytes)
    if len(raw) >= HEADER.size:
        told = HEADER.unpack_from(raw)
        body_bytes = told[5]
        if told[0] == MAGIC and len(raw) < HEADER.size + body_bytes <= HEADER.size + BLOCK_BYTES_MAX:
            raw += file.read_at(offset + len(raw), HEADER.size + body_bytes - len(raw))
    return memoryview(raw)
