"""Reading a sorted file: one key, a range, everything row by row, or column batches as they lie in the file.

Every block's checksum is verified the first time the block is touched, and only then; what does not verify is `Damage`
with path and offset, and nothing of it is served. Nothing is copied but what is handed out as `bytes`: batches are
views of the file, and the cursor holds one block at a time.

`get`, `range`, `prefix` and `cursor` show keys that have a value. Tombstones and entries about storages are shown by
`batches` alone: they matter to a merge, not to a reader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from warren.base.errors import Damage
from warren.base.ids import UINT64_MAX
from warren.log.entries import EntryKind
from warren.log.sorted_index import Separator, SortedIndex, listed_by
from warren.records.block import FileIdentity, Header, look
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.format import BlockKind
from warren.records.numbers import NumberColumn
from warren.records.verdict import BlockVerdict

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
        self._kept: dict[int, EntryColumns] = {}  # the blocks point lookups came by last, by number
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
        block = self._kept.get(number)
        if block is None:
            block = self._kept[number] = self._block(number)
            if len(self._kept) > _BLOCKS_KEPT:
                del self._kept[next(iter(self._kept))]
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
        found = look(self._view, offset, self._identity)
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
    kept = start.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
