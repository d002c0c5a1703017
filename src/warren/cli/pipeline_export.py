"""`warren pipeline export DIR TARGET`: the raw log as a table that grows, each durable entry in it exactly once."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.output import AsJson, Credentials, Directory, say, say_json, size
from warren.cli.pipeline import LOCAL, Master, PinSeconds, Remote, Target
from warren.pipeline.jobs.tables import TableFormat

if TYPE_CHECKING:
    from warren.pipeline.jobs.export import Export, Exported
    from warren.pipeline.jobs.tables import TableBatch

LOOK_SECONDS = 0.1


def export(
    directory: Directory,
    target: Target,
    format: Annotated[TableFormat, typer.Option("--format", help="What kind of table.")] = TableFormat.DELTA,
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
        bool, typer.Option("--follow/--once", help="Go on until SIGTERM or SIGINT, or end when it has caught up.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.0, metavar="S", help="With --follow: seconds between two looks.")
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

    source, place = str(Path(directory).absolute()), str(Path(target).absolute())  # executors stand elsewhere
    with session_for_command(master, remote) as session:
        from warren.pipeline.jobs.export import ExportOptions, opened_export

        first = None if from_epoch is None else Epoch(from_epoch)
        options = ExportOptions(source, place, format, first, batch_epochs, batch_bytes, pin_seconds, credentials)
        with opened_export(session, options) as opened:
            done = _follow(opened, interval, as_json) if follow else _once(opened)
    if as_json:
        say_json({"directory": source, "target": place, "format": format, **export_as_object(done)})
    else:
        _show_export(place, done)


def _once(opened: Export) -> Exported:
    from warren.cli.progress import Bar

    with Bar("exporting", opened.epochs_left(), "epochs") as bar:
        return opened.catch_up(on_batch=lambda batch: bar.step(batch.last - batch.first + 1))


def _follow(opened: Export, interval: float, as_json: bool) -> Exported:
    """Catch up again and again. A signal ends it behind the batch under way; a second one, at once."""
    with _Signals() as ended:
        return _catch_up(opened, interval, as_json, ended)


def _catch_up(opened: Export, interval: float, as_json: bool, ended: _Signals) -> Exported:
    def tell(batch: TableBatch) -> None:
        if not as_json:
            say(f"epochs {batch.first} … {batch.last}: {batch.rows} entries")

    done = opened.catch_up(ended.is_over, tell)
    while not ended.within(interval):
        done = done.and_then(opened.catch_up(ended.is_over, tell))
    return done


class _Signals:
    """Whether somebody wants us to end. A handler may run between any two steps of ours, so it takes no lock."""

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
        """Wait so long, or until it is over."""
        until = time.monotonic() + seconds
        while not self._is_over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
        return self._is_over


def export_as_object(done: Exported) -> dict[str, Any]:
    there = done.position.to_json() if done.position else {"timeline": None, "epoch": None}
    return {**there, "batches": done.batches, "rows": done.rows, "bytes": done.size_bytes, "files": done.files}


def _show_export(target: str, done: Exported) -> None:
    if done.position is None:
        say(f"{target}: nothing is durable yet")
    else:
        added = f"{done.rows} entries in {done.batches} batches, {size(done.size_bytes)}"
        say(f"{target} stands at epoch {done.position.epoch}: {added}")
