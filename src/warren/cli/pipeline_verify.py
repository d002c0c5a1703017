"""`warren pipeline verify DIR`: as `warren log verify DIR`, its files checked by Spark. Exit 0 if good, 16 if not."""

from __future__ import annotations

from pathlib import Path

import typer

from warren.cli.output import AsJson, Directory, say_json
from warren.cli.pipeline import LOCAL, Master, Remote


def verify(directory: Directory, master: Master = LOCAL, remote: Remote = None, as_json: AsJson = False) -> None:
    """Check every byte of a log directory and prove the chain of epochs complete, on Spark. Changes nothing."""
    from warren.cli.log_verify import DAMAGE, add_store, as_object, show
    from warren.cli.progress import Bar
    from warren.pipeline.session import session_for_command

    place = str(Path(directory).absolute())  # executors stand elsewhere
    with session_for_command(master, remote) as session, Bar("checking", 100, "%") as bar:
        from warren.pipeline.jobs.verify import verify as check

        report = check(session, place, lambda share: bar.reach(round(share * 100)))
    add_store(report)
    if as_json:
        say_json(as_object(report))
    else:
        show(report)
    if not report.is_good:
        raise typer.Exit(DAMAGE)
