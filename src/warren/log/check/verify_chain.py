"""Proving that no epoch is missing: the chain of closing blocks, from the anchor to the witness.

    anchor (horizon)  ──▶ closing 8 ──▶ closing 9 ──▶ closing 12 ──▶ … ──▶ witness
                          |file 3, file 4|             (numbers may jump where the store was opened anew)

For every epoch behind the horizon each participant that its closing block names must be there with a copy of the same
closing block, at the named end and behind blocks whose running checksum is the named one; and each closing must hold
the digest of the one before it. So an epoch, a file or a block cannot be taken out unseen.

Where a repair has voided bytes, what stood there cannot be proved any more: it is counted as lost, and the running
checksum restarts with the next closing block of that file. Memory: one closing per file, whatever the log's
length, unless the closings were gathered elsewhere (log/check/verify).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge as in_order
from itertools import groupby

from warren.base.ids import UINT64_MAX, Epoch, FileNumber
from warren.durability.closing_block import Closing, ClosingPart, read_closing
from warren.durability.log_file import run_on
from warren.log.file_record import FileKind
from warren.log.read.blocks import FileScan, trusted
from warren.records.format import BlockKind

DAMAGED = "damaged"  # how the reason of a range begins that was durable and had to be voided (log/check/repair)
PROBLEMS_MAX = 20
Hole = tuple[Epoch, Epoch]  # the epochs of the good blocks before and behind it
Link = tuple[Epoch, bytes]  # an epoch and the chain's digest at it


@dataclass(frozen=True, slots=True)
class ClosingCopy:
    """A closing block as it stands in one file."""

    scan: FileScan
    offset: int
    running: int | None  # of the blocks before it; None behind a gap
    closing: Closing


@dataclass(frozen=True, slots=True)
class ChainFile:
    """The part of the chain in one file. Its closings can be read repeatedly."""

    scan: FileScan
    closings: Iterable[ClosingCopy]
    holes: Sequence[Hole] = ()

    @classmethod
    def of(cls, scan: FileScan) -> ChainFile:
        if scan.record.purpose is not FileKind.LOG:
            return cls(scan, ())
        return cls(scan, _Closings(scan), holes_in(scan))


@dataclass(frozen=True, slots=True)
class _Closings:
    """The closings of a mapped file, read one after another and not stored."""

    scan: FileScan

    def __iter__(self) -> Iterator[ClosingCopy]:
        return closings_in(self.scan)


@dataclass(frozen=True, slots=True)
class ChainProblem:
    epoch: Epoch
    path: str
    offset: int
    what: str


@dataclass(slots=True)
class Chain:
    """What was proved."""

    anchor: Epoch
    last: Epoch
    linked: int = 0  # epochs that are whole and hold the digest of the one before
    lost: list[Epoch] = field(default_factory=list)  # closings that a repair voided
    problems: list[ChainProblem] = field(default_factory=list)
    problems_more: int = 0

    @property
    def is_complete(self) -> bool:
        return not self.problems

    def blame(self, epoch: Epoch, path: str, offset: int, what: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(ChainProblem(epoch, path, offset, what))
        else:
            self.problems_more += 1


def prove_chain(files: Sequence[ChainFile], anchor: Link, end: Link) -> Chain:
    """Walk from the anchor to `end`, the durable epoch and its digest."""
    chain = Chain(anchor[0], anchor[0])
    logs = {file.scan.record.number: file.scan for file in files if file.scan.record.purpose is FileKind.LOG}
    holes = [hole for file in files for hole in file.holes]
    epoch, digest = anchor
    last_path, last_offset = "", 0
    for number, copies in _epochs(files, anchor[0], end[0]):
        _check_parts(chain, copies, logs)
        closing = copies[0].closing
        _check_link(chain, copies[0], (epoch, digest), holes)
        epoch, digest = number, closing.digest(copies[0].scan.record.timeline)
        last_path, last_offset = copies[0].scan.path, copies[0].offset
        chain.linked += 1
    chain.last = epoch
    if epoch != end[0]:
        if _lies_in(holes, end[0]):
            chain.lost.append(end[0])
        else:
            chain.blame(end[0], last_path, last_offset, f"the log ends with epoch {epoch}, {end[0]} was durable")
    elif digest != end[1]:
        chain.blame(epoch, last_path, last_offset, f"epoch {epoch} is not the one that was witnessed: digests differ")
    return chain


def closings_in(scan: FileScan) -> Iterator[ClosingCopy]:
    """The closing blocks of one file, in order."""
    running: int | None = 0
    at = 0
    for header in trusted(scan.view, scan.good):
        if header.offset != at:
            running = None
        at = header.end
        if header.kind == BlockKind.CLOSING:
            closing = read_closing(header.epoch, scan.view[header.body_at : header.end])
            yield ClosingCopy(scan, header.offset, running, closing)
            own = part_of(closing, scan.record.number)
            if running is None and own is not None and own.end == header.offset:
                running = own.running
        if running is not None:
            running = run_on(running, header.checksum)


def part_of(closing: Closing, number: FileNumber) -> ClosingPart | None:
    return next((part for part in closing.parts if part.file == number), None)


def _epochs(files: Iterable[ChainFile], behind: Epoch, last: Epoch) -> Iterator[tuple[Epoch, list[ClosingCopy]]]:
    every = in_order(*(file.closings for file in files), key=lambda copy: copy.closing.epoch)
    for epoch, copies in groupby(every, key=lambda copy: copy.closing.epoch):
        if behind < epoch <= last:
            yield epoch, list(copies)


def _check_parts(chain: Chain, copies: list[ClosingCopy], logs: dict[FileNumber, FileScan]) -> None:
    """Every participant is there, with this closing, at its end, behind its blocks."""
    closing = copies[0].closing
    by_file = {copy.scan.record.number: copy for copy in copies}
    for copy in copies:
        if copy.closing != closing:
            chain.blame(
                closing.epoch, copy.scan.path, copy.offset, f"two closing blocks of epoch {closing.epoch} differ"
            )
        if part_of(closing, copy.scan.record.number) is None:
            what = f"epoch {closing.epoch} is closed in a file that takes no part in it"
            chain.blame(closing.epoch, copy.scan.path, copy.offset, what)
    for part in closing.parts:
        _check_part(chain, closing.epoch, part, by_file.get(part.file), logs.get(part.file))


def _check_part(chain: Chain, epoch: Epoch, part: ClosingPart, copy: ClosingCopy | None, scan: FileScan | None) -> None:
    if scan is None:
        chain.blame(
            epoch, f"log file {part.file}", 0, f"epoch {epoch} has a part in log file {part.file}, which is gone"
        )
    elif copy is None:
        if not _is_voided(scan, part.end):
            chain.blame(epoch, scan.path, part.end, f"epoch {epoch} is not whole: its closing block is missing here")
    elif scan.record.incarnation != part.incarnation:
        chain.blame(epoch, scan.path, 0, f"epoch {epoch} has its part in another incarnation of this file")
    elif copy.offset != part.end or copy.running not in (None, part.running):
        chain.blame(epoch, scan.path, copy.offset, f"epoch {epoch} was closed behind other blocks than those here")


def _check_link(chain: Chain, copy: ClosingCopy, before: Link, holes: list[Hole]) -> None:
    closing = copy.closing
    if (closing.previous, closing.previous_digest) == before:
        return
    what = f"epoch {closing.epoch} follows epoch {closing.previous}, but here it follows {before[0]}"
    if closing.previous == before[0]:
        what = f"epoch {closing.epoch} does not hold the digest of epoch {before[0]}"
    elif _lies_in(holes, closing.previous):
        chain.lost.append(closing.previous)
        return
    chain.blame(closing.epoch, copy.scan.path, copy.offset, what)


def _is_voided(scan: FileScan, offset: int) -> bool:
    return any(voided.start <= offset < voided.end for voided in scan.record.voided)


def holes_in(scan: FileScan) -> list[Hole]:
    """What a repair voided in a file: the epochs between which each hole lies."""
    holes: list[Hole] = []
    for voided in scan.record.voided:
        if voided.reason.startswith(DAMAGED):
            before, behind = Epoch(0), Epoch(UINT64_MAX)
            for header in trusted(scan.view, scan.good):
                if header.offset >= voided.end:
                    behind = header.epoch
                    break
                before = header.epoch
            holes.append((before, behind))
    return holes


def _lies_in(holes: list[Hole], epoch: Epoch) -> bool:
    return any(before <= epoch <= behind for before, behind in holes)
