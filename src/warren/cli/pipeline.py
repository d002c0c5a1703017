"""`warren pipeline …`: jobs on a log directory that run on Spark, on this machine or on a cluster.

    warren pipeline verify DIR                                 all cores of this machine
    warren pipeline verify DIR --master spark://host:7077      a cluster, which has the wheel on every node
    warren pipeline verify DIR --remote sc://host              Spark Connect

    compact DIR             compact a log directory, whether a process runs in it or not
    export DIR TARGET       the raw log as a growing table, with each durable entry exactly once
    snapshot DIR TARGET     the state of a store, as of an epoch or a time, as Parquet or Delta
    sync DIR                reflect what is durable into the safe snapshot store, by tables made on Spark
    verify DIR              as `warren log verify DIR`; exit 0 if good, 16 if damaged

Without Spark each command prints how to install it. Output of Spark goes to stderr: a few lines at its start, and
errors.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.log_fix import show_compaction
from warren.cli.output import AsJson, Credentials, DataDirectory, Directory, print_json, print_line, size
from warren.pipeline.schema import TableFormat

if TYPE_CHECKING:
    from warren.pipeline.jobs.export import Export, Exported
    from warren.pipeline.jobs.snapshot import SnapshotMade
    from warren.pipeline.jobs.sync import Result
    from warren.pipeline.jobs.tables import TableBatch


pipeline = typer.Typer(name="pipeline", help="Jobs on a log directory that run on Spark.", no_args_is_help=True)

Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[N] or spark://host:7077.")
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host.", show_default=False)
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="The directory of the table.", show_default=False)]
PinSeconds = Annotated[
    int,
    typer.Option("--pin-seconds", min=0, metavar="S", help="Lifetime of the pin without renewal; 0: no pin."),
]

LOCAL = "local[*]"


def compact(directory: Directory, as_json: AsJson = False, master: Master = LOCAL, remote: Remote = None) -> None:
    """Merge the rotated files and the compacted files into new ones by key range, with Spark's tasks."""
    result = on_spark(directory, master, remote)
    if as_json:
        print_json(result)
    else:
        show_compaction(result)


def on_spark(directory: str, master: str = LOCAL, remote: str | None = None) -> dict[str, Any]:
    """Compact with a new Spark session; also used by `--engine spark`."""
    from warren.cli.output import Bar
    from warren.files.local import LocalFiles
    from warren.log.read.read_only import open_for_reading
    from warren.pipeline.session import require_pyspark, session_for_command

    require_pyspark()
    directory = os.path.abspath(directory)  # executors have other working directories
    open_for_reading(LocalFiles(), directory)  # refuses what is no log directory before Spark starts
    with session_for_command(master, remote) as session:
        from warren.pipeline.jobs.compact import compact as run

        with Bar("compacting", 1.0) as bar:
            return run(session, directory, bar.reach)


POLL_SECONDS = 0.1


def export(
    directory: Directory,
    target: Target,
    format: Annotated[TableFormat, typer.Option("--format", help="Format of the table.")] = TableFormat.DELTA,
    from_epoch: Annotated[
        int | None, typer.Option("--from-epoch", min=1, metavar="E", help="Where a new table begins.")
    ] = None,
    batch_epochs: Annotated[
        int, typer.Option("--batch-epochs", min=0, metavar="N", help="Most epochs of one commit; 0: no limit.")
    ] = 0,
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", min=0, metavar="B", help="Bytes of the log in one commit; 0: no limit.")
    ] = 1 << 30,
    follow: Annotated[
        bool,
        typer.Option("--follow/--once", help="Continue until SIGTERM or SIGINT, or end when the table is up to date."),
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.0, metavar="S", help="With --follow: seconds between two polls.")
    ] = 5.0,
    credentials: Credentials = False,
    pin_seconds: PinSeconds = 3600,
    master: Master = LOCAL,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Append what became durable since the last run to a table, on Spark."""
    from warren.base.ids import Epoch
    from warren.pipeline.session import session_for_command

    source, place = (
        str(Path(directory).absolute()),
        str(Path(target).absolute()),
    )  # executors have other working directories
    with session_for_command(master, remote) as session:
        from warren.pipeline.jobs.export import ExportOptions, opened_export

        first = None if from_epoch is None else Epoch(from_epoch)
        options = ExportOptions(source, place, format, first, batch_epochs, batch_bytes, pin_seconds, credentials)
        with opened_export(session, options) as opened:
            done = _follow(opened, interval, as_json) if follow else _once(opened)
    if as_json:
        print_json({"directory": source, "target": place, "format": format, **export_as_object(done)})
    else:
        _show_export(place, done)


def _once(opened: Export) -> Exported:
    from warren.cli.output import Bar

    with Bar("exporting", opened.epochs_left(), "epochs") as bar:
        return opened.catch_up(on_batch=lambda batch: bar.step(batch.last - batch.first + 1))


def _follow(opened: Export, interval: float, as_json: bool) -> Exported:
    """Export repeatedly. A signal ends it after the current batch; a second one at once."""
    with _Signals() as ended:
        return _catch_up(opened, interval, as_json, ended)


def _catch_up(opened: Export, interval: float, as_json: bool, ended: _Signals) -> Exported:
    def show_batch(batch: TableBatch) -> None:
        if not as_json:
            print_line(f"epochs {batch.first} … {batch.last}: {batch.rows} entries")

    done = opened.catch_up(ended.is_over, show_batch)
    while not ended.within(interval):
        done = done.and_then(opened.catch_up(ended.is_over, show_batch))
    return done


class _Signals:
    """Whether a signal has arrived. A handler may run between any two steps, so it takes no lock."""

    def __init__(self) -> None:
        self._is_over = False
        self._before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGINT)}

    def __enter__(self) -> _Signals:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, frame: object) -> None:
        self._is_over = True
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)

    def is_over(self) -> bool:
        return self._is_over

    def within(self, seconds: float) -> bool:
        """Wait for this time, or until a signal; whether there was one."""
        until = time.monotonic() + seconds
        while not self._is_over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
        return self._is_over


def export_as_object(done: Exported) -> dict[str, Any]:
    there = done.position.to_json() if done.position else {"timeline": None, "epoch": None}
    return {**there, "batches": done.batches, "rows": done.rows, "bytes": done.size_bytes, "files": done.files}


def _show_export(target: str, done: Exported) -> None:
    if done.position is None:
        print_line(f"{target}: nothing is durable yet")
    else:
        added = f"{done.rows} entries in {done.batches} batches, {size(done.size_bytes)}"
        print_line(f"{target} is at epoch {done.position.epoch}: {added}")


def snapshot(
    directory: Directory,
    target: Target,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="EPOCH|TIME", help="Last epoch included, or a time in ISO 8601."),
    ] = None,
    format: Annotated[TableFormat, typer.Option("--format", help="Format of the table.")] = TableFormat.PARQUET,
    buckets: Annotated[
        int, typer.Option("--buckets", min=0, metavar="N", help="Tasks that the keys are partitioned into; 0: by size.")
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the Parquet snapshot that TARGET has.")
    ] = False,
    credentials: Credentials = False,
    pin_seconds: PinSeconds = 3600,
    master: Master = LOCAL,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Write the newest value of every key as a table, on Spark."""
    from warren.cli.output import Bar
    from warren.pipeline.session import session_for_command

    source, place = (
        str(Path(directory).absolute()),
        str(Path(target).absolute()),
    )  # executors have other working directories
    with session_for_command(master, remote) as session, Bar("snapshot", 100, "%") as bar:
        from warren.pipeline.jobs.snapshot import snapshot as make

        options = (as_of, format, buckets, overwrite, pin_seconds)
        result = make(
            session, source, place, *options, lambda share: bar.reach(round(share * 100)), credentials=credentials
        )
    if as_json:
        print_json({"directory": source, "target": place, "format": format, **snapshot_as_object(result)})
    else:
        _show_snapshot(place, result)


