"""THE scanner: every reader of log files — start-up, compaction, verify, inspect, repair, Spark — reads through here.

    sealed   | header | blocks …                          end | voided, zeros, or an earlier life |
               every block up to `end` that is not voided must be good, and together they must be those that were sealed
    active   | header | blocks of epochs ≤ durable | blocks beyond it | torn or zeros |
               what lies beyond the durable epoch may be anything: a power cut, or a writer at work

`scan_one` judges a file and says where it is good; `entries_of` reads the entries of what counts as columns, which are
views of the mapped file; `LogInput` is one file as an input of a merge, to be read as often as wanted.

Always true: nothing beyond the durable epoch, nothing voided and nothing whose checksum does not hold is ever yielded.
A file is checked when it is first read and trusted afterwards. Not here: several files at once (log/scan_workers), how
durable is found (log/recovery), what becomes of damage (log/repair).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from warren.base.errors import Damage, Gone, WarrenError
from warren.base.ids import Epoch, StreamId
from warren.durability.participant import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_header import FILE_HEADER_BYTES
from warren.log.file_lookup import open_by_name
from warren.log.file_record import FileRecord, FileState
from warren.log.scan_tail import judge_tail
from warren.log.scan_verdict import AtNondurable, FileScan, Problem, ScanVerdict
from warren.log.scan_walk import WITH_ENTRIES, ScanWalk, counted, trusted
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.numbers import NumberColumn

__all__ = [
    "WITH_ENTRIES",
    "LogInput",
    "counted",
    "entries_of",
    "map_file",
    "refuse_damage",
    "scan_failed",
    "scan_one",
    "scan_record",
    "trusted",
    "witnessed_end",
]


def scan_one(
    files: Files,
    path: str,
    record: FileRecord,
    durable: Epoch,
    witnessed: FileEnd | None = None,
    at_nondurable: AtNondurable = AtNondurable.REPORT,
) -> FileScan:
    """Judge one file. `witnessed` is how far the epoch file says that an active file reached."""
    try:
        view = map_file(files, path)
    except WarrenError as error:
        return scan_failed(record, path, error)
    return _judged(view, path, record, durable, witnessed, at_nondurable)


def scan_record(
    files: Files,
    directory: str,
    record: FileRecord,
    durable: Epoch,
    witnessed: FileEnd | None = None,
    at_nondurable: AtNondurable = AtNondurable.REPORT,
) -> FileScan:
    """The same of a file that a running store may rename or remove meanwhile: `Gone` if it was purged."""
    try:
        view, path = open_by_name(files, directory, record).map()
    except Gone:
        raise
    except WarrenError as error:
        return scan_failed(record, join(directory, record.name), error)
    return _judged(view, path, record, durable, witnessed, at_nondurable)


def scan_failed(record: FileRecord, path: str, error: WarrenError) -> FileScan:
    """The scan of a file that could not be read."""
    problem = Problem(error.bare if isinstance(error, Damage) else error.what, 0, 0)
    return FileScan(record, path, memoryview(b""), ScanVerdict.FAILED, problems=(problem,))


def _judged(
    view: memoryview,
    path: str,
    record: FileRecord,
    durable: Epoch,
    witnessed: FileEnd | None,
    at_nondurable: AtNondurable,
) -> FileScan:
    walk = ScanWalk(view, record)
    if record.state is FileState.ACTIVE:
        walk.active(durable, witnessed)
    else:
        walk.sealed()
    return judge_tail(walk.result(path), durable, at_nondurable)


def witnessed_end(ends: Iterable[FileEnd], record: FileRecord) -> FileEnd | None:
    """How far the witness says that a file reached. An end of another life of the same number says nothing of this."""
    return next((end for end in ends if (end.number, end.identity) == (record.number, record.identity)), None)


def map_file(files: Files, path: str) -> memoryview:
    file = files.open(path)
    try:
        return file.view()
    finally:
        file.close()


def entries_of(
    scan: FileScan,
    up_to_epoch: Epoch,
    from_epoch: Epoch = Epoch(0),
    streams: Collection[StreamId] | None = None,
) -> Iterator[EntryColumns]:
    """The entries of a scanned file whose epochs lie in [from_epoch, up_to_epoch], block by block."""
    for header in trusted(scan.view, scan.good):
        if header.kind not in WITH_ENTRIES or not header.entries:
            continue
        if streams is not None and header.stream not in streams:
            continue
        columns = read_entries(scan.view, header)
        if columns.epochs is None:
            columns = replace(columns, epochs=NumberColumn.constant(header.entries, header.epoch))
        yield from _between(columns, from_epoch, up_to_epoch)


def _between(columns: EntryColumns, first: Epoch, last: Epoch) -> Iterator[EntryColumns]:
    """The runs of entries whose epoch lies in [first, last]: nearly always all of them or none."""
    assert columns.epochs is not None
    if columns.epochs.is_constant:
        if first <= columns.epochs.base <= last:
            yield columns
        return
    epochs = columns.epochs.array()
    inside = (epochs >= np.uint64(first)) & (epochs <= np.uint64(last))
    if inside.all():
        yield columns
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], inside, [False])).astype(np.int8))).tolist()
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        yield columns.part(start, stop)


@dataclass(slots=True)
class LogInput:
    """One log or compacted file as an input of a merge: its entries up to an epoch, as often as they are asked for."""

    files: Files
    directory: str
    record: FileRecord
    up_to_epoch: Epoch
    from_epoch: Epoch = Epoch(0)
    streams: Collection[StreamId] | None = None
    witnessed: FileEnd | None = None  # active files: how far the epoch file says it reached
    _scan: FileScan | None = field(default=None, repr=False)

    @property
    def is_mapped(self) -> bool:
        """Batches are views of the mapped file: keeping them costs no memory of ours."""
        return True

    @property
    def entries(self) -> int:
        """As the manifest counts them; an active file is counted when it is scanned."""
        return self._scan.entries if self._scan else self.record.entries

    @property
    def size_bytes(self) -> int:
        return max(0, (self._scan.end if self._scan else self.record.end) - FILE_HEADER_BYTES)

    def scan(self) -> FileScan:
        """Check the file, once."""
        if self._scan is None:
            ignore = AtNondurable.IGNORE
            scan = scan_record(self.files, self.directory, self.record, self.up_to_epoch, self.witnessed, ignore)
            refuse_damage(scan)
            self._scan = scan
        return self._scan

    def batches(self) -> Iterator[EntryColumns]:
        yield from entries_of(self.scan(), self.up_to_epoch, self.from_epoch, self.streams)


def refuse_damage(scan: FileScan) -> None:
    """Nothing of a damaged file is served."""
    if scan.verdict >= ScanVerdict.UNEXPECTED:
        first = scan.problems[0]
        raise Damage(str(first), scan.path, first.offset)
