"""Sorted file: entries in key order, in blocks, with an index behind them. Snapshots and compacted files.

    | file header (not ours) | sorted | sorted | … | sorted | index level 0 | index level 0 | index level 1 |
      start_offset ^                                          ^ index_offset                  ^ the last    ^ end_offset

Writing (`SortedWriter`): entries come in order, in batches of any size; blocks are cut at about `block_bytes`, a small
rest waits for the next batch. Each block header has the number of its first entry, so that a block that is not where
the index says is not mistaken for the next one. Writes are large: several blocks each. Nothing is written twice and
nothing is read back. Syncing, naming and announcing the file, and its first block, are the caller's task.

Index: a small tree of INDEX blocks. For each block below it an index block has: offset, number of entries, and a
*separator*, the shortest string that is not greater than the block's first key and greater than the last key before it.
There are as many levels as needed until one block lists all; with keys of usual length that is two levels from 4096
sorted blocks on, else one. An index block has the layout of a block of entries: KIND is the level, STORAGE and KEY the
separator, MAJOR the offset, MINOR the number of entries; values are empty.

Reading (`SortedFile`): one key, a range, everything row by row, or column batches as they lie in the file. The checksum
of a block is verified the first time the block is used, and only then; what does not verify is `Damage` with path and
offset, and nothing of it is served. Only what is returned as `bytes` is copied: batches are views of the file, and the
cursor holds one block at a time. `get`, `range`, `prefix` and `cursor` show keys that have a value. Tombstones and
entries about storages are shown by `batches` alone: they matter to a merge, not to a reader.

Bytes: docs/formats/sorted_file.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from warren.base.errors import Damage, Misuse
from warren.base.ids import UINT64_MAX, Epoch
from warren.files.protocol import Buffer, File
from warren.log.merge.pool import concatenated
from warren.log.settings import EntryKind
from warren.records.block import BlockDraft, FileIdentity, Header, check_block
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.records.entries import draft_entries, read_entries
from warren.records.format import BlockKind, BlockVerdict, crc32

LISTED_MAX = 4096  # blocks listed by one index block
_SEPARATOR_BYTES_MAX = 4 << 20  # of one index block; at least four of the longest fit


class Separator(NamedTuple):
    storage: int
    key: bytes


class IndexedBlock(NamedTuple):
    """One block, as the index lists it."""

    separator: Separator
    offset: int
    entries: int


@dataclass(slots=True)
class SortedIndex:
    """All sorted blocks of a file, in order."""

    separators: list[Separator] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=lambda: [0])  # number of each block's first entry, and of the end

    def add(self, listed: IndexedBlock) -> None:
        self.separators.append(listed.separator)
        self.offsets.append(listed.offset)
        self.firsts.append(self.firsts[-1] + listed.entries)

    @property
    def entries(self) -> int:
        return self.firsts[-1]

    def block_of(self, storage: int, key: bytes) -> int:
        """The only block that may hold the key; -1 if it lies before the first."""
        return bisect_right(self.separators, (storage, key)) - 1

    def blocks_between(self, low: Separator, high: Separator) -> range:
        """Blocks that may hold keys from `low` on and below `high`."""
        return range(max(self.block_of(*low), 0), bisect_left(self.separators, high))


def separator_of(last: Separator | None, first: Separator) -> Separator:
    """The shortest start of `first` that is still greater than `last`."""
    if last is None or last.storage != first.storage:
        return Separator(first.storage, b"")
    return Separator(first.storage, first.key[: _common_bytes(last.key, first.key) + 1])


def index_drafts(listed: list[IndexedBlock], level: int) -> Iterator[tuple[BlockDraft, IndexedBlock]]:
    """Index blocks for these blocks, each with how the level above lists it (its offset is not known yet: 0)."""
    for at in range(0, max(len(listed), 1), LISTED_MAX):
        some = listed[at : at + LISTED_MAX]
        rows = 0
        for part in _columns(some, level).split(_SEPARATOR_BYTES_MAX):
            first = some[rows].separator if some else Separator(0, b"")
            yield draft_entries(part, kind=BlockKind.INDEX), IndexedBlock(first, 0, part.count)
            rows += part.count


def listed_by(columns: EntryColumns) -> Iterator[IndexedBlock]:
    separators = map(Separator, columns.storages.array().tolist(), columns.keys.to_list())
    return map(IndexedBlock, separators, columns.majors.array().tolist(), columns.minors.array().tolist())


def _common_bytes(left: bytes, right: bytes) -> int:
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    differs = np.frombuffer(left, dtype=np.uint8)[:shorter] != np.frombuffer(right, dtype=np.uint8)[:shorter]
    return int(np.argmax(differs))


def _columns(listed: list[IndexedBlock], level: int) -> EntryColumns:
    count = len(listed)
    nothing = NumberColumn(count, 0)
    return EntryColumns(
        NumberColumn(count, level),
        _numbers([item.separator.storage for item in listed]),
        _numbers([item.offset for item in listed]),
        _numbers([item.entries for item in listed]),
        Texts.of_list([item.separator.key for item in listed]),
        Texts.empty(count),
        nothing,
        nothing,
    )


def _numbers(values: list[int]) -> NumberColumn:
    return NumberColumn.of_array(np.array(values, dtype=np.uint64))


SORTED_BLOCK_BYTES = 256 << 10
_COLUMN_BYTES = 16  # about what an entry takes beside its key and value
_WRITE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SortedSummary:
    entries: int
    index_offset: int  # of the last index block, from which the reader starts
    end_offset: int
    running_checksum: int  # over the checksums of all blocks in order; same rule as log files
    key_bytes: int
    value_bytes: int


class SortedWriter:
    def __init__(
        self,
        file: File,
        identity: FileIdentity,
        start_offset: int,
        epoch: Epoch,
        running_checksum: int = 0,
        block_bytes: int = SORTED_BLOCK_BYTES,
    ) -> None:
        self._output = _SortedOutput(file, identity, start_offset, epoch, running_checksum)
        self._block_bytes = block_bytes
        self._waiting: list[EntryColumns] = []
        self._waiting_bytes = 0
        self._listed: list[IndexedBlock] = []
        self._last: Separator | None = None
        self._entries = self._key_bytes = self._value_bytes = 0

    def add(self, columns: EntryColumns) -> None:
        """The next entries in order."""
        if columns.count == 0:
            return
        for piece in columns.split(self._block_bytes):
            self._waiting.append(piece)
            self._waiting_bytes += piece.keys.size_bytes + piece.values.size_bytes + _COLUMN_BYTES * piece.count
            if 2 * self._waiting_bytes >= self._block_bytes:
                self._cut_block()

    def finish(self) -> SortedSummary:
        """Write what waits, then the index. Not synced."""
        if self._waiting:
            self._cut_block()
        index_offset = self._write_index()
        self._output.flush()
        at, running = self._output.offset, self._output.running_checksum
        return SortedSummary(self._entries, index_offset, at, running, self._key_bytes, self._value_bytes)

    def _cut_block(self) -> None:
        block = concatenated(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        first = Separator(block.storages.at(0), block.keys.at(0))
        if self._last is not None and first < self._last:
            raise Misuse(f"entries for {self._output.path} do not come in key order", "sort them with log.sorting")
        offset = self._output.put(draft_entries(block, kind=BlockKind.SORTED), self._entries)
        self._listed.append(IndexedBlock(separator_of(self._last, first), offset, block.count))
        self._last = Separator(block.storages.at(block.count - 1), block.keys.at(block.count - 1))
        self._entries += block.count
        self._key_bytes += block.keys.size_bytes
        self._value_bytes += block.values.size_bytes

    def _write_index(self) -> int:
        """Level upon level until one block lists all; return its offset."""
        below, level = self._listed, 0
        while True:
            above: list[IndexedBlock] = []
            for draft, listed in index_drafts(below, level):
                above.append(listed._replace(offset=self._output.put(draft)))
            if len(above) == 1:
                return above[0].offset
            below, level = above, level + 1


class _SortedOutput:
    """Blocks on their way to the file, gathered for large writes."""

    def __init__(self, file: File, identity: FileIdentity, offset: int, epoch: Epoch, running_checksum: int) -> None:
        self._file = file
        self._identity = identity
        self._epoch = epoch
        self._pieces: list[Buffer] = []
        self._written_to = offset
        self.offset = offset
        self.running_checksum = running_checksum

    @property
    def path(self) -> str:
        return self._file.path

    def put(self, draft: BlockDraft, first: int = 0) -> int:
        """Place the block behind the others; return its offset."""
        at = self.offset
        header, checksum = draft.place(self._identity, at, self._epoch, first)
        self._pieces += [header, *draft.pieces]
        self.running_checksum = crc32(checksum.to_bytes(4, "little"), self.running_checksum)
        self.offset += draft.size_bytes
        if self.offset - self._written_to >= _WRITE_BYTES:
            self.flush()
        return at

    def flush(self) -> None:
        if self._pieces:
            self._file.write_at(self._written_to, self._pieces)
        self._pieces = []
        self._written_to = self.offset


_BLOCKS_KEPT = 8


class SortedRow(NamedTuple):
    value: bytes
    version: tuple[int, int]


class SortedFileRow(NamedTuple):
    storage: int
    key: bytes
    value: bytes
    version: tuple[int, int]


class SortedFile:
    """A sorted file, by its last index block. Also an input of the next merge."""

    is_mapped = True

    def __init__(self, view: memoryview, identity: FileIdentity, index_offset: int, path: str) -> None:
        self._view = view
        self._identity = identity
        self._path = path
        self._headers: dict[int, Header] = {}  # of the blocks verified so far, by offset
        self._cached: dict[int, EntryColumns] = {}  # the blocks point lookups came by last, by number
        self._index = SortedIndex()
        self._load(index_offset, None)
        self.size_bytes = index_offset - (self._index.offsets[0] if self._index.offsets else index_offset)

    @property
    def entries(self) -> int:
        return self._index.entries

    @property
    def block_count(self) -> int:
        return len(self._index.offsets)

    def get(self, storage: int, key: bytes) -> SortedRow | None:
        number = self._index.block_of(storage, key)
        if number < 0:
            return None
        block = self._keep(number)
        row = _first_not_below(block, Separator(storage, key))
        while row < block.count and (block.storages.at(row), block.keys.at(row)) == (storage, key):
            if block.kinds.at(row) == EntryKind.PUT:
                return SortedRow(block.values.at(row), (block.majors.at(row), block.minors.at(row)))
            row += 1
        return None

    def range(
        self, storage: int, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> Iterator[SortedFileRow]:
        """Rows of the storage with low <= key < high (None: to the end), in key order or backwards."""
        end = Separator(storage, high) if high is not None else Separator(storage + 1, b"")
        return self._rows(Separator(storage, low), end, reverse)

    def prefix(self, storage: int, start: bytes, reverse: bool = False) -> Iterator[SortedFileRow]:
        """Rows of the storage whose key starts with `start`."""
        return self.range(storage, start, _behind_prefix(start), reverse)

    def cursor(self, reverse: bool = False) -> Iterator[SortedFileRow]:
        """Every row of every storage."""
        return self._rows(Separator(0, b""), Separator(UINT64_MAX + 1, b""), reverse)

    def batches(self, first: int = 0, stop: int | None = None) -> Iterator[EntryColumns]:
        """Everything in the blocks from number `first` to before `stop`, a batch each, as views of the file."""
        return map(self._block, range(first, self.block_count if stop is None else stop))

    def _rows(self, low: Separator, high: Separator, reverse: bool) -> Iterator[SortedFileRow]:
        numbers = self._index.blocks_between(low, high)
        for number in reversed(numbers) if reverse else numbers:
            block = self._block(number)
            start, stop = _first_not_below(block, low), _first_not_below(block, high)
            rows = _rows_of(block.part(start, max(start, stop)))
            yield from reversed(rows) if reverse else rows

    def _keep(self, number: int) -> EntryColumns:
        block = self._cached.get(number)
        if block is None:
            block = self._cached[number] = self._block(number)
            if len(self._cached) > _BLOCKS_KEPT:
                del self._cached[next(iter(self._cached))]
        return block

    def _block(self, number: int) -> EntryColumns:
        header, block = self._read(self._index.offsets[number], BlockKind.SORTED)
        first, end = self._index.firsts[number : number + 2]
        if (header.first, header.entries) != (first, end - first):
            raise Damage("a sorted block is not the one its index lists", self._path, header.offset)
        return block if block.epochs is not None else replace(block, epochs=NumberColumn(block.count, header.epoch))

    def _load(self, offset: int, level: int | None) -> None:
        """Follow the index from its last block down to the sorted blocks it lists."""
        header, block = self._read(offset, BlockKind.INDEX)
        here = block.kinds.base
        if not block.kinds.is_constant or (level is not None and here != level):
            raise Damage("an index block is not of the level it is listed for", self._path, offset)
        for listed in listed_by(block):
            if listed.offset >= header.offset:
                raise Damage("an index block lists a block that does not lie before it", self._path, offset)
            if here == 0:
                self._index.add(listed)
            else:
                self._load(listed.offset, here - 1)

    def _read(self, offset: int, kind: BlockKind) -> tuple[Header, EntryColumns]:
        header = self._headers.get(offset) or self._verified(offset, kind)
        try:
            return header, read_entries(self._view, header)
        except Damage as damage:
            raise Damage(damage.what, self._path, offset) from None

    def _verified(self, offset: int, kind: BlockKind) -> Header:
        found = check_block(self._view, offset, self._identity)
        if isinstance(found, BlockVerdict):
            raise Damage(f"no good block where a sorted file has one: {found.value}", self._path, offset)
        if found.kind != kind:
            raise Damage(f"a block of kind {found.kind} stands where kind {kind} is expected", self._path, offset)
        self._headers[offset] = found
        return found


def _first_not_below(block: EntryColumns, bound: Separator) -> int:
    """The first row whose (storage, key) is not less than the bound."""
    storages, keys = block.storages, block.keys
    return bisect_left(range(block.count), bound, key=lambda row: Separator(storages.at(row), keys.at(row)))


def _rows_of(block: EntryColumns) -> list[SortedFileRow]:
    versions = zip(block.majors.array().tolist(), block.minors.array().tolist(), strict=True)
    rows = map(SortedFileRow, block.storages.array().tolist(), block.keys.to_list(), block.values.to_list(), versions)
    if block.kinds.is_constant:
        return list(rows) if block.kinds.base == EntryKind.PUT else []
    return [row for row, kind in zip(rows, block.kinds.array().tolist(), strict=True) if kind == EntryKind.PUT]


def _behind_prefix(start: bytes) -> bytes | None:
    """The least string greater than everything that begins with `start`; None if there is none."""
    prefix = start.rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
