"""`warren log repair DIR`: go on with what is left, and say what is lost. Exit 0 when the store is good again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.output import AsJson, Directory, DryRun, ThreadNum, say, say_json

if TYPE_CHECKING:
    from warren.log.repair_report import RepairReport

DAMAGE = 16


def repair(
    directory: Directory,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    cut: Annotated[bool, typer.Option("--cut", help="Replace files that have voided ranges by new ones.")] = False,
    epoch: Annotated[
        int | None, typer.Option("--epoch", min=1, help="Go back to this epoch: everything behind it is voided.")
    ] = None,
    thread_num: ThreadNum = 2,
) -> None:
    """Void what is damaged in a stopped log directory. Voided bytes are kept in quarantine/; nothing is deleted."""
    from warren.base.chance import SystemRandom
    from warren.base.clock import SystemClock
    from warren.base.ids import Epoch
    from warren.base.threads import SystemThreads
    from warren.cli.progress import Bar
    from warren.files.local import LocalFiles
    from warren.log.layout import is_wal
    from warren.log.repair import Repair

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
        say_json(repair_as_object(report))
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
        "quarantined": report.kept,
    }


def _show(report: RepairReport) -> None:
    if not report.is_needed:
        say("nothing to repair")
        return
    would = "would be " if report.is_dry_run else ""
    for repair in report.repairs:
        for voided in repair.voided:
            say(f"{repair.record.name}: bytes {voided.start} … {voided.end} {would}voided: {voided.reason}")
    for record in report.dropped:
        say(f"{record.name}: {would}set aside, since it was made from more than is left")
    for first, last in report.epochs_hit:
        say(f"hit: epochs {first} … {last}" if first != last else f"hit: epoch {first}")
    lost = "an unknown number of" if report.entries_lost is None else f"at most {report.entries_lost}"
    say(f"{would}lost: {lost} entries by damage, {report.entries_cut} by going back")
    say(f"durable: epoch {report.durable} before, epoch {report.closed[0]} after")
    if report.timeline:
        say(f"timeline {report.timeline.id:016x} begins behind epoch {report.closed[0]}")
    for path in report.kept:
        say(f"kept: {path}")
    if report.is_dry_run:
        say("nothing was changed; leave out --dry-run to do it")
