"""The census: how much of each file of the message stream is still pointed to, and from which rows.

    rows of the queues ──▶ pointers ──▶ by file: bytes alive             one look at the store's rows, column by column

Rows are runs, so a census of a large backlog looks at few of them. Of a run that is acknowledged in part only what is
left counts: its head is read from the log for that, and for no other.

Always true: a file that no row points into is not needed by anybody who reads rows at or behind the census's view. Not
here: what is done about garbage (cleaning).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from warren.base.errors import Damage
from warren.base.ids import Epoch, FileNumber, QueueId, SequenceId
from warren.base.runs import QueuePlace
from warren.files.protocol import Buffer
from warren.log.referring import POINTER, Pointer
from warren.queue_index.format import ACK_ROW, KEY, RUN_ROW, decode_gone
from warren.queue_index.run_format import decode_run
from warren.queue_index.stream_writing import RunPlace
from warren.records.columns import EntryColumns
from warren.snapshot.snapshot_store import StoreReader

Resolve = Callable[[bytes], Buffer]
POINTERS = np.dtype([("mark", "u1"), ("block", "<u8"), ("entry", "<u4"), ("size", "<u4"), ("block_size", "<u4")])
assert POINTERS.itemsize == POINTER.size


@dataclass(frozen=True, slots=True)
class PointerRow:
    """A run whose contents are in the log."""

    queue: QueueId
    key: bytes
    value: bytes  # the pointer, as the store has it
    gone: bytes | None  # its ack row

    @property
    def pointer(self) -> Pointer:
        return Pointer.decode(self.value)

    @property
    def place(self) -> QueuePlace:
        return QueuePlace(self.queue, self.key[1])

    @property
    def first(self) -> SequenceId:
        return SequenceId(KEY.unpack(self.key)[2])

    @property
    def run_place(self) -> RunPlace:
        return self.queue, self.key[1], self.first


@dataclass(slots=True)
class RowLivenessScan:
    alive_bytes: dict[FileNumber, int] = field(default_factory=dict)

    def of(self, number: FileNumber) -> int:
        return self.alive_bytes.get(number, 0)

    @property
    def total_bytes(self) -> int:
        return sum(self.alive_bytes.values())

    def add(self, number: FileNumber, size_bytes: int) -> None:
        self.alive_bytes[number] = self.of(number) + size_bytes


def take_census(reading: StoreReader, queues: Iterable[QueueId], resolve: Resolve) -> RowLivenessScan:
    """Of the rows of these queues."""
    census = RowLivenessScan()
    for queue in queues:
        for batch in reading.batches(queue):
            rows, pointers = _pointers(batch)
            numbers, places = np.unique(pointers["block"] >> np.uint64(32), return_inverse=True)
            sizes = np.bincount(places, pointers["size"].astype(np.float64), len(numbers))
            for number, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
                census.add(FileNumber(number), int(size))
            for row in _partly_gone(queue, batch, rows):
                census.add(row.pointer.file, -_gone_bytes(row, resolve))
    return census


def rows_into(reading: StoreReader, queues: Iterable[QueueId], files: Collection[FileNumber]) -> Iterator[PointerRow]:
    """The rows that point into some files."""
    wanted = np.array(sorted(files), dtype=np.uint64)
    for queue in queues:
        for batch in reading.batches(queue):
            rows, pointers = _pointers(batch)
            for row in rows[np.isin(pointers["block"] >> np.uint64(32), wanted)].tolist():
                yield _row(queue, batch, row)


def alive_of(row: PointerRow, value: Buffer) -> tuple[int, int]:
    """How many messages a run has, and which are gone, as a bitmap."""
    run = decode_run(row.place, row.first, value, Epoch(0))
    return run.count, 0 if row.gone is None else decode_gone(row.place, row.first, run.count, row.gone)


def _gone_bytes(row: PointerRow, resolve: Resolve) -> int:
    try:
        count, gone = alive_of(row, resolve(row.value))
    except Damage:  # whoever wants to write it again tells
        return 0
    return row.pointer.size_bytes * gone.bit_count() // count


def _pointers(batch: EntryColumns) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """The rows of a batch that are pointers, and those."""
    starts, sizes = batch.values.bounds()
    rows = np.flatnonzero(sizes == POINTER.size)
    heap = batch.values.heap
    rows = rows[heap[starts[rows]] == 0xFF] if len(rows) else rows
    raw = heap[starts[rows][:, None] + np.arange(POINTER.size)] if len(rows) else np.zeros((0, POINTER.size), np.uint8)
    return rows, np.ascontiguousarray(raw).view(POINTERS).reshape(len(rows))


def _partly_gone(queue: QueueId, batch: EntryColumns, rows: npt.NDArray[np.int64]) -> Iterator[PointerRow]:
    """Those with an ack row, which stands behind them."""
    starts, sizes = batch.keys.bounds()
    if not len(rows) or not (sizes == KEY.size).any():
        return
    last = batch.keys.heap[starts + np.maximum(sizes, 1) - 1]
    is_ack = (sizes == KEY.size) & (last == ACK_ROW)
    behind = rows[rows + 1 < batch.count]
    for row in behind[is_ack[behind + 1]].tolist():
        found = _row(queue, batch, row)
        if found.gone is not None:
            yield found


def _row(queue: QueueId, batch: EntryColumns, row: int) -> PointerRow:
    key, gone = batch.keys.at(row), None
    if row + 1 < batch.count and batch.keys.at(row + 1) == key[:-1] + bytes([ACK_ROW]):
        gone = batch.values.at(row + 1)
    assert key[-1] == RUN_ROW, "only runs are large"
    return PointerRow(queue, key, batch.values.at(row), gone)
