"""Cleaner of the message stream: releases files that are more than half garbage, after writing their live runs again.

    liveness scan ──▶ no row points into the file             release
                  ──▶ less than half of it is alive           its runs once more, at the end of the stream, under the
                                                              same keys; durable ──▶ release

A run that is acknowledged in part is written without the contents that are gone. So one old unconsumed message costs
its own bytes, again and again, and never a file (checklist TS-03).

Order of a pass, safe at any power cut: what is written again is durable before its file is released (a manifest edit).
A run that leaves its queue meanwhile must not come back: row changes are watched from some moment on, rows are read as
of then, and under the stream lock only rows without a change since are written; the others are read once more. The lock
is never held while the cleaner waits for the disk (`StreamLock`).

The scan: bytes per file that rows still point to.

    rows of the queues ──▶ pointers ──▶ by file: bytes alive             one pass over the store's rows, by column

Rows are runs, so scanning a large backlog reads few of them. Of a run acknowledged in part only the rest counts:
for those only, the head of the run is read from the log.

Invariants
* A file without pointers is not needed by any reader of rows at or after the scan's view.
* Only files are judged whose entries are all in the store, on disk: rows do not know about later ones.
* A file with damaged live contents stays as it is, and is listed in `damaged`.

Elsewhere: when to run (`is_due` decides; the broker polls it), large contents (message_store/collector).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from warren.base.errors import Damage
from warren.base.ids import Epoch, FileNumber, QueueId, SequenceId
from warren.base.messages import QueuePlace
from warren.files.protocol import Buffer
from warren.log.file_record import FileRecord, FileState
from warren.log.pointers import POINTER, Pointer
from warren.log.streams import Stream
from warren.queue_index.batch import RunPlace, StreamLock
from warren.queue_index.row_format import ACK_ROW, KEY, RUN_ROW, decode_gone, decode_run, without_gone
from warren.records.columns import EntryColumns
from warren.snapshot.database import Database
from warren.snapshot.store import StoreReader

Resolve = Callable[[bytes], Buffer]
POINTERS = np.dtype([("mark", "u1"), ("block", "<u8"), ("entry", "<u4"), ("size", "<u4"), ("block_size", "<u4")])
assert POINTERS.itemsize == POINTER.size


@dataclass(frozen=True, slots=True)
class PointerRow:
    """The row of a run whose contents are in the log."""

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


def scan_liveness(reading: StoreReader, queues: Iterable[QueueId], resolve: Resolve) -> RowLivenessScan:
    """Scan the rows of these queues."""
    liveness_scan = RowLivenessScan()
    for queue in queues:
        for batch in reading.batches(queue):
            rows, pointers = _pointers(batch)
            numbers, places = np.unique(pointers["block"] >> np.uint64(32), return_inverse=True)
            sizes = np.bincount(places, pointers["size"].astype(np.float64), len(numbers))
            for number, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
                liveness_scan.add(FileNumber(number), int(size))
            for row in _partly_gone(queue, batch, rows):
                liveness_scan.add(row.pointer.file, -_gone_bytes(row, resolve))
    return liveness_scan


def rows_into(reading: StoreReader, queues: Iterable[QueueId], files: Collection[FileNumber]) -> Iterator[PointerRow]:
    """Rows that point into some files."""
    wanted = np.array(sorted(files), dtype=np.uint64)
    for queue in queues:
        for batch in reading.batches(queue):
            rows, pointers = _pointers(batch)
            for row in rows[np.isin(pointers["block"] >> np.uint64(32), wanted)].tolist():
                yield _row(queue, batch, row)


def alive_of(row: PointerRow, value: Buffer) -> tuple[int, int]:
    """Number of messages of a run, and the bitmap of gone ones."""
    run = decode_run(row.place, row.first, value, Epoch(0))
    return run.count, 0 if row.gone is None else decode_gone(row.place, row.first, run.count, row.gone)


def _gone_bytes(row: PointerRow, resolve: Resolve) -> int:
    try:
        count, gone = alive_of(row, resolve(row.value))
    except Damage:  # reported when it is written again
        return 0
    return row.pointer.size_bytes * gone.bit_count() // count


def _pointers(batch: EntryColumns) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Indexes of rows that are pointers, and the pointers."""
    starts, sizes = batch.values.bounds()
    rows = np.flatnonzero(sizes == POINTER.size)
    heap = batch.values.heap
    rows = rows[heap[starts[rows]] == 0xFF] if len(rows) else rows
    raw = heap[starts[rows][:, None] + np.arange(POINTER.size)] if len(rows) else np.zeros((0, POINTER.size), np.uint8)
    return rows, np.ascontiguousarray(raw).view(POINTERS).reshape(len(rows))


def _partly_gone(queue: QueueId, batch: EntryColumns, rows: npt.NDArray[np.int64]) -> Iterator[PointerRow]:
    """Rows followed by their ack row."""
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
    assert key[-1] == RUN_ROW, "only run rows are large"
    return PointerRow(queue, key, batch.values.at(row), gone)


_AT_ONCE = 64  # runs rewritten together
DEAD_BYTES_MIN = 512 << 10
DEAD_SHARE = 4  # a scan is worth it when 1/4 of the sealed bytes died since the last one


