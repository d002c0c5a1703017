"""Scanner: every reader of log files — start-up, compaction, verify, inspect, repair, Spark — reads through here.

    sealed   | header | blocks …                          end | voided, zeros, or an earlier incarnation |
               every block up to `end` that is not voided must be good, and together they must be those that were sealed
    active   | header | blocks of epochs ≤ durable | blocks beyond it | torn or zeros |
               what lies beyond the durable epoch may be anything: left by a power cut, or being written

`scan_one` judges a file and says where it is good; `entries_of` reads the entries of what counts as columns, which are
views of the mapped file; `LogInput` is one file as an input of a merge, which can be read repeatedly.

The tail, behind the blocks that count:

    behind the last valid block            marked in the manifest, or by this scan    not marked
    whole blocks beyond the durable epoch  OK, or REPAIRED if marked just now         NONDURABLE_ENTRIES
    anything else that is not zeros        BROKEN_AFTER_MARKED                        BROKEN_AFTER

The worst counts. In a recycled file the bytes of its earlier incarnation follow the tail: only good blocks of this one
show how far it reached.

`LogScan` scans many files, an explicit list and never a directory listing, by several workers; each takes one file at a
time. What a verdict means for the whole scan is limestone's table:

    OK, REPAIRED            continue
    BROKEN_AFTER_MARKED     detached: REPAIRED if this scan made the mark, else OK; not detached and fail-fast: stop
    BROKEN_AFTER            not detached and fail-fast: stop
    NONDURABLE_ENTRIES      reported, no reason to stop
    UNEXPECTED, FAILED      fail-fast: stop, with the message

To stop means: the first error is stored, files that no worker has begun are skipped, and when the last worker has ended
the error is raised in the caller. A broken tail above the witness never gets here: opening has sealed the file and
marked it (docs/checklist.md C-41).

Invariant: nothing beyond the durable epoch, nothing voided and nothing with a wrong checksum is ever yielded. A file is
checked when it is first read and trusted afterwards. Not here: how the durable epoch is found (log/recovery), what is
done about damage (log/check/repair).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from warren.base.errors import Damage, Gone, WarrenError
from warren.base.ids import Epoch, StreamId
from warren.base.threads import Threads
from warren.durability.log_file import FileEnd
from warren.files.protocol import Files, base_name, join
from warren.log.file_record import FILE_HEADER_BYTES, FileRecord, FileState, Voided, is_wal
from warren.log.log_files import open_by_name
from warren.log.read.blocks import (
    WITH_ENTRIES,
    AtNondurable,
    FileScan,
    Problem,
    Range,
    ScanVerdict,
    ScanWalk,
    extent,
    next_good,
    trusted,
)
from warren.records.block import Header, check_block
from warren.records.columns import EntryColumns, NumberColumn
from warren.records.entries import read_entries


@dataclass(frozen=True, slots=True)
class FileTail:
    """What was written behind the blocks that count."""

    whole: tuple[Header, ...]  # good blocks of this incarnation
    broken: tuple[Range, ...]  # everything else

    @property
    def end(self) -> int:
        return max([0, *(header.end for header in self.whole), *(end for _, end in self.broken)])


def judge_tail(scan: FileScan, durable: Epoch, at_nondurable: AtNondurable) -> FileScan:
    """The scan with its tail taken into account."""
    start = max(scan.end, scan.record.end if scan.record.state is not FileState.ACTIVE else 0)
    tail = read_tail(scan, start)
    nondurable = [header for header in tail.whole if not _is_marked(scan.record.voided, (header.offset, header.end))]
    marks = scan.marks
    verdict = scan.verdict
    problems = list(scan.problems)
    if nondurable and at_nondurable is AtNondurable.REPAIR_BY_MARK:
        marks = (_mark(nondurable),)
        verdict = max(verdict, ScanVerdict.REPAIRED)
    elif nondurable and at_nondurable is AtNondurable.REPORT:
        verdict = max(verdict, ScanVerdict.NONDURABLE_ENTRIES)
        problems.append(_beyond(nondurable, durable))
    for broken in tail.broken if at_nondurable is not AtNondurable.IGNORE else ():
        is_marked = bool(marks) or _is_marked(scan.record.voided, broken)
        verdict = max(verdict, ScanVerdict.BROKEN_AFTER_MARKED if is_marked else ScanVerdict.BROKEN_AFTER)
        what = "the tail is broken" + (", behind a mark" if is_marked else "")
        problems.append(Problem(what, *broken, is_tail=True))
    highest = max([scan.max_epoch, *(header.epoch for header in tail.whole)])
    return replace(scan, verdict=verdict, problems=tuple(problems), marks=marks, max_epoch=Epoch(highest))


def read_tail(scan: FileScan, start: int) -> FileTail:
    view, identity = scan.view, scan.record.identity
    whole: list[Header] = []
    broken: list[Range] = []
    written = len(view) if scan.record.is_recycled else extent(view, start)
    at = start
    while at < written:
        found = check_block(view, at, identity)
        header = found if isinstance(found, Header) else next_good(view, identity, at)
        if header is None or header.offset > at:
            broken += _written_in(view, at, header.offset if header else written, scan.record.is_recycled)
        if header is None:
            break
        whole.append(header)
        at = header.end
    return FileTail(tuple(whole), tuple(broken))


def _written_in(view: memoryview, start: int, end: int, is_recycled: bool) -> list[Range]:
    """The range as far as something was written in it. Bytes of an earlier incarnation do not count."""
    if is_recycled:
        return []
    end = extent(view[:end], start)
    return [(start, end)] if end > start else []


def _is_marked(voided: tuple[Voided, ...], bytes_: Range) -> bool:
    return any(mark.start <= bytes_[0] and bytes_[1] <= mark.end for mark in voided)


def _mark(nondurable: list[Header]) -> Voided:
    return Voided(nondurable[0].offset, nondurable[-1].end, f"not durable: epoch {nondurable[0].epoch}")


def _beyond(nondurable: list[Header], durable: Epoch) -> Problem:
    first, last = nondurable[0], nondurable[-1]
    what = f"{len(nondurable)} blocks of epochs {first.epoch} … {last.epoch} lie beyond the durable epoch {durable}"
    return Problem(what, first.offset, last.end, is_tail=True)


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
    return _judge(view, path, record, durable, witnessed, at_nondurable)


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
    return _judge(view, path, record, durable, witnessed, at_nondurable)


def scan_failed(record: FileRecord, path: str, error: WarrenError) -> FileScan:
    """The scan of a file that could not be read."""
    problem = Problem(error.bare if isinstance(error, Damage) else error.what, 0, 0)
    return FileScan(record, path, memoryview(b""), ScanVerdict.FAILED, problems=(problem,))


def _judge(
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
    """The end of a file in the epoch file. An end of another incarnation of the number does not apply."""
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
    """One log or compacted file as an input of a merge: its entries up to an epoch, readable repeatedly."""

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
        """Batches are views of the mapped file: keeping them costs no process memory."""
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


END_IS_BROKEN = "the end of non-detached file is broken"
OnBatch = Callable[[FileScan, EntryColumns], None]  # called from the workers: must be thread-safe


@dataclass(frozen=True, slots=True)
class ScanResult:
    verdict: ScanVerdict  # the worst of all files
    max_epoch: Epoch
    files: tuple[FileScan, ...]  # in the order of the targets

    @property
    def marked(self) -> tuple[FileRecord, ...]:
        """The new manifest records of the files that this scan marked."""
        return tuple(
            scan.record.changed(voided=(*scan.record.voided, *scan.marks)) for scan in self.files if scan.is_modified
        )


@dataclass(slots=True)
class LogScan:
    files: Files
    directory: str
    targets: Sequence[FileRecord]
    durable: Epoch
    threads: Threads
    thread_num: int = 1
    fail_fast: bool = False
    at_nondurable: AtNondurable = AtNondurable.REPORT
    witnessed: Sequence[FileEnd] = ()
    survives_purge: bool = False  # a file that was purged meanwhile gets the verdict FAILED; else `Gone` ends the scan
    report: Callable[[str], None] = field(default=lambda line: None)
    on_file: Callable[[FileScan], None] = field(default=lambda scan: None)  # progress, from the workers

    def run(self, on_batch: OnBatch | None = None) -> ScanResult:
        """Scan every target; hand the durable entries of each good one over, block by block."""
        return _Run(self, on_batch).result()

    def batches(self) -> Iterator[EntryColumns]:
        """Scan everything, then yield the durable entries, file by file."""
        for scan in self.run().files:
            yield from entries_of(scan, self.durable)


class _Run:
    """One run of a scan: the shared list and the results of the workers."""

    def __init__(self, job: LogScan, on_batch: OnBatch | None) -> None:
        self._job = job
        self._on_batch = on_batch
        self._lock = job.threads.condition()
        self._ahead = deque(enumerate(record for record in job.targets if is_wal(base_name(record.name))))
        self._done: dict[int, FileScan] = {}
        self._error: BaseException | None = None

    def result(self) -> ScanResult:
        workers = max(1, min(self._job.thread_num, len(self._ahead)))
        started = [self._job.threads.start(f"warren-scan-{number}", self._work) for number in range(1, workers)]
        self._work()  # the caller is a worker too
        for worker in started:
            worker.join()
        if self._error is not None:
            raise self._error
        scans = tuple(scan for _, scan in sorted(self._done.items()))
        verdict = max((scan.verdict for scan in scans), default=ScanVerdict.OK)
        highest = max([self._job.durable, *(scan.max_epoch for scan in scans)])
        return ScanResult(verdict, Epoch(highest), scans)

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            place, record = taken
            try:
                scan = self._scan(record)
            except BaseException as error:
                self._stop(error)
                return
            with self._lock:
                self._done[place] = scan

    def _next(self) -> tuple[int, FileRecord] | None:
        with self._lock:
            return self._ahead.popleft() if self._ahead else None

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._ahead.clear()

    def _scan(self, record: FileRecord) -> FileScan:
        job = self._job
        witnessed = witnessed_end(job.witnessed, record)
        try:
            scan = scan_record(job.files, job.directory, record, job.durable, witnessed, job.at_nondurable)
        except Gone as error:
            if not job.survives_purge:
                raise
            scan = scan_failed(record, join(job.directory, record.name), error)
        scan = settle(scan, job.fail_fast, job.report)
        if self._on_batch is not None and scan.verdict < ScanVerdict.UNEXPECTED:
            for columns in entries_of(scan, job.durable):
                self._on_batch(scan, columns)
        job.on_file(scan)
        return scan


def settle(scan: FileScan, fail_fast: bool, report: Callable[[str], None]) -> FileScan:
    """What a file's verdict means for the whole scan: see the table above."""
    verdict = scan.verdict
    assert verdict is not ScanVerdict.BROKEN_AFTER_TOBE_CUT, "a pending cut is never reported"
    if verdict is not ScanVerdict.OK:
        report(f"{scan.path}: {verdict.word}" + "".join(f"; {problem}" for problem in scan.problems))
    if verdict is ScanVerdict.BROKEN_AFTER_MARKED and scan.is_detached:
        return replace(scan, verdict=ScanVerdict.REPAIRED if scan.is_modified else ScanVerdict.OK)
    if not fail_fast:
        return scan
    if verdict in (ScanVerdict.BROKEN_AFTER_MARKED, ScanVerdict.BROKEN_AFTER) and not scan.is_detached:
        raise Damage(END_IS_BROKEN, scan.path, scan.problems[-1].offset)
    if verdict >= ScanVerdict.UNEXPECTED:
        raise Damage(str(scan.problems[0]), scan.path, scan.problems[0].offset)
    return scan
