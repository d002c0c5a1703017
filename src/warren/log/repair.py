"""Repair: go on with what is left, and say what is lost. Offline: it takes the directory's lock.

    scan everything ─▶ plan (log/repair_plan) ─▶ copy what will be voided to quarantine/ ─▶ new files in staging
                    ─▶ seal active files under their rotated names ─▶ one manifest edit ─▶ new files take over

Damage at or below the witness is voided by manifest entry, range and reason; no file is changed, nothing is deleted.
With `cut`, files that have voided ranges are replaced by new ones without the voided bytes. With `epoch`, the store
goes back to that epoch: everything behind it is voided, and a new timeline begins, so that nobody takes the epochs to
come for those that were. What is derived from more than is left (snapshot, compacted file) is set aside.

A torn tail above the witness needs no repair: opening voids it. Repeating a repair, also one that a crash ended, is
safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from warren.base.chance import Random
from warren.base.clock import Clock
from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import Epoch, FileNumber, TimelineId
from warren.base.threads import Threads
from warren.durability.participant import FileEnd
from warren.files.lock import this_process
from warren.files.protocol import Files, join
from warren.log.cut import choose_files
from warren.log.file_header import FileKind
from warren.log.file_lookup import locate
from warren.log.file_record import FileRecord, FileState, Voided
from warren.log.layout import DIRECTORIES, LOCK, MANIFEST
from warren.log.manifest import Manifest
from warren.log.manifest_state import Change, ManifestState, drop_change, file_change, set_change
from warren.log.opening import rotate_epoch_file
from warren.log.quarantine import set_aside_bytes
from warren.log.reading import ReadOnlyLog
from warren.log.repair_files import has_voided_bytes, lacks_header, set_aside, stage, swap_in
from warren.log.repair_plan import NO_LIMIT, FileRepair, digest_at, missing, plan_file, required_ends, true_durable
from warren.log.repair_report import RepairReport
from warren.log.scan import scan_one
from warren.log.scan_verdict import FileScan
from warren.log.scan_workers import LogScan
from warren.log.verify_chain import Link
from warren.log.verify_directory import check_directory
from warren.log.verify_report import VerifyReport


@dataclass(slots=True)
class Repair:
    files: Files
    directory: str
    clock: Clock
    threads: Threads
    chance: Random
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
            assert first is not None, "whoever cannot go on says why"
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
        report.timeline = log.state.timeline.fork(TimelineId(self.chance.id64()), report.closed[0])

    def _closed(self, log: ReadOnlyLog, scans: list[FileScan], durable: Epoch) -> Link:
        """The durable epoch and the chain's digest at it, from whoever still knows it."""
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
        """A damaged compacted file is not missed as long as every log file it was made from is there."""
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
            report.kept += [_keep(files, directory, plan, part) for part in plan.voided if plan.scan.view]
        replaced = [plan for plan in report.repairs if self._is_replaced(plan)]
        staged = [stage(files, directory, plan, log.state.container_bytes) for plan in replaced]
        self._rename_sealed(report)
        manifest = Manifest(files, directory, self.threads, self.chance, log.state)
        manifest.commit(changes)
        manifest.close()
        kept = [swap_in(files, directory, path, plan.record) for path, plan in zip(staged, replaced, strict=True)]
        kept += [set_aside(files, directory, record) for record in report.dropped]
        report.kept += [path for path in kept if path is not None]
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
