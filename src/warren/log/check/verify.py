"""Verify: is every file there, is every bit what was written, and can that be proved?

    manifest ─▶ epoch files ─▶ every file: header, each block's checksum, running checksum, entries counted and decoded
             ─▶ the chain of epochs, from the horizon's anchor to the witness ─▶ unknown files

Takes no lock and changes nothing; beside a running store it checks what is durable. `is_good` means: no damage. Each
file gets limestone's verdict (log/read/blocks), each damage its file, its first bad byte and what it hits.

Files are checked one by one, in threads here or wherever `verify_with` runs them; the results are judged together,
always here:

    FileChecks    {directory, durable, records, witnessed}                    plain data for other processes
    check_files   scan, header, counts, every block decoded                   in threads here, in tasks elsewhere
    CheckedFile   {scan: verdict, counts, good ranges, problems; oddities; closings; holes}

Header and counts are compared with the manifest's record, and blocks with a good checksum are decoded, only in a file
whose blocks are good. Beside a running store a file is located again when it was renamed. The file's bytes are not
transferred: a scan from another process has an empty view. Of the blocks only the closings are transferred, since the
chain is proved from those of all files together: a line of text each, packed, about forty bytes an epoch.

Invariant: what was packed and unpacked is judged exactly as what was not.
"""

from __future__ import annotations

import gzip
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from io import BytesIO
from typing import Any

from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import Epoch
from warren.base.threads import Threads
from warren.durability.closing_block import read_closing
from warren.durability.epoch_file import SLOT_BYTES, decode_slot
from warren.durability.log_file import FileEnd
from warren.files.atomic import SUFFIX
from warren.files.protocol import Files, base_name, join
from warren.log.check.verify_chain import Chain, ChainFile, ClosingCopy, Link, prove_chain
from warren.log.file_record import (
    EPOCH,
    MANIFEST,
    PINS,
    QUARANTINE,
    RECYCLE,
    STAGING,
    FileKind,
    FileRecord,
    FileState,
    Voided,
    epoch_of_name,
    is_wal,
    read_file_header,
)
from warren.log.log_files import locate, open_by_name, read_epoch_files
from warren.log.manifest import ManifestState, read_manifest
from warren.log.read.blocks import WITH_ENTRIES, FileScan, Hit, Problem, ScanVerdict, extent, next_good, trusted, walk
from warren.log.read.read_only import ReadOnlyLog
from warren.log.read.scan import LogScan, scan_failed, scan_record
from warren.log.recovery import judge_directory, newest_witness, quarantine_bytes
from warren.log.retention import PIN_SUFFIX
from warren.records.block import FileIdentity, Header, check_block
from warren.records.entries import read_entries

Oddity = tuple[int, str]  # at this byte, what


@dataclass(frozen=True, slots=True)
class FileChecks:
    """Files of a log directory to be checked."""

    directory: str
    durable: Epoch
    records: tuple[FileRecord, ...]
    witnessed: tuple[FileEnd, ...] = ()

    def each(self) -> Iterator[FileChecks]:
        """The same, file by file."""
        for record in self.records:
            ends = tuple(end for end in self.witnessed if end.number == record.number)
            yield FileChecks(self.directory, self.durable, (record,), ends)


@dataclass(frozen=True, slots=True)
class CheckedFile:
    chain: ChainFile
    oddities: tuple[Oddity, ...] = ()  # what is wrong although every checksum holds

    @property
    def scan(self) -> FileScan:
        return self.chain.scan


def check_files(
    files: Files,
    checks: FileChecks,
    threads: Threads,
    thread_num: int = 1,
    on_file: Callable[[FileScan], None] = lambda scan: None,
) -> list[CheckedFile]:
    """Check them all: first the logs and what they were compacted to, then snapshots."""
    oddities: dict[int, tuple[Oddity, ...]] = {}

    def inspect_block(scan: FileScan) -> None:
        oddities[scan.record.number] = tuple(_oddities(scan))
        on_file(scan)

    logs = [record for record in checks.records if record.purpose is not FileKind.SNAPSHOT]
    found = LogScan(
        files,
        checks.directory,
        logs,
        checks.durable,
        threads,
        thread_num,
        witnessed=checks.witnessed,
        survives_purge=True,  # log/check/verify compares with the manifest as it is by then
        on_file=inspect_block,
    ).run()
    checked = [CheckedFile(ChainFile.of(scan), oddities[scan.record.number]) for scan in found.files]
    snapshots = [record for record in checks.records if record.purpose is FileKind.SNAPSHOT]
    for record in snapshots:
        scan = _scan_snapshot(files, checks, record)
        checked.append(CheckedFile(ChainFile.of(scan), tuple(_oddities(scan))))
    return checked


def _scan_snapshot(files: Files, checks: FileChecks, record: FileRecord) -> FileScan:
    try:
        return scan_record(files, checks.directory, record, checks.durable)
    except Gone as error:
        return scan_failed(record, join(checks.directory, record.name), error)


