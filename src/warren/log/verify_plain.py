"""Checks and what they found as plain data, so that files can be checked by other processes, on other machines.

    FileChecks   {directory, durable, records, witnessed}
    CheckedFile  {scan: verdict, counts, good ranges, problems; oddities; closings; holes}

The file's bytes stay where they are: a scan that travelled has an empty view. Of the blocks only the closings travel,
since the chain is proved from those of all files together: a line of text each, packed, about forty bytes an epoch.

Always true: what was packed and unpacked is judged exactly as what was not.
"""

from __future__ import annotations

import gzip
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

from warren.base.ids import Epoch
from warren.durability.closing import read_closing
from warren.durability.participant import FileEnd
from warren.log.file_record import FileRecord, Voided
from warren.log.scan_verdict import FileScan, Hit, Problem, ScanVerdict
from warren.log.verify_chain import ChainFile, ClosingCopy
from warren.log.verify_file import CheckedFile, FileChecks
from warren.records.block import FileIdentity

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
    """The closings of a file as they came, unpacked one after another each time they are asked for."""

    scan: FileScan
    packed: bytes

    def __iter__(self) -> Iterator[ClosingCopy]:
        for line in gzip.GzipFile(fileobj=BytesIO(self.packed)):
            epoch, offset, running, body = line.split()
            closing = read_closing(Epoch(int(epoch)), memoryview(bytes.fromhex(body.decode())))
            yield ClosingCopy(self.scan, int(offset), None if int(running) < 0 else int(running), closing)
