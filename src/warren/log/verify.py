"""Is everything there, is every bit of it what was written, and can that be proved?

    manifest ─▶ epoch files ─▶ every file: header, each block's checksum, running checksum, entries counted and decoded
             ─▶ the chain of epochs, from the horizon's anchor to the witness ─▶ what else lies about

Takes no lock and changes nothing; beside a running store it checks what is durable. `is_good` means: no damage. Each
file gets the verdict that the seed has for it (log/scan_verdict), each damage its file, its first bad byte and what it
hits.

Files are checked one by one (log/verify_file), in threads here or wherever `verify_with` is told to; what was found is
judged together, always here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from warren.base.errors import Damage, Gone, Refused
from warren.base.threads import Threads
from warren.files.protocol import Files, join
from warren.log.file_header import FileKind
from warren.log.file_lookup import locate, open_by_name
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import MANIFEST
from warren.log.manifest import read_manifest
from warren.log.opening import judge_directory
from warren.log.reading import ReadOnlyLog
from warren.log.scan_verdict import FileScan, ScanVerdict
from warren.log.verify_chain import Link, prove_chain
from warren.log.verify_directory import check_directory, check_surroundings
from warren.log.verify_file import CheckedFile, FileChecks, check_files
from warren.log.verify_report import VerifyReport
from warren.records.walk import walk

Check = Callable[[FileChecks], list[CheckedFile]]


def verify(
    files: Files,
    directory: str,
    threads: Threads,
    thread_num: int = 2,
    on_file: Callable[[FileScan], None] = lambda scan: None,
) -> VerifyReport:
    """Check a log directory, from the manifest to the last bit."""
    return verify_with(files, directory, lambda checks: check_files(files, checks, threads, thread_num, on_file))


def verify_with(files: Files, directory: str, check: Check) -> VerifyReport:
    """The same, the files checked by `check`, which answers for all of them, logs first."""
    if not files.exists(join(directory, MANIFEST)):
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    report = VerifyReport(directory)
    log = check_directory(files, directory, report)
    if log is None:
        return report
    report.durable = log.durable
    checked = check(_checks(log, report))
    report.files = [file.scan for file in checked]
    for file in checked:
        _judge_file(file, log, report)
    _judge_active(log, report)
    end = _end(log)
    report.chain = prove_chain([file.chain for file in checked], _anchor(log, end), end)
    for problem in report.chain.problems:
        report.damage(problem.path, problem.offset, problem.what)
    check_surroundings(files, log, report)
    return report


def _checks(log: ReadOnlyLog, report: VerifyReport) -> FileChecks:
    """Every file of the store that is there, logs first; one that is missing becomes a finding."""
    there: list[FileRecord] = []
    for record in log.records():
        try:
            found = locate(log.files, log.directory, record)
        except Gone:
            continue
        if found is not None:
            found.file.close()
            there.append(record)
        else:
            path = join(log.directory, record.name)
            report.damage(path, 0, f"log file {record.number} is missing; {_lost_with(record)}")
    there.sort(key=lambda record: record.purpose is FileKind.SNAPSHOT)
    return FileChecks(log.directory, log.durable, tuple(there), tuple(log.witness.ends) if log.witness else ())


def _lost_with(record: FileRecord) -> str:
    if record.state is FileState.ACTIVE:
        return "it was being written"
    return f"it held {record.entries} entries of epochs {record.first_epoch} … {record.last_epoch}"


def _judge_file(file: CheckedFile, log: ReadOnlyLog, report: VerifyReport) -> None:
    scan = file.scan
    if scan.verdict >= ScanVerdict.UNEXPECTED and log.is_gone(scan.record):
        return  # its name may be another's by now, and its bytes too
    is_derived = scan.record.purpose is FileKind.SNAPSHOT
    for problem in scan.problems:
        if problem.is_tail:
            say = report.warn if scan.verdict is ScanVerdict.BROKEN_AFTER and scan.is_detached else report.note
        else:
            say = report.warn if is_derived else report.damage
        say(scan.path, problem.offset, str(problem))
    say = report.warn if is_derived else report.damage
    for offset, what in file.oddities:
        say(scan.path, offset, what)


def _judge_active(log: ReadOnlyLog, report: VerifyReport) -> None:
    """What opening would say: epochs beyond the witness whose being there proves that earlier ones were durable. A
    running store writes and tidies on while we look from file to file, and then nothing is proved."""
    if not report.is_good:
        return
    with suppress(Gone):
        before = _reach(log)
        try:
            judge_directory(log.files, log.directory, log.state, log.witness)
        except Damage as error:
            is_still = read_manifest(log.files, log.directory).edits == log.state.edits
            if is_still and _reach(log) == before:
                report.damage(error.path, error.offset, error.what)


def _reach(log: ReadOnlyLog) -> list[tuple[str, int]]:
    """How far the good blocks of each active file reach at this moment."""
    found = []
    for record in log.state.of_state(FileState.ACTIVE):
        view, path = open_by_name(log.files, log.directory, record).map()
        found.append((path, walk(view, record.identity).end))
    return found


def _anchor(log: ReadOnlyLog, end: Link) -> Link:
    """Where history begins by now: a running store may have let some of it go while its files were checked."""
    now = read_manifest(log.files, log.directory)
    return (now.horizon, bytes.fromhex(now.horizon_digest)) if now.horizon < end[0] else end


def _end(log: ReadOnlyLog) -> Link:
    if log.witness is not None and log.witness.durable >= log.state.durable:
        return log.witness.durable, log.witness.digest
    return log.state.durable, bytes.fromhex(log.state.digest)
