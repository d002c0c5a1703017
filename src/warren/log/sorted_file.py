"""Writing a sorted file: entries in key order, in blocks, with an index behind them. Snapshots and compacted files.

    | file header (not ours) | sorted | sorted | … | sorted | index … | last index |
      start_offset ^                                             index_offset ^    ^ end_offset

Entries come in order, in batches of any size (what `merge` and the plans of `sorting` give); blocks are cut at about
`block_bytes`, a small rest waits for the next batch. Each block's header says the number of its first entry, so that a
block which is not where the index says cannot pass for its neighbour. Writes are large: several blocks each.

Always true: nothing is written twice and nothing is read back. Syncing, naming and announcing the file is the caller's
business, as is its first block. Bytes: docs/formats/sorted_file.md. Reading: sorted_reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.base.checksum import crc32
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.files.protocol import Buffer, File
from warren.log.pool import concatenated
from warren.log.sorted_index import IndexedBlock, Separator, index_drafts, separator_of
from warren.records.block import BlockDraft, FileIdentity
from warren.records.columns import EntryColumns
from warren.records.entries import draft_entries
from warren.records.format import BlockKind

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
        self._output = _Output(file, identity, start_offset, epoch, running_checksum)
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


class _Output:
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
