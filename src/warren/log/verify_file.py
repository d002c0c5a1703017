"""The half of `verify` that looks into files: each is checked by itself, by whoever has it at hand.

    FileChecks    which files, up to which epoch, how far they were witnessed      plain data: it may travel
    check_files   scan, header, counts, every block decoded                        in threads here, in tasks elsewhere
    CheckedFile   what was found, and what the chain needs of this file            judged together by log/verify

What the header and the counts say is compared with the manifest's record, and blocks whose checksum holds are decoded:
that is asked only of a file whose blocks are good. Beside a running store a file is looked for again when it was
renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warren.base.errors import Damage, Gone
from warren.base.ids import Epoch
from warren.base.threads import Threads
from warren.durability.participant import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_header import FileKind, read_file_header
from warren.log.file_record import FileRecord
from warren.log.scan import WITH_ENTRIES, scan_failed, scan_record, trusted
from warren.log.scan_verdict import FileScan, ScanVerdict
from warren.log.scan_workers import LogScan
from warren.log.verify_chain import ChainFile
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

    def look_closer(scan: FileScan) -> None:
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
        survives_purge=True,  # log/verify compares with the manifest as it is by then
        on_file=look_closer,
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