@dataclass(frozen=True, slots=True)
class CleaningResult:
    files: int = 0  # released
    runs: int = 0  # written again
    written_bytes: int = 0


class Cleaner:
    def __init__(
        self, database: Database, stream: Stream, queues: Callable[[], Collection[QueueId]], stream_lock: StreamLock
    ) -> None:
        self._database = database
        self._stream = stream
        self._queues = queues
        self._stream_lock = stream_lock
        self._dead_bytes = 0  # since the last scan
        self._is_first = True
        self.liveness_scan = RowLivenessScan()
        self.damaged: dict[FileNumber, Damage] = {}  # files that stay, with the reason

    def note_dead(self, size_bytes: int) -> None:
        """Note bytes that have left the queues."""
        self._dead_bytes += size_bytes

    def is_due(self) -> bool:
        sealed = sum(record.end for record in self._sealed())
        enough = max(DEAD_BYTES_MIN, sealed // DEAD_SHARE)
        return bool(sealed) and (self._is_first or self._dead_bytes >= enough)

    def run(self) -> CleaningResult:
        """One pass."""
        sealed, self._dead_bytes, self._is_first = self._sealed(), 0, False
        queues = sorted(self._queues())
        view = self._database.view_now()
        try:
            self.liveness_scan = liveness_scan = scan_liveness(view, queues, self._database.resolve)
            self.damaged = {n: reason for n, reason in self.damaged.items() if n in liveness_scan.alive_bytes}
            judged = [r for r in sealed if r.number not in self.damaged]
            poor = [
                r.number
                for r in judged
                if r.number in liveness_scan.alive_bytes and 2 * liveness_scan.of(r.number) < r.end
            ]
            rows = list(rows_into(view, queues, poor)) if poor else []
        finally:
            view.close()
        written_bytes = self._write_again(rows)
        empty = [r.number for r in judged if r.number not in liveness_scan.alive_bytes]
        going = [number for number in [*poor, *empty] if number not in self.damaged]
        if going:
            self._database.log.streams.release(self._stream, going)
            self._database.pointed.forget(going)
        return CleaningResult(len(going), len(rows), written_bytes)

    def _sealed(self) -> list[FileRecord]:
        """Files of the stream that may be cleaned, oldest first."""
        state = self._database.log.manifest.state
        ours = [r for _, r in sorted(state.files.items()) if self._stream.id in dict(r.stream_ends)]
        return [r for r in ours if r.state is FileState.SEALED and max(r.last_epoch, r.sealed_epoch) <= state.reflected]

    # -- writing again -------------------------------------------------------------------------------------------

    def _write_again(self, rows: Sequence[PointerRow]) -> int:
        written_bytes, newest, left = 0, Epoch(0), deque(rows)
        while left:
            piece = [left.popleft() for _ in range(min(_AT_ONCE, len(left)))]
            size_bytes, epoch, changed = self._write_piece(piece)
            written_bytes, newest = written_bytes + size_bytes, max(newest, epoch)
            left.extend(changed)
        if newest:
            self._database.log.wait(newest)
            self._database.catch_up_unless_paused()  # readers find the new positions in the store
        return written_bytes

    def _write_piece(self, rows: Sequence[PointerRow]) -> tuple[int, Epoch, list[PointerRow]]:
        """Rewrite rows that have not changed; returns bytes, epoch, and rows that changed meanwhile."""
        try:
            present = self._still_there(rows, self._stream_lock.begin_watch())
            values = [(row, value) for row in present if (value := self._trimmed(row)) is not None]
        except BaseException:
            with self._stream_lock.lock:
                self._stream_lock.end_watch()
            raise
        with self._stream_lock.lock:
            same = [(row, value) for row, value in values if not self._stream_lock.is_changed(row.run_place)]
            changed = [row for row, _ in values if self._stream_lock.is_changed(row.run_place)]
            self._stream_lock.end_watch()
            return sum(len(value) for _, value in same), self._put(same), changed

    def _put(self, rows: Sequence[tuple[PointerRow, bytes]]) -> Epoch:
        """Under the lock of the stream."""
        if not rows:
            return Epoch(0)
        session = self._stream.begin()
        try:
            for row, value in rows:
                session.put(row.queue, row.key, value)
        except BaseException:
            session.abort()
            raise
        epoch = session.end()
        self._stream_lock.newest = max(self._stream_lock.newest, epoch)
        return epoch

    def _still_there(self, rows: Sequence[PointerRow], newest: Epoch) -> list[PointerRow]:
        """Rows that still exist at an epoch; waits until it is durable."""
        view = self._database.view_at(newest)
        try:
            found = []
            for row in rows:
                own = view.get(row.queue, row.key)
                if own is None or own.value != row.value:
                    continue
                gone = view.get(row.queue, row.key[:-1] + bytes([ACK_ROW]))
                found.append(PointerRow(row.queue, row.key, row.value, None if gone is None else gone.value))
            return found
        finally:
            view.close()

    def _trimmed(self, row: PointerRow) -> bytes | None:
        """The row without gone contents; None: unreadable."""
        try:
            value = self._database.resolve(row.value)
            _, gone = alive_of(row, value)
            return without_gone(row.place, row.first, value, gone)
        except Damage as error:
            self.damaged[row.pointer.file] = error
            return None
