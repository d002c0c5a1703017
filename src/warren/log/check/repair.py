"""Repair: make a damaged store usable again, and report what is lost. Offline: it takes the directory's lock.

    scan everything ─▶ plan ─▶ copy what will be voided to quarantine/ ─▶ new files in staging
                    ─▶ seal active files under their rotated names ─▶ one manifest edit ─▶ new files take over

Damage at or below the witness is voided by manifest entry, range and reason; no file is changed, nothing is deleted.
With `cut`, files that have voided ranges are replaced by new ones without the voided bytes. With `epoch`, the store
returns to that epoch: everything behind it is voided, and a new timeline begins, so that later epochs are not confused
with the voided ones. What is derived from more than is left (snapshot, compacted file) is set aside. A torn tail above
the witness needs no repair: opening voids it. Repeating a repair, also one that a crash ended, is safe.

The plan is made by plain functions over scans, which write nothing:

    sealed   | header | good | ?????? | good        end |        the bad bytes become a voided range, the rest stays
    active   | header | good | ?????? | good | tail …            the same, and the file is sealed, as opening would
    --epoch  | header | good up to E | everything behind E |     what lies behind E becomes a voided range

Only bad bytes are voided, so an epoch that was hit may remain in part: its sessions are no longer whole, and the report
names it. Blocks keep their places, so every LSN that a client has seen keeps its meaning.

New files for damaged ones: the good blocks, each at its own place, zeros where something was voided.

    staging/repair-<number>   written and synced       the old file gets a second name in quarantine/
    manifest                  says what is voided      (a crash here leaves the old file, voided: equivalent)
    rename                    the new file takes over the name; the old one stays in quarantine, links and mappings

A file whose header is damaged, or that is missing, gets a new header from what the manifest knows. It differs from the
original one, so it counts as voided too.

The report names everything that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from warren.base.environment import Clock, Random
from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import UINT64_MAX, Epoch, FileNumber, Lsn, StreamId, TimelineId, lsn_of
from warren.base.threads import Threads
from warren.durability.closing_block import NO_DIGEST, Closing, ClosingPart
from warren.durability.log_file import FileEnd, run_on
from warren.durability.timeline import Timeline
from warren.files.local import this_process
from warren.files.protocol import Files, join, parent
from warren.log.check.verify import VerifyReport, check_directory
from warren.log.check.verify_chain import DAMAGED, Link, closings_in
from warren.log.checkpoint import choose_files
from warren.log.file_record import (
    DIRECTORIES,
    FILE_HEADER_BYTES,
    LOCK,
    MANIFEST,
    QUARANTINE,
    STAGING,
    FileHeader,
    FileKind,
    FileRecord,
    FileState,
    Voided,
    read_file_header,
    rotated_name,
)
from warren.log.log_files import locate
from warren.log.manifest import Change, Manifest, ManifestState, drop_change, file_change, set_change
from warren.log.read.blocks import WITH_ENTRIES, FileScan, Hit, Problem, ScanVerdict, extent, trusted, valid_ranges
from warren.log.read.read_only import ReadOnlyLog
from warren.log.read.scan import LogScan, read_tail, scan_one
from warren.log.recovery import free_name, rotate_epoch_file, set_aside_bytes
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
    entries_lost: int | None  # None: unknown
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
    block = closing.draft()
    _, checksum = block.place(record.identity, part.end, closing.epoch)
    return FileEnd(part.file, record.identity, part.end + block.size_bytes, run_on(part.running, checksum))


def plan_file(scan: FileScan, limit: Epoch, wall_ns: int, closed: Link) -> FileRepair:
    """Void what is damaged and what lies behind `limit`; seal the file if it is being written."""
    refuse_unrepairable(scan)
    headers, cut_at, entries_cut = _headers_up_to(scan, limit)
    voided, hits = _damaged_ranges(scan, cut_at)
    end = headers[-1].end if headers else 0
    if scan.record.state is FileState.ACTIVE:
        voided += _tail_of_active(scan, max([end, *(v.end for v in voided)]), cut_at, limit)
    elif cut_at is not None:
        voided.append(Voided(cut_at, scan.record.end, _cut_back(limit)))
    record = _record_of(scan, headers, voided, cut_at)
    if scan.record.state is FileState.ACTIVE:
        record = _sealed(record, max([end, *(v.end for v in voided if v.reason.startswith(DAMAGED))]), wall_ns, closed)
    return FileRepair(scan, record, tuple(voided), tuple(hits), _entries_lost(scan, hits), entries_cut)


def refuse_unrepairable(scan: FileScan) -> None:
    for problem in scan.problems:
        if not problem.is_tail and problem.hit is None:
            hint = "no single block can be blamed: restore a backup, or go back with --epoch"
            raise Damage(f"this cannot be repaired: {problem.what}", scan.path, problem.offset, hint)


def _headers_up_to(scan: FileScan, limit: Epoch) -> tuple[list[Header], int | None, int]:
    """The good blocks up to `limit`, where the first block behind it stands, and how many entries lie there."""
    headers: list[Header] = []
    cut_at: int | None = None
    entries_cut = 0
    for header in trusted(scan.view, scan.good):
        if header.epoch <= limit or scan.record.purpose is not FileKind.LOG:
            headers.append(header)
            continue
        cut_at = header.offset if cut_at is None else cut_at
        entries_cut += header.entries if header.kind in WITH_ENTRIES else 0
    return headers, cut_at, entries_cut


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


def _record_of(scan: FileScan, headers: list[Header], voided: list[Voided], cut_at: int | None) -> FileRecord:
    """The record as it is once `voided` is void. Ranges that were void before stay so."""
    data = [header for header in headers if header.kind in WITH_ENTRIES]
    ends: dict[StreamId, Lsn] = {}
    running = 0
    for header in headers:
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


def lacks_header(repair: FileRepair) -> bool:
    """Is there no readable header at the file's beginning? Its bytes are voided then, or will be."""
    try:
        read_file_header(repair.scan.view, repair.scan.path)
    except Damage:
        return True
    return False


