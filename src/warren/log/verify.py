"""Is everything there, is every bit of it what was written, and can that be proved?

    manifest ─▶ epoch files ─▶ every file: header, each block's checksum, running checksum, entries counted and decoded
             ─▶ the chain of epochs, from the horizon's anchor to the witness ─▶ what else lies about

Takes no lock and changes nothing; beside a running store it checks what is durable. `is_good` means: no damage. Each
file gets the verdict that the seed has for it (log/scan_verdict), each damage its file, its first bad byte and what it
hits.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.base.errors import Damage, Refused
from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.file_header import Purpose, read_file_header
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import MANIFEST, active_name, rotated_name
from warren.log.opening import judge_directory, number_of
from warren.log.reading import ReadOnlyLog
from warren.log.scan import WITH_ENTRIES, map_file, scan_one, trusted
from warren.log.scan_verdict import FileScan, ScanVerdict
from warren.log.scan_workers import LogScan
from warren.log.verify_chain import Link, prove_chain
from warren.log.verify_directory import check_directory, check_surroundings
from warren.log.verify_report import VerifyReport
from warren.records.entries import read_entries
from warren.records.walk import walk


def verify(
    files: Files,
    directory: str,
    threads: Threads,
    thread_num: int = 2,
    on_file: Callable[[FileScan], None] = lambda scan: None,
) -> VerifyReport:
    """Check a log directory, from the manifest to the last bit."""
    if not files.exists(join(directory, MANIFEST)):
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    report = VerifyReport(directory)
    log = check_directory(files, directory, report)
    if log is None:
        return report
    report.durable = log.durable
    report.files = scan_all(log, threads, thread_num, report, on_file)
    for scan in report.files:
        _judge_file(scan, log, report)
    _judge_active(log, report)
    report.chain = prove_chain(report.files, _anchor(log), _end(log))
    for problem in report.chain.problems:
        report.damage(problem.path, problem.offset, problem.what)
    check_surroundings(files, log, report)
    return report


def scan_all(
    log: ReadOnlyLog,
    threads: Threads,
    thread_num: int,
    report: VerifyReport,
    on_file: Callable[[FileScan], None] = lambda scan: None,
) -> list[FileScan]:
    """Every file of the store; one that is missing becomes a finding."""
    paths = {record.number: place_of(log, record) for record in log.records()}
    for record in log.records():
        if paths[record.number] is None and log.horizon_if_gone(record) is None:
            report.damage(
                join(log.directory, record.name), 0, f"log file {record.number} is missing; {_lost_with(record)}"
            )
    there = [record for record in log.records() if paths[record.number] is not None]
    witnessed = log.witness.ends if log.witness else ()
    logs = [record for record in there if record.purpose is not Purpose.SNAPSHOT]
    scan = LogScan(
        log.files,
        log.directory,
        logs,
        log.durable,
        threads,
        thread_num,
        witnessed=witnessed,
        path_of=lambda record: place_of(log, record) or join(log.directory, record.name),
        on_file=on_file,
    )
    found = list(scan.run().files)
    snapshots = [record for record in there if record.purpose is Purpose.SNAPSHOT]
    return found + [scan_one(log.files, join(log.directory, record.name), record, log.durable) for record in snapshots]


def place_of(log: ReadOnlyLog, record: FileRecord) -> str | None:
    """Where a file is, under whichever name a power cut left it; by its name alone if its header is unreadable."""
    names = [record.name]
    if record.purpose is Purpose.LOG:
        names += [rotated_name(record.channel, record.number), active_name(record.channel)]
    there = [path for name in names if log.files.exists(path := join(log.directory, name))]
    numbers = {path: number_of(log.files, path) for path in there}
    sure = [path for path in there if numbers[path] == record.number]
    nameless = [path for path in there if numbers[path] is None]
    return next(iter(sure + nameless), None)


def _lost_with(record: FileRecord) -> str:
    if record.state is FileState.ACTIVE:
        return "it was being written"
    return f"it held {record.entries} entries of epochs {record.first_epoch} … {record.last_epoch}"


def _judge_file(scan: FileScan, log: ReadOnlyLog, report: VerifyReport) -> None:
    if scan.verdict is ScanVerdict.FAILED and log.horizon_if_gone(scan.record) is not None:
        return
    is_derived = scan.record.purpose is Purpose.SNAPSHOT
    for problem in scan.problems:
        if problem.is_tail:
            say = report.warn if scan.verdict is ScanVerdict.BROKEN_AFTER and scan.is_detached else report.note
        else:
            say = report.warn if is_derived else report.damage
        say(scan.path, problem.offset, str(problem))
    if scan.verdict >= ScanVerdict.UNEXPECTED:
        return
    say = report.warn if is_derived else report.damage
    for offset, what in (*_header_differs(scan, log), *_counts_differ(scan), *_undecodable(scan)):
        say(scan.path, offset, what)


def _header_differs(scan: FileScan, log: ReadOnlyLog) -> list[tuple[int, str]]:
    record = scan.record
    header, identity = read_file_header(scan.view, scan.path)
    wanted = (record.number, record.channel, record.purpose, record.identity)
    found = (header.number, header.channel, header.purpose, identity)
    return [(0, f"the file's header says {found}, the manifest {wanted}")] if found != wanted else []


def _counts_differ(scan: FileScan) -> list[tuple[int, str]]:
    if scan.is_detached and scan.entries != scan.record.entries:
        return [(0, f"the file holds {scan.entries} entries, the manifest counts {scan.record.entries}")]
    return []


def _undecodable(scan: FileScan) -> list[tuple[int, str]]:
    """Blocks whose checksum holds and whose columns make no sense."""
    found: list[tuple[int, str]] = []
    for header in trusted(scan.view, scan.good):
        if header.kind in WITH_ENTRIES:
            try:
                read_entries(scan.view, header)
            except Damage as error:
                found.append((header.offset, error.what))
    return found


def _judge_active(log: ReadOnlyLog, report: VerifyReport) -> None:
    """What opening would say: epochs beyond the witness whose being there proves that earlier ones were durable. A
    running store writes on while we look from file to file, and then nothing is proved."""
    if not report.is_good:
        return
    try:
        before = _reach(log)
        judge_directory(log.files, log.directory, log.state, log.witness)
    except Damage as error:
        if _reach(log) == before:
            report.damage(error.path, error.offset, error.what)


def _reach(log: ReadOnlyLog) -> list[tuple[str, int]]:
    """How far the good blocks of each active file reach at this moment."""
    places = [(record, place_of(log, record)) for record in log.state.of_state(FileState.ACTIVE)]
    return [(path, walk(map_file(log.files, path), record.identity).end) for record, path in places if path]


def _anchor(log: ReadOnlyLog) -> Link:
    return log.state.horizon, bytes.fromhex(log.state.horizon_digest)


def _end(log: ReadOnlyLog) -> Link:
    if log.witness is not None and log.witness.durable >= log.state.durable:
        return log.witness.durable, log.witness.digest
    return log.state.durable, bytes.fromhex(log.state.digest)