def _oddities(scan: FileScan) -> Iterator[Oddity]:
    if scan.verdict < ScanVerdict.UNEXPECTED:
        yield from _header_differs(scan)
        yield from _counts_differ(scan)
        yield from _undecodable(scan)


def _header_differs(scan: FileScan) -> Iterator[Oddity]:
    record = scan.record
    try:
        header, identity = read_file_header(scan.view, scan.path)
    except Damage as error:  # nothing durable stands in it, and it cannot be opened
        yield 0, error.bare
        return
    wanted = (record.number, record.channel, record.purpose, record.identity)
    found = (header.number, header.channel, header.purpose, identity)
    if found != wanted:
        yield 0, f"the file's header says {found}, the manifest {wanted}"


def _counts_differ(scan: FileScan) -> Iterator[Oddity]:
    if scan.is_detached and scan.entries != scan.record.entries:
        yield 0, f"the file holds {scan.entries} entries, the manifest counts {scan.record.entries}"


def _undecodable(scan: FileScan) -> Iterator[Oddity]:
    """Blocks whose checksum holds and whose columns make no sense."""
    for header in trusted(scan.view, scan.good):
        if header.kind in WITH_ENTRIES:
            try:
                read_entries(scan.view, header)
            except Damage as error:
                yield header.offset, error.what


Plain = dict[str, Any]
PACKED_LEVEL = 1  # quick: half of a closing is a digest, which no effort makes smaller


def checks_to_plain(checks: FileChecks) -> Plain:
    return {
        "directory": checks.directory,
        "durable": checks.durable,
        "records": [record.to_json() for record in checks.records],
        "witnessed": [[end.number, *end.identity, end.end, end.running] for end in checks.witnessed],
    }


def checks_of_plain(plain: Plain) -> FileChecks:
    return FileChecks(
        plain["directory"],
        Epoch(plain["durable"]),
        tuple(map(FileRecord.from_json, plain["records"])),
        tuple(
            FileEnd(number, FileIdentity(timeline, incarnation), end, running)
            for number, timeline, incarnation, end, running in plain["witnessed"]
        ),
    )


def checked_to_plain(checked: CheckedFile) -> Plain:
    return {
        "scan": _scan_to_plain(checked.scan),
        "oddities": checked.oddities,
        "closings": _packed(checked.chain.closings),
        "holes": checked.chain.holes,
    }


def checked_of_plain(plain: Plain) -> CheckedFile:
    scan = _scan_of_plain(plain["scan"])
    holes = [(Epoch(before), Epoch(behind)) for before, behind in plain["holes"]]
    chain = ChainFile(scan, _Unpacking(scan, b64decode(plain["closings"])), holes)
    return CheckedFile(chain, tuple((offset, what) for offset, what in plain["oddities"]))


def _scan_to_plain(scan: FileScan) -> Plain:
    return {
        "record": scan.record.to_json(),
        "path": scan.path,
        "verdict": scan.verdict,
        "good": scan.good,
        "blocks": scan.blocks,
        "entries": scan.entries,
        "max_epoch": scan.max_epoch,
        "running": scan.running,
        "problems": [asdict(problem) for problem in scan.problems],
        "marks": [asdict(mark) for mark in scan.marks],
    }


def _scan_of_plain(plain: Plain) -> FileScan:
    return FileScan(
        FileRecord.from_json(plain["record"]),
        plain["path"],
        memoryview(b""),
        ScanVerdict(plain["verdict"]),
        tuple((start, stop) for start, stop in plain["good"]),
        plain["blocks"],
        plain["entries"],
        Epoch(plain["max_epoch"]),
        plain["running"],
        tuple(map(_problem, plain["problems"])),
        tuple(Voided(**mark) for mark in plain["marks"]),
    )


def _problem(plain: Plain) -> Problem:
    hit = plain["hit"] and Hit(**{**plain["hit"], "storages": tuple(plain["hit"]["storages"])})
    return Problem(**{**plain, "hit": hit})


def _packed(closings: Iterable[ClosingCopy]) -> str:
    raw = BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=PACKED_LEVEL, mtime=0) as lines:
        for copy in closings:
            running = -1 if copy.running is None else copy.running
            line = f"{copy.closing.epoch} {copy.offset} {running} {copy.closing.body().hex()}\n"
            lines.write(line.encode())
    return b64encode(raw.getvalue()).decode()


@dataclass(frozen=True, slots=True)
class _Unpacking:
    """The closings of a file as they came, unpacked one after another on each iteration."""

    scan: FileScan
    packed: bytes

    def __iter__(self) -> Iterator[ClosingCopy]:
        for line in gzip.GzipFile(fileobj=BytesIO(self.packed)):
            epoch, offset, running, body = line.split()
            closing = read_closing(Epoch(int(epoch)), memoryview(bytes.fromhex(body.decode())))
            yield ClosingCopy(self.scan, int(offset), None if int(running) < 0 else int(running), closing)