def has_voided_bytes(repair: FileRepair) -> bool:
    """Does anything but zeros stand where something is voided? A header written anew does not count."""
    view = repair.scan.view
    for part in repair.record.voided:
        start = max(part.start, FILE_HEADER_BYTES)
        if extent(view[: part.end], start) > start:
            return True
    return False


def stage(files: Files, directory: str, repair: FileRepair, container_bytes: int) -> str:
    """Write the new file; its path in staging."""
    record, view = repair.record, repair.scan.view
    path = join(directory, STAGING, f"repair-{record.number}")
    if files.exists(path):
        files.remove(path)
    file = files.create(path)
    try:
        file.allocate(0, record.end)
        for start, stop in valid_ranges(record, record.end):
            file.write_at(start, [view[start:stop]])
        header = _new_header(record, container_bytes) if lacks_header(repair) else view[:FILE_HEADER_BYTES]
        file.write_at(0, [header])
        file.sync()
    finally:
        file.close()
    files.sync_directory(parent(path))
    return path


def swap_in(files: Files, directory: str, staged: str, record: FileRecord) -> str | None:
    """Let the new file take over the name. The old one's name in quarantine, or None if there was none."""
    path = join(directory, record.name)
    set_aside_path = None
    if files.exists(path):
        set_aside_path = join(directory, QUARANTINE, free_name(files, directory, record.name))
        files.link(path, set_aside_path)
        files.sync_directory(parent(set_aside_path))
    files.rename(staged, path)
    files.sync_directory(parent(path))
    return set_aside_path


def set_aside(files: Files, directory: str, record: FileRecord) -> str | None:
    """Move a file that is no longer part of the store to quarantine, wherever it stood."""
    path = join(directory, record.name)
    if not files.exists(path):
        return None
    set_aside_path = join(directory, QUARANTINE, free_name(files, directory, record.name.replace("/", "-")))
    files.rename(path, set_aside_path)
    files.sync_directory(parent(set_aside_path))
    files.sync_directory(parent(path))
    return set_aside_path


def _new_header(record: FileRecord, container_bytes: int) -> bytes:
    size = container_bytes if record.purpose is FileKind.LOG else 0
    header = FileHeader(record.number, record.channel, record.purpose, size, record.first_wall_ns)
    return header.placed(record.identity)[0]


@dataclass(slots=True)
class RepairReport:
    directory: str
    is_dry_run: bool
    durable: Epoch  # the newest durable epoch before the repair
    highest_seen: Epoch  # the highest epoch number that appears anywhere, durable or not
    closed: Link = (Epoch(0), NO_DIGEST)  # the newest durable epoch after it, and the chain's digest there
    timeline: Timeline | None = None  # the new one, if the store goes back to an epoch
    repairs: list[FileRepair] = field(default_factory=list)  # files that change
    dropped: list[FileRecord] = field(default_factory=list)  # derived files that are set aside
    quarantined: list[str] = field(default_factory=list)  # what was put into quarantine

    @property
    def is_needed(self) -> bool:
        return bool(self.repairs or self.dropped or self.timeline)

    @property
    def entries_lost(self) -> int | None:
        """Lost by damage, at most; None if unknown."""
        known = [repair.entries_lost for repair in self.repairs]
        return None if None in known else sum(count or 0 for count in known)

    @property
    def entries_cut(self) -> int:
        """Good entries of epochs behind the one the store goes back to."""
        return sum(repair.entries_cut for repair in self.repairs)

    @property
    def epochs_hit(self) -> list[tuple[Epoch, Epoch]]:
        """First and last epoch of each damage: these are no longer whole."""
        return sorted({(hit.first_epoch, hit.last_epoch) for repair in self.repairs for hit in repair.hits})


