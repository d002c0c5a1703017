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

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np

from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import UINT64_MAX, Epoch, StreamId
from warren.durability.participant import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_header import FILE_HEADER_BYTES, Purpose
from warren.log.file_record import FileRecord, FileState
from warren.log.scan_damage import bad_range, peek
from warren.log.scan_tail import judge_tail
from warren.log.scan_verdict import AtNondurable, FileScan, Problem, Range, ScanVerdict
from warren.records.block import Header, look
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.format import FORMAT_VERSION, BlockKind
from warren.records.numbers import Numbers
from warren.records.verdict import Verdict
from warren.records.walk import next_good

EVERY_EPOCH = Epoch(UINT64_MAX)
WITH_ENTRIES = (BlockKind.ENTRIES, BlockKind.SORTED)


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
        return FileScan(record, path, memoryview(b""), ScanVerdict.FAILED, problems=(Problem(error.what, 0, 0),))
    walk = _Walk(view, record)
    if record.state is FileState.ACTIVE:
        walk.active(durable, witnessed)
    else:
        walk.sealed()
    return judge_tail(walk.result(path), durable, at_nondurable)


def scan_found(
    files: Files,
    find: Callable[[], str],
    record: FileRecord,
    durable: Epoch,
    witnessed: FileEnd | None = None,
    at_nondurable: AtNondurable = AtNondurable.REPORT,
) -> FileScan:
    """Scan a file that a running store may rename, and give its name to another, while we are on our way to it."""
    path = find()
    while True:
        scan = scan_one(files, path, record, durable, witnessed, at_nondurable)
        if scan.verdict < ScanVerdict.UNEXPECTED or (now := find()) == path:
            return scan
        path = now


def witnessed_end(ends: Iterable[FileEnd], record: FileRecord) -> FileEnd | None:
    """How far the witness says that a file reached. An end of another life of the same number says nothing of this."""
    return next((end for end in ends if (end.number, end.identity) == (record.number, record.identity)), None)


def map_file(files: Files, path: str) -> memoryview:
    file = files.open(path)
    try:
        return file.view()
    finally:
        file.close()


def counted(record: FileRecord, stop: int) -> list[Range]:
    """The ranges of [0, stop) that are not voided."""
    ranges: list[Range] = []
    at = 0
    for voided in sorted(record.voided, key=lambda voided: voided.start):
        if at < min(voided.start, stop):
            ranges.append((at, min(voided.start, stop)))
        at = max(at, voided.end)
    return [*ranges, (at, stop)] if at < stop else ranges


class _Walk:
    """From block to block, over what is bad, adding up what is good."""

    def __init__(self, view: memoryview, record: FileRecord) -> None:
        self._view = view
        self._record = record
        self._good: list[Range] = []
        self._blocks = self._entries = self._running = 0
        self._last: Header | None = None  # the last good block
        self._problems: list[Problem] = []

    def sealed(self) -> None:
        record = self._record
        for start, stop in counted(record, record.end):
            self._over(start, stop)
        if not self._problems and self._running != record.running:
            what = "the blocks are not those that were sealed: their running checksum differs"
            self._problems.append(Problem(what, 0, record.end))

    def active(self, durable: Epoch, witnessed: FileEnd | None) -> None:
        """As far as blocks are good and durable; then over what is bad, if something durable stands behind it."""
        voided = min((voided.start for voided in self._record.voided), default=UINT64_MAX)
        at = self._follow(0, min(voided, len(self._view)), durable)
        wanted = min(max(witnessed.end if witnessed else 0, self._last_durable(at, durable)), voided)
        self._over(at, wanted, durable)
        if witnessed and not self._problems and self._running_at(witnessed.end) != witnessed.running:
            what = "the blocks are not those that were synced: their running checksum differs"
            self._problems.append(Problem(what, 0, witnessed.end))

    def result(self, path: str) -> FileScan:
        verdict = ScanVerdict.UNEXPECTED if self._problems else ScanVerdict.OK
        max_epoch = self._last.epoch if self._last else Epoch(0)
        return FileScan(
            self._record,
            path,
            self._view,
            verdict,
            tuple(self._good),
            self._blocks,
            self._entries,
            max_epoch,
            self._running,
            tuple(self._problems),
        )

    def _over(self, start: int, stop: int, durable: Epoch = EVERY_EPOCH) -> None:
        """Everything from `start` to `stop` must be good: whatever is not becomes a problem."""
        at = start
        while at < stop:
            at = self._follow(at, stop, durable)
            if at > stop:
                self._problems.append(Problem("a block reaches beyond the file's valid end", stop, at))
            if at >= stop:
                return
            behind = next_good(self._view[:stop], self._record.identity, at + 8)
            end = behind.offset if behind else stop
            self._problems.append(bad_range(self._view, self._record.identity, at, end, self._last, behind))
            at = end

    def _follow(self, start: int, stop: int, durable: Epoch) -> int:
        """Good blocks from `start` on, up to `stop` or to the durable epoch's end; where they end."""
        at = start
        while at < stop:
            found = look(self._view, at, self._record.identity)
            if isinstance(found, Verdict) or found.epoch > durable:
                break
            self._add(found)
            at = found.end
        if at > start:
            self._good.append((start, at))
        return at

    def _add(self, header: Header) -> None:
        if header.format > FORMAT_VERSION:
            what = f"log file {self._record.number} has blocks of format {header.format}"
            raise Refused(f"{what}, this warren reads up to {FORMAT_VERSION}", "use a newer warren")
        if self._last is not None and header.epoch < self._last.epoch and self._record.purpose is Purpose.LOG:
            what = f"epoch {header.epoch} stands behind epoch {self._last.epoch}"
            self._problems.append(Problem(what, header.offset, header.end))
        if (header.kind == BlockKind.FILE_HEADER) != (header.offset == 0):
            self._problems.append(Problem("a file header is missing or misplaced", header.offset, header.end))
        self._blocks += 1
        self._entries += header.entries if header.kind in WITH_ENTRIES else 0
        self._running = crc32(header.checksum.to_bytes(4, "little"), self._running)
        self._last = header

    def _last_durable(self, start: int, durable: Epoch) -> int:
        """The end of the last durable block behind `start`, or `start`."""
        end, found = start, next_good(self._view, self._record.identity, start)
        while found is not None:
            end = found.end if found.epoch <= durable else end
            found = next_good(self._view, self._record.identity, found.end)
        return end

    def _running_at(self, end: int) -> int | None:
        running = 0
        for header in trusted(self._view, self._good):
            running = crc32(header.checksum.to_bytes(4, "little"), running)
            if header.end == end:
                return running
        return None


def trusted(view: memoryview, good: Collection[Range]) -> Iterator[Header]:
    """The headers of ranges that were scanned before and found good."""
    for start, stop in good:
        at = start
        while at < stop:
            header = peek(view, at)
            assert header is not None, "a good range holds nothing but good blocks"
            yield header
            at = header.end


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
            columns = replace(columns, epochs=Numbers.constant(header.entries, header.epoch))
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
    path: str = ""
    witnessed: FileEnd | None = None  # active files: how far the epoch file says it reached
    find: Callable[[], str] | None = None  # where it is now, beside a running store
    _scan: FileScan | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.path = self.path or join(self.directory, self.record.name)

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
            find = self.find or (lambda: self.path)
            ignore = AtNondurable.IGNORE
            scan = scan_found(self.files, find, self.record, self.up_to_epoch, self.witnessed, ignore)
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
