"""Commands that check and mend a log directory.

warren log verify DIR      check every byte of log and snapshot store; exit 0 if good, 16 if damaged
warren log repair DIR      void what is damaged and report what is lost; exit 0 when the store is good again
warren log compact DIR     compact a log directory that no store has open
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.output import AsJson, Directory, DryRun, ThreadNum, WhichEngine, print_json, print_line, size, table
from warren.config.compaction_engine import CompactionSettings, Engine, is_for_spark

if TYPE_CHECKING:
    from warren.log.check.repair import RepairReport
    from warren.log.check.verify import VerifyReport
    from warren.log.read.blocks import FileScan
    from warren.log.read.read_only import ReadOnlyLog


DAMAGE = 16


def verify(directory: Directory, as_json: AsJson = False, thread_num: ThreadNum = 2) -> None:
    """Check every byte of a log directory, prove the chain of epochs complete, and check the safe snapshot store beside
    it. Changes nothing."""
    from warren.base.threads import SystemThreads
    from warren.cli.output import Bar
    from warren.files.local import LocalFiles
    from warren.log.check.verify import verify as check
    from warren.log.file_record import is_wal

    files = LocalFiles()
    with Bar("checking", sum(map(is_wal, files.list(directory))), "files") as bar:
        report = check(files, directory, SystemThreads(), thread_num, lambda scan: bar.step())
    add_store(report)
    if as_json:
        print_json(as_object(report))
    else:
        show(report)
    if not report.is_good:
        raise typer.Exit(DAMAGE)


def add_store(report: VerifyReport) -> None:
    """Check the safe snapshot store beside the log, if there is one."""
    from warren.files.local import LocalFiles
    from warren.snapshot.rocksdb.verify import store_beside, verify_store

    store = store_beside(LocalFiles(), report.directory)
    if store is None:
        return
    verified = verify_store(store)
    if verified.damage is not None:
        report.damage(verified.damage.path or store, verified.damage.offset, verified.damage.bare)
    else:
        report.note(store, 0, f"every block of the safe snapshot store is whole: {verified.rows} rows")


def as_object(report: VerifyReport) -> dict[str, Any]:
    first, chain = report.first_damage, report.chain
    return {
        "directory": report.directory,
        "is_good": report.is_good,
        "durable": report.durable,
        "first_damage": _finding(first) if first else None,
        "findings": [_finding(finding) for finding in report.findings],
        "files": [_file(scan) for scan in report.files],
        "chain": {
            "anchor": chain.anchor,
            "last": chain.last,
            "linked": chain.linked,
            "lost": chain.lost,
            "is_complete": chain.is_complete,
        }
        if chain
        else None,
    }


def _finding(finding: Any) -> dict[str, Any]:
    return {
        "severity": finding.severity.word,
        "path": finding.path,
        "offset": finding.offset,
        "what": finding.what,
    }


def _file(scan: FileScan) -> dict[str, Any]:
    return {
        "name": scan.record.name,
        "number": scan.record.number,
        "state": scan.record.state.value,
        "verdict": scan.verdict.word,
        "blocks": scan.blocks,
        "entries": scan.entries,
        "max_epoch": scan.max_epoch,
        "voided": len(scan.record.voided),
    }


def show(report: VerifyReport) -> None:
    rows = [
        (scan.record.name, scan.record.state.value, scan.verdict.word, scan.blocks, scan.entries, scan.max_epoch)
        for scan in report.files
    ]
    table("files", ("name", "state", "verdict", "blocks", "entries", "epoch"), rows)
    for finding in report.findings:
        print_line(str(finding))
    if (chain := report.chain) is not None:
        proved = "complete" if chain.is_complete else "BROKEN"
        lost = f", {len(chain.lost)} lost to repairs" if chain.lost else ""
        print_line(f"chain: {proved}, {chain.linked} epochs linked from {chain.anchor} to {chain.last}{lost}")
    if first := report.first_damage:
        print_line(f"damaged: {first.path} at byte {first.offset}: {first.what}")
        if first.path.startswith(report.directory):
            print_line(f"  hint: `warren log repair --dry-run {report.directory}` shows what can be saved")
        else:
            print_line("  hint: the next start sets the store aside and rebuilds it, if the log has everything")
    else:
        print_line(f"good: everything up to epoch {report.durable} is as it was written")


def repair(
    directory: Directory,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    cut: Annotated[bool, typer.Option("--cut", help="Replace files that have voided ranges by new ones.")] = False,
    epoch: Annotated[
        int | None, typer.Option("--epoch", min=1, help="Return to this epoch: everything after it is voided.")
    ] = None,
    thread_num: ThreadNum = 2,
) -> None:
    """Void what is damaged in a stopped log directory. Voided bytes are kept in quarantine/; nothing is deleted."""
    from warren.base.environment import SystemClock, SystemRandom
    from warren.base.ids import Epoch
    from warren.base.threads import SystemThreads
    from warren.cli.output import Bar
    from warren.files.local import LocalFiles
    from warren.log.check.repair import Repair
    from warren.log.file_record import is_wal

    files = LocalFiles()
    with Bar("checking", sum(map(is_wal, files.list(directory))), "files") as bar:
        work = Repair(
            files,
            directory,
            SystemClock(),
            SystemThreads(),
            SystemRandom(),
            None if epoch is None else Epoch(epoch),
            cut,
            thread_num,
            lambda scan: bar.step(),
        )
        report = work.plan() if dry_run else work.run()
    if as_json:
        print_json(repair_as_object(report))
    else:
        _show(report)
    if dry_run and report.epochs_hit:
        raise typer.Exit(DAMAGE)


def repair_as_object(report: RepairReport) -> dict[str, Any]:
    return {
        "directory": report.directory,
        "dry_run": report.is_dry_run,
        "is_needed": report.is_needed,
        "durable_before": report.durable,
        "durable_after": report.closed[0],
        "timeline": f"{report.timeline.id:016x}" if report.timeline else None,
        "epochs_hit": [list(epochs) for epochs in report.epochs_hit],
        "entries_lost_max": report.entries_lost,
        "entries_cut": report.entries_cut,
        "files": [
            {
                "name": repair.record.name,
                "voided": [{"start": v.start, "end": v.end, "reason": v.reason} for v in repair.voided],
                "entries_lost_max": repair.entries_lost,
                "entries_cut": repair.entries_cut,
            }
            for repair in report.repairs
        ],
        "set_aside": [record.name for record in report.dropped],
        "quarantined": report.quarantined,
    }


def _show(report: RepairReport) -> None:
    if not report.is_needed:
        print_line("nothing to repair")
        return
    would = "would be " if report.is_dry_run else ""
    for repair in report.repairs:
        for voided in repair.voided:
            print_line(f"{repair.record.name}: bytes {voided.start} … {voided.end} {would}voided: {voided.reason}")
    for record in report.dropped:
        print_line(f"{record.name}: {would}set aside, since it was made from more than is left")
    for first, last in report.epochs_hit:
        print_line(f"hit: epochs {first} … {last}" if first != last else f"hit: epoch {first}")
    lost = "an unknown number of" if report.entries_lost is None else f"at most {report.entries_lost}"
    print_line(f"{would}lost: {lost} entries by damage, {report.entries_cut} by --epoch")
    print_line(f"durable: epoch {report.durable} before, epoch {report.closed[0]} after")
    if report.timeline:
        print_line(f"timeline {report.timeline.id:016x} begins after epoch {report.closed[0]}")
    for path in report.quarantined:
        print_line(f"kept: {path}")
    if report.is_dry_run:
        print_line("nothing was changed; run without --dry-run to repair")


def compact(
    directory: Directory,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    thread_num: ThreadNum = 2,
    engine: WhichEngine = Engine.AUTO,
) -> None:
    """Merge the rotated files and the compacted file of a stopped log directory into one, then purge free files."""
    from warren.files.local import LocalFiles
    from warren.log.read.read_only import open_for_reading
    from warren.snapshot.database import refuse_database

    log = open_for_reading(LocalFiles(), directory)
    refuse_database(LocalFiles(), directory)
    if dry_run:
        result = _planned(log)
    elif is_for_spark(CompactionSettings(engine), directory):
        from warren.cli.pipeline import on_spark

        result = on_spark(directory)
    else:
        result = _compacted(directory, thread_num)
    if as_json:
        print_json(result)
    elif dry_run:
        files, amount = len(result["files"]), size(result["bytes"])
        print_line(f"would compact {files} files, {result['entries']} entries in {amount}; nothing was changed")
    else:
        show_compaction(result)


def show_compaction(result: dict[str, Any]) -> None:
    """Print the result of a compaction, online or offline."""
    if message := result.get("message"):
        print_line(str(message))
    else:
        entries = f"{result['entries']} of {result['entries_in']} entries are left"
        print_line(f"compacted {result['compacted']} files into {result['file']}: {entries}, {size(result['bytes'])}")
    if purged := result.get("purged"):
        print_line(f"purged {len(purged)} files, {size(result['freed_bytes'])}: {', '.join(purged)}")


def _planned(log: ReadOnlyLog) -> dict[str, Any]:
    """The input of a compaction. Active files are rotated first, so they count as well."""
    from warren.log.compaction.compaction import CompactionCatalog
    from warren.log.file_record import FileKind, FileState

    catalog = CompactionCatalog.of(log.state)
    logs = [record for record in log.records() if record.purpose is FileKind.LOG]
    targets = catalog.targets([record for record in logs if record.state is FileState.SEALED])
    active = [log.input_of(record) for record in logs if record.state is FileState.ACTIVE]
    fresh = [source for source in active if source.scan().entries]
    records = [*catalog.compacted, *targets] if targets or fresh else []
    return {
        "dry_run": True,
        "files": [*(record.name for record in records), *(source.record.name for source in fresh)],
        "entries": sum(record.entries for record in records) + sum(source.entries for source in fresh),
        "bytes": sum(record.end for record in records) + sum(source.size_bytes for source in fresh),
    }


def _compacted(directory: str, thread_num: int) -> dict[str, Any]:
    from warren.cli.output import Bar
    from warren.log.settings import LogSettings
    from warren.log.store import LogStore

    settings = LogSettings(scan_threads=thread_num, compaction_garbage_ratio=0.0)
    with LogStore.open(directory, settings) as store:
        with Bar("compacting", 1.0) as bar:
            result = store.compact(bar.reach)
        purged = store.purge()
    return {"status": "ok", **result, "purged": list(purged.files), "freed_bytes": purged.freed_bytes}