@dataclass(slots=True)
class Repair:
    files: Files
    directory: str
    clock: Clock
    threads: Threads
    rng: Random
    epoch: Epoch | None = None  # go back to it
    cut: bool = False
    thread_num: int = 2
    on_file: Callable[[FileScan], None] = field(default=lambda scan: None)

    def plan(self) -> RepairReport:
        """Say what would be done; change nothing and take no lock."""
        return self._plan(self._read(), is_dry_run=True)

    def run(self) -> RepairReport:
        if not self.files.exists(join(self.directory, MANIFEST)):
            raise Refused(f"{self.directory} is no log directory: it has no {MANIFEST}", "name the directory of one")
        lock = self.files.lock(join(self.directory, LOCK), f"warren log repair, {this_process(self.clock)}")
        try:
            log = self._read()
            report = self._plan(log, is_dry_run=False)
            if report.is_needed:
                self._apply(log, report)
            return report
        finally:
            lock.release()

    # -- finding out ---------------------------------------------------------------------------------------------

    def _read(self) -> ReadOnlyLog:
        found = VerifyReport(self.directory)
        log = check_directory(self.files, self.directory, found)
        if log is None:
            first = found.first_damage
            assert first is not None, "a repair that stops has a reason"
            raise Damage(first.what, first.path, first.offset, "the manifest itself is damaged: restore a backup")
        return log

    def _plan(self, log: ReadOnlyLog, is_dry_run: bool) -> RepairReport:
        scans, durable = self._scan(log)
        highest = max([durable, *(scan.max_epoch for scan in scans)])
        report = RepairReport(self.directory, is_dry_run, durable, Epoch(highest))
        report.closed = self._closed(log, scans, durable)
        if self.epoch is not None:
            self._go_back(log, scans, report)
        limit = NO_LIMIT if self.epoch is None else report.closed[0]
        wall_ns = self.clock.wall_ns()
        plans = [plan_file(scan, limit, wall_ns, report.closed) for scan in scans if not _is_snapshot(scan.record)]
        if self.epoch is None:
            plans = self._without_compacted(log.state, plans, report)
        if self.epoch is not None or any(plan.hits or self._is_replaced(plan) for plan in plans):
            report.repairs = [plan for plan in plans if plan.is_change or self._is_replaced(plan)]
        self._drop_derived(log, scans, report)
        return report

    def _scan(self, log: ReadOnlyLog) -> tuple[list[FileScan], Epoch]:
        """Every file, active ones up to the epoch that was truly durable, which may lie beyond the witness."""
        witnessed = log.witness.ends if log.witness else ()
        active = [record for record in log.records() if record.state is FileState.ACTIVE]
        sealed = self._scan_some(log, [r for r in log.records() if r.state is not FileState.ACTIVE], log.durable, ())
        durable = true_durable(self._scan_some(log, active, log.durable, witnessed), log.durable)
        ends = required_ends(self._scan_some(log, active, durable, witnessed), witnessed, durable)
        return sealed + self._scan_some(log, active, durable, ends), durable

    def _scan_some(
        self, log: ReadOnlyLog, records: list[FileRecord], durable: Epoch, ends: Iterable[FileEnd]
    ) -> list[FileScan]:
        there = {record.number: self._is_there(record) for record in records if not _is_snapshot(record)}
        logs = [record for record in records if there.get(record.number)]
        job = LogScan(
            log.files, log.directory, logs, durable, self.threads, self.thread_num, witnessed=tuple(ends),
            on_file=self.on_file,
        )  # fmt: skip
        lost = [record for record in records if there.get(record.number) is False]
        absent = [missing(r, join(log.directory, r.name), log.witnessed(r), durable) for r in lost]
        snapshots = [record for record in records if _is_snapshot(record)]
        derived = [scan_one(self.files, join(log.directory, record.name), record, durable) for record in snapshots]
        return [*job.run().files, *absent, *derived]

    def _is_there(self, record: FileRecord) -> bool:
        found = locate(self.files, self.directory, record)
        if found is not None:
            found.file.close()
        return found is not None

    def _go_back(self, log: ReadOnlyLog, scans: list[FileScan], report: RepairReport) -> None:
        assert self.epoch is not None
        if self.epoch >= report.durable:
            raise Refused(
                f"epoch {self.epoch} is not before the durable epoch {report.durable}", "choose an earlier one"
            )
        if self.epoch <= log.state.horizon:
            raise Gone(f"epoch {self.epoch} is gone, horizon is {log.state.horizon}", "choose a later one")
        anchor = log.state.horizon, bytes.fromhex(log.state.horizon_digest)
        report.closed = digest_at(scans, self.epoch) or anchor
        report.timeline = log.state.timeline.fork(TimelineId(self.rng.id64()), report.closed[0])

    def _closed(self, log: ReadOnlyLog, scans: list[FileScan], durable: Epoch) -> Link:
        """The durable epoch and the chain's digest at it, from the best source left."""
        if log.witness is not None and log.witness.durable == durable:
            return durable, log.witness.digest
        if log.state.durable == durable:
            return durable, bytes.fromhex(log.state.digest)
        found = digest_at(scans, durable)
        return durable, found[1] if found else bytes.fromhex(log.state.digest)

    def _is_replaced(self, plan: FileRepair) -> bool:
        return lacks_header(plan) or (self.cut and has_voided_bytes(plan))

    def _without_compacted(
        self, state: ManifestState, plans: list[FileRepair], report: RepairReport
    ) -> list[FileRepair]:
        """A damaged compacted file can be dropped as long as every log file it was made from is there."""
        if state.horizon > 0:
            return plans
        compacted = [plan for plan in plans if plan.record.purpose is FileKind.COMPACTED]
        hit = {plan.record.number for plan in compacted if plan.hits}
        if hit & set(state.compacted):
            hit |= set(state.compacted)  # they share their sources: one cannot be left in force without the others
        report.dropped += [plan.scan.record for plan in compacted if plan.record.number in hit]
        return [plan for plan in plans if plan.record.number not in hit]

    def _drop_derived(self, log: ReadOnlyLog, scans: list[FileScan], report: RepairReport) -> None:
        """A snapshot of what was, or a compacted file of later epochs, is set aside; so is a damaged snapshot."""
        for scan in scans:
            if _is_snapshot(scan.record) and (report.is_needed or scan.problems):
                report.dropped.append(scan.record)
        if report.timeline is not None:
            compacted = [record for record in log.records() if record.purpose is FileKind.COMPACTED]
            report.dropped += [record for record in compacted if record.last_epoch > report.closed[0]]

    # -- doing it ------------------------------------------------------------------------------------------------

    def _apply(self, log: ReadOnlyLog, report: RepairReport) -> None:
        files, directory = self.files, self.directory
        for name in DIRECTORIES:
            files.make_directories(join(directory, name))
        changes = self._changes(log.state, report)
        for plan in report.repairs:
            report.quarantined += [_keep(files, directory, plan, part) for part in plan.voided if plan.scan.view]
        replaced = [plan for plan in report.repairs if self._is_replaced(plan)]
        staged = [stage(files, directory, plan, log.state.container_bytes) for plan in replaced]
        self._rename_sealed(report)
        manifest = Manifest(files, directory, self.threads, self.rng, log.state)
        manifest.commit(changes)
        manifest.close()
        moved = [swap_in(files, directory, path, plan.record) for path, plan in zip(staged, replaced, strict=True)]
        moved += [set_aside(files, directory, record) for record in report.dropped]
        report.quarantined += [path for path in moved if path is not None]
        if report.timeline is not None:
            rotate_epoch_file(files, directory, report.durable)
            files.sync_directory(directory)

    def _rename_sealed(self, report: RepairReport) -> None:
        for plan in report.repairs:
            new = join(self.directory, plan.record.name)
            if plan.scan.path != new and self.files.exists(plan.scan.path):
                self.files.rename(plan.scan.path, new)
        self.files.sync_directory(self.directory)

    def _changes(self, state: ManifestState, report: RepairReport) -> list[Change]:
        durable, digest = report.closed
        floor = max(state.epoch_floor, report.highest_seen)
        values = {"durable": durable, "digest": digest.hex(), "epoch_floor": floor, "is_clean": False}
        dropped = {record.number for record in report.dropped}
        if state.snapshot in dropped:
            values |= {"snapshot": FileNumber(0), "snapshot_epoch": Epoch(0)}
        if report.timeline is not None:
            chosen = choose_files(state, durable)
            bases = tuple(record.number for record in chosen if record.purpose is FileKind.COMPACTED)
            values |= {"timeline": report.timeline, "compacted": bases}
        elif dropped & set(state.compacted):
            values |= {"compacted": tuple(number for number in state.compacted if number not in dropped)}
        changes = [file_change(plan.record) for plan in report.repairs if plan.record.number not in dropped]
        return [*changes, *(drop_change(FileNumber(number)) for number in sorted(dropped)), set_change(**values)]


def _is_snapshot(record: FileRecord) -> bool:
    return record.purpose is FileKind.SNAPSHOT


def _keep(files: Files, directory: str, plan: FileRepair, part: Voided) -> str:
    name = f"{plan.record.number:010d}-{part.start}-{part.end}.voided"
    return set_aside_bytes(files, directory, name, plan.scan.view[part.start : part.end])
