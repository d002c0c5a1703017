"""Small blocks of the log's end, joined: a busy broker writes a block of a few rows with every commit.

    block of 5 rows, block of 4 rows, …  ──▶  one batch of columns, large values as pointers where the stream refers

What comes out is what each block by itself would have given (log/tail), in one piece: columns are made once for
thousands of rows. The blocks were verified by whoever found them.
"""

from __future__ import annotations

from dataclasses import replace

from warren.base.ids import ChannelId, Epoch, FileNumber, Lsn, lsn_of
from warren.log.entries import EntryKind
from warren.log.referring import VALUE_BYTES_MAX, Pointer
from warren.log.rows import EntryRows, numbers
from warren.records.block import Header
from warren.records.columns import EntryColumns
from warren.records.few_rows import read_few

ENTRIES_MAX = 64  # of one block: above that columns are quicker
HEAD_BYTES = 8 << 10  # in which its columns and keys must be
ROWS_MAX = 4096  # then what is gathered goes on …
BYTES_MAX = 1 << 20  # … or then
_RECORD = int(EntryKind.RECORD)


class FewBlocks:
    """Of one file."""

    def __init__(self, channel: ChannelId, number: FileNumber) -> None:
        self.channel = channel
        self._number = number
        self._clear()

    def _clear(self) -> None:
        self._rows = EntryRows()
        self._minors: list[int] = []
        self._epochs: list[int] = []
        self.first = Lsn(0)
        self.epoch = Epoch(0)

    def __len__(self) -> int:
        return len(self._minors)

    def is_much(self) -> bool:
        return len(self._minors) >= ROWS_MAX or self._rows.size_bytes >= BYTES_MAX

    def add(self, view: memoryview, header: Header, is_referring: bool) -> bool:
        """Whether it was one that can be joined."""
        body_at, count = header.body_at, header.entries
        body_bytes = header.end - body_at
        if count > ENTRIES_MAX or (not is_referring and body_bytes > HEAD_BYTES):
            return False
        found = read_few(bytes(view[body_at : body_at + min(body_bytes, HEAD_BYTES)]), count, body_bytes)
        if found is None or found.key_edges[count] > HEAD_BYTES:
            return False
        block, block_bytes = lsn_of(self._number, header.offset), header.end - header.offset
        if not self._minors:
            self.first, self.epoch = block, header.epoch
        keys, values, minors = found.key_edges, found.value_edges, found.minors
        for row in range(count):
            kind = found.kinds[row]
            if is_referring and kind == _RECORD:
                continue
            start, stop = body_at + values[row], body_at + values[row + 1]
            if is_referring and stop - start > VALUE_BYTES_MAX:
                value = Pointer(block, row, stop - start, block_bytes).encode()
            else:
                value = bytes(view[start:stop])
            key = bytes(view[body_at + keys[row] : body_at + keys[row + 1]])
            self._rows.add(kind, found.storages[row], key, value)
            self._minors.append(header.first + row if minors is None else minors[row])
            self._epochs.append(header.epoch)
        return True

    def take(self) -> EntryColumns:
        """What was gathered, and begin anew."""
        columns = replace(self._rows.columns(self._minors, self._epochs), epochs=numbers(self._epochs))
        self._clear()
        return columns
