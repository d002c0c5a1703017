"""`warren pipeline snapshot DIR TARGET`: the state of a store, as of an epoch or a time, as Parquet or Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.output import AsJson, Credentials, Directory, say, say_json, size
from warren.cli.pipeline import LOCAL, Master, PinSeconds, Remote, Target
from warren.pipeline.jobs.tables import TableFormat

if TYPE_CHECKING:
    from warren.pipeline.jobs.snapshot import SnapshotMade


def snapshot(
    directory: Directory,
    target: Target,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="EPOCH|TIME", help="The last epoch that counts, or a time in ISO 8601."),
    ] = None,
    format: Annotated[TableFormat, typer.Option("--format", help="What kind of table.")] = TableFormat.PARQUET,
    buckets: Annotated[
        int, typer.Option("--buckets", min=0, metavar="N", help="Tasks the keys are dealt to; 0: by size.")
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
    from warren.cli.progress import Bar
    from warren.pipeline.session import session_for_command

    source, place = str(Path(directory).absolute()), str(Path(target).absolute())  # executors stand elsewhere
    with session_for_command(master, remote) as session, Bar("snapshot", 100, "%") as bar:
        from warren.pipeline.jobs.snapshot import snapshot as make

        options = (as_of, format, buckets, overwrite, pin_seconds)
        made = make(
            session, source, place, *options, lambda share: bar.reach(round(share * 100)), credentials=credentials
        )
    if as_json:
        say_json({"directory": source, "target": place, "format": format, **snapshot_as_object(made)})
    else:
        _show_snapshot(place, made)


def snapshot_as_object(made: SnapshotMade) -> dict[str, Any]:
    return {
        **made.position.to_json(),
        "is_new": made.is_new,
        "rows": made.rows,
        "bytes": made.size_bytes,
        "files": made.files,
    }


def _show_snapshot(target: str, made: SnapshotMade) -> None:
    if made.is_new:
        in_files = f"{made.files} file" + "s" * (made.files > 1)
        say(f"{target}: {made.rows} keys as of epoch {made.position.epoch}, {size(made.size_bytes)} in {in_files}")
    else:
        say(f"{target} shows epoch {made.position.epoch} already: nothing to do")