def snapshot_as_object(result: SnapshotMade) -> dict[str, Any]:
    return {
        **result.position.to_json(),
        "is_new": result.is_new,
        "rows": result.rows,
        "bytes": result.size_bytes,
        "files": result.files,
    }


def _show_snapshot(target: str, result: SnapshotMade) -> None:
    if result.is_new:
        in_files = f"{result.files} file" + "s" * (result.files > 1)
        print_line(
            f"{target}: {result.rows} keys as of epoch {result.position.epoch}, {size(result.size_bytes)} in {in_files}"
        )
    else:
        print_line(f"{target} already shows epoch {result.position.epoch}: nothing to do")


def sync(
    directory: DataDirectory,
    as_json: AsJson = False,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Repeat whenever the log has grown, until SIGTERM or SIGINT.")
    ] = False,
    master: Master = LOCAL,
    remote: Remote = None,
) -> None:
    """Make tables of unreflected entries with Spark tasks; the owner of the directory ingests them."""
    from warren.files.local import LocalFiles
    from warren.log.read.read_only import open_for_reading
    from warren.pipeline.session import require_pyspark, session_for_command
    from warren.snapshot.database import LOG

    require_pyspark()
    home = os.path.abspath(directory)  # executors have other working directories
    open_for_reading(LocalFiles(), os.path.join(home, LOG))  # refuses what is no database before Spark starts
    with session_for_command(master, remote) as session:
        from warren.pipeline.jobs.sync import Sync

        if follow:
            from warren.cli.log_show import until_signalled

            with until_signalled() as ended:
                Sync(session, home).follow(ended, _print_json_line if as_json else _show_sync)
        else:
            from warren.cli.output import Bar

            with Bar("making tables", 1.0) as bar:
                done = Sync(session, home, bar.reach).once()
            print_json(done) if as_json else _show_sync(done)


def _print_json_line(done: Result) -> None:
    sys.stdout.write(json.dumps(done) + "\n")
    sys.stdout.flush()


def _show_sync(done: Result) -> None:
    what = f"{done['entries']} entries in {done['tables']} tables, {size(done['bytes'])}, {done['seconds']:.1f} s"
    print_line(f"the store is at epoch {done['epoch']}: {what}")
    if done["unfit"]:
        print_line(f"{done['unfit']} ranges were not made into tables: the owner applied them entry by entry")
    if done["epoch"] < done["durable"]:
        print_line(f"the rest, up to epoch {done['durable']}, waits until its versions are safe")
    sys.stdout.flush()


def verify(directory: Directory, master: Master = LOCAL, remote: Remote = None, as_json: AsJson = False) -> None:
    """Check every byte of a log directory and prove the chain of epochs complete, on Spark. Changes nothing."""
    from warren.cli.log_fix import DAMAGE, add_store, as_object, show
    from warren.cli.output import Bar
    from warren.pipeline.session import session_for_command

    place = str(Path(directory).absolute())  # executors have other working directories
    with session_for_command(master, remote) as session, Bar("checking", 100, "%") as bar:
        from warren.pipeline.jobs.verify import verify as check

        report = check(session, place, lambda share: bar.reach(round(share * 100)))
    add_store(report)
    if as_json:
        print_json(as_object(report))
    else:
        show(report)
    if not report.is_good:
        raise typer.Exit(DAMAGE)
