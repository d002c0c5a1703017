"""Scanning many files at once.

    targets   [a] [b] [c] [d] …          an explicit list: nobody looks into the directory for it
    workers    ^1  ^2                    each takes one file at a time, and ends when none is left

What a verdict means for the whole scan is one table, the seed's:

    OK, REPAIRED            go on
    BROKEN_AFTER_MARKED     detached: REPAIRED if this scan made the mark, else OK; not detached and fail-fast: stop
    BROKEN_AFTER            not detached and fail-fast: stop
    NONDURABLE_ENTRIES      told, no reason to stop
    UNEXPECTED, FAILED      fail-fast: stop, with the message

To stop means: the first error is kept, files that nobody has begun are left alone, and when the last worker has ended
the error reaches the caller. A broken tail above the witness never gets here: opening has sealed the file and marked it
(docs/checklist.md C-41).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from warren.base.errors import Damage, Gone
from warren.base.ids import Epoch
from warren.base.threads import Threads
from warren.durability.participant import FileEnd
from warren.files.protocol import Files, base_name, join
from warren.log.file_record import FileRecord
from warren.log.layout import is_wal
from warren.log.scan import entries_of, scan_failed, scan_record, witnessed_end
from warren.log.scan_verdict import AtNondurable, FileScan, ScanVerdict
from warren.records.columns import EntryColumns

END_IS_BROKEN = "the end of non-detached file is broken"
OnBatch = Callable[[FileScan, EntryColumns], None]  # called from the workers: must bear it


@dataclass(frozen=True, slots=True)
class ScanResult:
    verdict: ScanVerdict  # the worst of all files
    max_epoch: Epoch
    files: tuple[FileScan, ...]  # in the order of the targets

    @property
    def marked(self) -> tuple[FileRecord, ...]:
        """What the manifest shall say of the files that this scan marked."""
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
    """One run of a scan: the shared list and what the workers found."""

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
        while (taken := self._take()) is not None:
            place, record = taken
            try:
                scan = self._scan(record)
            except BaseException as error:
                self._stop(error)
                return
            with self._lock:
                self._done[place] = scan

    def _take(self) -> tuple[int, FileRecord] | None:
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
    assert verdict is not ScanVerdict.BROKEN_AFTER_TOBE_CUT, "a pending cut never leaves the one who cuts"
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
