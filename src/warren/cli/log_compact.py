"""`warren log compact DIR`: compact a log directory that no store has open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.app.compaction_engine import CompactionSettings, Engine, is_for_spark
from warren.cli.output import AsJson, Directory, DryRun, ThreadNum, WhichEngine, say, say_json, size

if TYPE_CHECKING:
    from warren.log.reading import ReadOnlyLog


def compact(
    directory: Directory,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    thread_num: ThreadNum = 2,
    engine: WhichEngine = Engine.AUTO,
) -> None:
    """Merge the rotated files and the compacted file of a stopped log directory into one, then let go of free files."""
    from warren.files.local import LocalFiles
    from warren.log.reading import open_for_reading
    from warren.snapshot.layout import refuse_database

    log = open_for_reading(LocalFiles(), directory)
    refuse_database(LocalFiles(), directory)
    if dry_run:
        result = _planned(log)
    elif is_for_spark(CompactionSettings(engine), directory):
        from warren.cli.pipeline_compact import on_spark

        result = on_spark(directory)
    else:
        result = _compacted(directory, thread_num)
    if as_json:
        say_json(result)
    elif dry_run:
        files, amount = len(result["files"]), size(result["bytes"])
        say(f"would compact {files} files, {result['entries']} entries in {amount}; nothing was changed")
    else:
        show_compaction(result)


def show_compaction(result: dict[str, Any]) -> None:
    """The result of a compaction, online or offline, for people."""
    if message := result.get("message"):
        say(str(message))
    else:
        entries = f"{result['entries']} of {result['entries_in']} entries are left"
        say(f"compacted {result['compacted']} files into {result['file']}: {entries}, {size(result['bytes'])}")
    if purged := result.get("purged"):
        say(f"let go of {len(purged)} files, {size(result['freed_bytes'])}: {', '.join(purged)}")


def _planned(log: ReadOnlyLog) -> dict[str, Any]:
    """What a compaction would read. Active files are rotated first, so they count as well."""
    from warren.log.compaction_catalog import CompactionCatalog
    from warren.log.file_header import FileKind
    from warren.log.file_record import FileState

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
    from warren.cli.progress import Bar
    from warren.log.settings import LogSettings
    from warren.log.store import LogStore

    settings = LogSettings(scan_threads=thread_num, compaction_garbage_ratio=0.0)
    with LogStore.open(directory, settings) as store:
        with Bar("compacting", 1.0) as bar:
            result = store.compact(bar.reach)
        purged = store.purge()
    return {"status": "ok", **result, "purged": list(purged.files), "freed_bytes": purged.freed_bytes}
