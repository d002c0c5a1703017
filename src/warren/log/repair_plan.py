"""What a repair will do with each file: plain functions over scans; nothing is written here (log/repair does).

    sealed   | header | good | ?????? | good        end |        the bad bytes become a voided range, the rest stays
    active   | header | good | ?????? | good | tail …            the same, and the file is sealed, as opening would
    --epoch  | header | good up to E | everything behind E |     what lies behind E becomes a voided range

Only bytes that are bad are voided, so an epoch that was hit may be left in part: its sessions are no longer whole, and
the report names it. Blocks keep their places, so every LSN that was told to somebody still means what it meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from warren.base.errors import Damage
from warren.base.ids import UINT64_MAX, Epoch, FileNumber, Lsn, StreamId, lsn_of
from warren.durability.closing import Closing, ClosingPart
from warren.durability.participant import FileEnd, run_on
from warren.log.file_header import FILE_HEADER_BYTES, FileKind
from warren.log.file_record import FileRecord, FileState, Voided
from warren.log.layout import rotated_name
from warren.log.scan import WITH_ENTRIES, trusted
from warren.log.scan_tail import read_tail
from warren.log.scan_verdict import FileScan, Hit, Problem, ScanVerdict
from warren.log.verify_chain import DAMAGED, Link, closings_in
from warren.records.block import Header
from warren.records.format import BlockKind

NO_LIMIT = Epoch(UINT64_MAX)


@dataclass(frozen=True, slots=True)
class FileRepair:
    """One file before and after."""

    scan: FileScan
    record: FileRecord  # what the manifest shall say of it
    voided: tuple[Voided, ...]  # what this repair voids
    hits: tuple[Hit, ...]  # what is lost by damage
    entries_lost: int | None  # None: nobody can tell
    entries_cut: int = 0  # good entries that lie behind the epoch to cut back to

    @property
    def is_change(self) -> bool:
        return bool(self.voided) or self.record != self.scan.record


def missing(record: FileRecord, path: str, witnessed: FileEnd | None, durable: Epoch) -> FileScan:
    """A file that is not there, as a scan in which everything is bad."""
    end = max(record.end, witnessed.end if witnessed else 0, FILE_HEADER_BYTES)
    is_active = record.state is FileState.ACTIVE
    last, entries = (durable, None) if is_active else (record.last_epoch, record.entries)
    hit = Hit(record.first_epoch, last, "every", entries, ())
    problem = Problem("the file is missing", 0, end, hit)
    return FileScan(record, path, memoryview(b""), ScanVerdict.FAILED, problems=(problem,))


def true_durable(scans: Sequence[FileScan], durable: Epoch) -> Epoch:
    """The witness may lag behind: a good block of epoch m proves that everything below m was durable, and the highest
    epoch was if all it names is there."""
    highest = max([durable, *(scan.max_epoch for scan in scans)])
    if highest == durable:
        return durable
    return highest if _is_whole(scans, highest) else Epoch(highest - 1)


def required_ends(scans: Sequence[FileScan], witnessed: Iterable[FileEnd], durable: Epoch) -> list[FileEnd]:
    """How far each active file must reach: as the witness says, and as durable closing blocks in any file say."""
    ends = {end.number: end for end in witnessed}
    records = {scan.record.number: scan.record for scan in scans}
    for closing in (copy.closing for scan in scans for copy in closings_in(scan)):
        for part in closing.parts if closing.epoch <= durable else ():
            record = records.get(part.file)
            known = ends.get(part.file)
            if record is not None and (known is None or known.end <= part.end):
                ends[part.file] = _end_behind(closing, part, record)
    return list(ends.values())


def _end_behind(closing: Closing, part: ClosingPart, record: FileRecord) -> FileEnd:
    """Where a file ends once the epoch is closed in it: behind its copy of the closing block, which is known to the
    bit wherever another copy is."""
    made = closing.draft()
    _, checksum = made.place(record.identity, part.end, closing.epoch)
    return FileEnd(part.file, record.identity, part.end + made.size_bytes, run_on(part.running, checksum))


def plan_file(scan: FileScan, limit: Epoch, wall_ns: int, closed: Link) -> FileRepair:
    """Void what is damaged and what lies behind `limit`; seal the file if it is being written."""
    refuse_unrepairable(scan)
    kept, cut_at, entries_cut = _kept(scan, limit)
    voided, hits = _damaged_ranges(scan, cut_at)
    end = kept[-1].end if kept else 0
    if scan.record.state is FileState.ACTIVE:
        voided += _tail_of_active(scan, max([end, *(v.end for v in voided)]), cut_at, limit)
    elif cut_at is not None:
        voided.append(Voided(cut_at, scan.record.end, _cut_back(limit)))
    record = _record_of(scan, kept, voided, cut_at)
    if scan.record.state is FileState.ACTIVE:
        record = _sealed(record, max([end, *(v.end for v in voided if v.reason.startswith(DAMAGED))]), wall_ns, closed)
    return FileRepair(scan, record, tuple(voided), tuple(hits), _entries_lost(scan, hits), entries_cut)


def refuse_unrepairable(scan: FileScan) -> None:
    for problem in scan.problems:
        if not problem.is_tail and problem.hit is None:
            hint = "no single block can be blamed: restore a backup, or go back with --epoch"
            raise Damage(f"this cannot be repaired: {problem.what}", scan.path, problem.offset, hint)


def _kept(scan: FileScan, limit: Epoch) -> tuple[list[Header], int | None, int]:
    """The good blocks up to `limit`, where the first block behind it stands, and how many entries lie there."""
    kept: list[Header] = []
    cut_at: int | None = None
    entries_cut = 0
    for header in trusted(scan.view, scan.good):
        if header.epoch <= limit or scan.record.purpose is not FileKind.LOG:
            kept.append(header)
            continue
        cut_at = header.offset if cut_at is None else cut_at
        entries_cut += header.entries if header.kind in WITH_ENTRIES else 0
    return kept, cut_at, entries_cut


def _damaged_ranges(scan: FileScan, cut_at: int | None) -> tuple[list[Voided], list[Hit]]:
    voided: list[Voided] = []
    hits: list[Hit] = []
    for problem in scan.problems:
        if problem.hit is not None and (cut_at is None or problem.offset < cut_at):
            voided.append(Voided(problem.offset, problem.end, f"{DAMAGED}: {problem.what}; hits {problem.hit}"))
            hits.append(problem.hit)
    return voided, hits


def _tail_of_active(scan: FileScan, start: int, cut_at: int | None, limit: Epoch) -> list[Voided]:
    start = start if cut_at is None else cut_at
    end = read_tail(scan, start).end
    if end <= start:
        return []
    return [Voided(start, end, _cut_back(limit) if cut_at is not None else "not durable, or torn")]


def _cut_back(limit: Epoch) -> str:
    return f"cut back to epoch {limit}"


def _record_of(scan: FileScan, kept: list[Header], voided: list[Voided], cut_at: int | None) -> FileRecord:
    """The record as it is once `voided` is void. Ranges that were void before stay so."""
    data = [header for header in kept if header.kind in WITH_ENTRIES]
    ends: dict[StreamId, Lsn] = {}
    running = 0
    for header in kept:
        running = run_on(running, header.checksum)
        if header.kind == BlockKind.ENTRIES:
            ends[header.stream] = lsn_of(scan.record.number, header.offset, header.entries - 1)
    earlier = tuple(part for part in scan.record.voided if cut_at is None or not cut_at <= part.start < scan.record.end)
    is_log = scan.record.purpose is FileKind.LOG
    return scan.record.changed(
        end=scan.record.end if cut_at is None else min(cut_at, scan.record.end),
        running=running,
        entries=sum(header.entries for header in data),
        first_epoch=(data[0].epoch if data else Epoch(0)) if is_log else scan.record.first_epoch,
        last_epoch=(data[-1].epoch if data else Epoch(0)) if is_log else scan.record.last_epoch,
        stream_ends=tuple(sorted(ends.items())) if is_log else scan.record.stream_ends,
        voided=tuple(sorted({*earlier, *voided}, key=lambda part: part.start)),
    )


def _sealed(record: FileRecord, end: int, wall_ns: int, closed: Link) -> FileRecord:
    return record.changed(
        state=FileState.SEALED,
        name=rotated_name(record.channel, record.number),
        end=end,
        last_wall_ns=wall_ns,
        sealed_ns=wall_ns,
        sealed_epoch=closed[0],
        sealed_digest=closed[1].hex(),
    )


def _entries_lost(scan: FileScan, hits: list[Hit]) -> int | None:
    if not hits:
        return 0
    if scan.is_detached:
        return max(0, scan.record.entries - scan.entries)
    known = [hit.entries_max for hit in hits]
    return None if None in known else sum(count or 0 for count in known)


def digest_at(scans: Sequence[FileScan], epoch: Epoch) -> Link | None:
    """The last closed epoch at or below `epoch` that still has its closing block, and the chain's digest at it."""
    found: Link | None = None
    for scan in scans:
        if scan.record.purpose is FileKind.LOG:
            for copy in closings_in(scan):
                if copy.closing.epoch <= epoch and (found is None or copy.closing.epoch > found[0]):
                    found = copy.closing.epoch, copy.closing.digest(scan.record.timeline)
    return found


def _is_whole(scans: Sequence[FileScan], epoch: Epoch) -> bool:
    """Does every part that the epoch's closing block names stand in its file, as many blocks as were counted?"""
    blocks: dict[FileNumber, int] = {}
    closed_at: dict[FileNumber, int] = {}
    closing: Closing | None = None
    for scan in scans:
        whole = replace(scan, good=tuple((h.offset, h.end) for h in read_tail(scan, scan.end).whole))
        for header in trusted(whole.view, whole.good):
            if header.epoch == epoch and header.kind == BlockKind.ENTRIES:
                blocks[scan.record.number] = blocks.get(scan.record.number, 0) + 1
        for copy in closings_in(whole):
            if copy.closing.epoch == epoch:
                closing = copy.closing
                closed_at[scan.record.number] = copy.offset
    parts = closing.parts if closing else ()
    return bool(parts) and all(
        closed_at.get(part.file) == part.end and blocks.get(part.file, 0) == part.blocks for part in parts
    )
