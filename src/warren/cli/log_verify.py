"""`warren log verify DIR`: is every bit of the log, and of the store behind it, as written? Exit 0 if so, 16 if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from warren.cli.output import AsJson, Directory, ThreadNum, say, say_json, table

if TYPE_CHECKING:
    from warren.log.scan_verdict import FileScan
    from warren.log.verify_report import VerifyReport

DAMAGE = 16


def verify(directory: Directory, as_json: AsJson = False, thread_num: ThreadNum = 2) -> None:
    """Check every byte of a log directory, prove the chain of epochs complete, and check the safe snapshot store beside
    it. Changes nothing."""
    from warren.base.threads import SystemThreads
    from warren.cli.progress import Bar
    from warren.files.local import LocalFiles
    from warren.log.layout import is_wal
    from warren.log.verify import verify as check

    files = LocalFiles()
    with Bar("checking", sum(map(is_wal, files.list(directory))), "files") as bar:
        report = check(files, directory, SystemThreads(), thread_num, lambda scan: bar.step())
    add_store(report)
    if as_json:
        say_json(as_object(report))
    else:
        show(report)
    if not report.is_good:
        raise typer.Exit(DAMAGE)


def add_store(report: VerifyReport) -> None:
    """Check the safe snapshot store beside the log, if there is one."""
    from warren.files.local import LocalFiles
    from warren.snapshot.verify_store import store_beside, verify_store

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
        say(str(finding))
    if (chain := report.chain) is not None:
        proved = "complete" if chain.is_complete else "BROKEN"
        lost = f", {len(chain.lost)} lost to repairs" if chain.lost else ""
        say(f"chain: {proved}, {chain.linked} epochs linked from {chain.anchor} to {chain.last}{lost}")
    if first := report.first_damage:
        say(f"damaged: {first.path} at byte {first.offset}: {first.what}")
        if first.path.startswith(report.directory):
            say(f"  hint: `warren log repair --dry-run {report.directory}` says what can be saved")
        else:
            say("  hint: the next start sets the store aside and builds it again, if the log has everything")
    else:
        say(f"good: everything up to epoch {report.durable} is as it was written")