class Severity(IntEnum):
    NOTE = 0  # what a power cut or a running writer leaves, and what repairs have voided
    WARNING = 1  # wrong, but nothing is lost
    DAMAGE = 2  # something durable is not what was written

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    path: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.severity.word}: {self.path} at byte {self.offset}: {self.what}"


@dataclass(slots=True)
class VerifyReport:
    directory: str
    durable: Epoch = Epoch(0)
    files: list[FileScan] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    chain: Chain | None = None  # None: it never came to that

    @property
    def is_good(self) -> bool:
        return self.first_damage is None

    @property
    def first_damage(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.severity is Severity.DAMAGE), None)

    def note(self, path: str, offset: int, what: str) -> None:
        self.findings.append(Finding(Severity.NOTE, path, offset, what))

    def warn(self, path: str, offset: int, what: str) -> None:
        self.findings.append(Finding(Severity.WARNING, path, offset, what))

    def damage(self, path: str, offset: int, what: str) -> None:
        self.findings.append(Finding(Severity.DAMAGE, path, offset, what))


def check_directory(files: Files, directory: str, report: VerifyReport) -> ReadOnlyLog | None:
    """Manifest and epoch files; None if they do not say enough to go on."""
    path = join(directory, MANIFEST)
    try:
        before = read_manifest(files, directory)
    except Damage as error:
        report.damage(error.path or path, error.offset, error.what)
        return None
    torn_at = _check_edits(files, path, report)
    _check_epoch_files(files, directory, report)
    witness, _ = newest_witness(files, directory, before)
    state = read_manifest(files, directory)
    if witness is not None and state.edits < witness.manifest_edits:
        what = f"the manifest ends with edit {state.edits}, {witness.manifest_edits} were synced"
        report.damage(path, torn_at, what)
        return None
    if witness is None and state.durable > 0 and not state.is_cut:
        report.warn(
            join(directory, EPOCH), 0, "there is no whole witness: the manifest and the log speak for themselves"
        )
    return ReadOnlyLog(files, directory, state, witness)


def check_context(files: Files, log: ReadOnlyLog, report: VerifyReport) -> None:
    """Unknown files, leftovers, pins."""
    directory, names = log.directory, files.list(log.directory)
    known = {record.name for state in (log.state, read_manifest(files, directory)) for record in state.files.values()}
    for name in names:
        if is_wal(name) and name not in known:
            report.warn(join(directory, name), 0, "a log file that the manifest does not know; opening sets it aside")
        elif name.endswith(SUFFIX):
            report.note(join(directory, name), 0, "left over from a replacement that did not come to its end")
    for home in (STAGING, RECYCLE):
        for name in files.list(join(directory, home)) if files.exists(join(directory, home)) else ():
            report.note(join(directory, home, name), 0, f"in {home}")
    for name in files.list(join(directory, PINS)) if files.exists(join(directory, PINS)) else ():
        if name.endswith(PIN_SUFFIX):
            report.note(join(directory, PINS, name), 0, "a pin holds files")
    if size := quarantine_bytes(files, directory):
        report.note(join(directory, QUARANTINE), 0, f"{size} bytes are kept in quarantine")
    _note_voided(log.state, directory, report)


def _check_edits(files: Files, path: str, report: VerifyReport) -> int:
    """Is there anything behind the last whole edit? Where it begins."""
    file = files.open(path)
    try:
        view = memoryview(file.read_at(0, file.size()))
    finally:
        file.close()
    first = check_block(view, 0, None)
    if not isinstance(first, Header):
        return 0
    identity = FileIdentity(first.timeline, first.incarnation)
    end = walk(view, identity).end
    if extent(view, end) > end:
        behind = next_good(view, identity, end)
        if behind is not None:
            report.damage(path, end, f"a manifest edit is damaged; edit {behind.first} stands whole behind it")
        else:
            report.warn(path, end, "the last manifest edit is torn: it was never answered, or it is damaged")
    return end


def _check_epoch_files(files: Files, directory: str, report: VerifyReport) -> None:
    for path, raw in read_epoch_files(files, directory):
        named = epoch_of_name(base_name(path))
        slots = [raw[:SLOT_BYTES], raw[SLOT_BYTES:]]
        found = [decode_slot(slot) for slot in slots]
        for index, slot in enumerate(slots):
            if found[index] is None and any(slot):
                report.warn(path, index * SLOT_BYTES, f"slot {index} of the epoch file is damaged")
        newest = max((witness.durable for witness in found if witness is not None), default=None)
        if named is not None and newest is not None and newest > named:
            report.damage(path, 0, f"the epoch file was rotated at epoch {named} and says {newest}")


def _note_voided(state: ManifestState, directory: str, report: VerifyReport) -> None:
    for record in state.files.values():
        for voided in record.voided:
            what = f"voided up to byte {voided.end}: {voided.reason}"
            report.note(join(directory, record.name), voided.start, what)


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
    check_context(files, log, report)
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
