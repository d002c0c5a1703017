"""`warren pipeline sync DIR`: bring what is durable into the safe snapshot store, by tables that Spark makes."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.output import AsJson, DataDirectory, say, say_json, size
from warren.cli.pipeline import LOCAL, Master, Remote

if TYPE_CHECKING:
    from warren.pipeline.jobs.sync import Result


def sync(
    directory: DataDirectory,
    as_json: AsJson = False,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on whenever the log has grown, until SIGTERM or SIGINT.")
    ] = False,
    master: Master = LOCAL,
    remote: Remote = None,
) -> None:
    """Make tables of what is not reflected yet with Spark's tasks; whoever owns the directory ingests them."""
    from warren.files.local import LocalFiles
    from warren.log.reading import open_for_reading
    from warren.pipeline.session import require_pyspark, session_for_command
    from warren.snapshot.layout import LOG

    require_pyspark()
    home = os.path.abspath(directory)  # executors have other working directories
    open_for_reading(LocalFiles(), os.path.join(home, LOG))  # what is no database is told before Spark is started
    with session_for_command(master, remote) as session:
        from warren.pipeline.jobs.sync import Sync

        if follow:
            from warren.cli.log_follow import asked_to_end

            with asked_to_end() as ended:
                Sync(session, home).follow(ended, _say_line if as_json else _show_sync)
        else:
            from warren.cli.progress import Bar

            with Bar("making tables", 1.0) as bar:
                done = Sync(session, home, bar.reach).once()
            say_json(done) if as_json else _show_sync(done)


def _say_line(done: Result) -> None:
    sys.stdout.write(json.dumps(done) + "\n")
    sys.stdout.flush()


def _show_sync(done: Result) -> None:
    what = f"{done['entries']} entries in {done['tables']} tables, {size(done['bytes'])}, {done['seconds']:.1f} s"
    say(f"the store stands at epoch {done['epoch']}: {what}")
    if done["unfit"]:
        say(f"{done['unfit']} stretches were not for tables: their owner applied them entry by entry")
    if done["epoch"] < done["durable"]:
        say(f"the rest, up to epoch {done['durable']}, waits for its versions to become safe")
    sys.stdout.flush()
