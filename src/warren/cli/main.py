"""`warren`: which commands there are, and how each of them ends.

    0   good                        16   damage was found, or something could not be repaired
    1   the disk failed or is full  64   wrong usage: an unknown option, no such directory, a directory in use

An error of ours is a sentence and a hint on stderr, never a traceback; a traceback means that Warren has a fault. A
command imports what it needs when it runs, so that `warren --help` stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from warren.base.errors import Damage, DiskFailure, InternalError, OutOfRoom, WarrenError
from warren.cli import (
    bench,
    compact,
    demo,
    log_compact,
    log_dump,
    log_follow,
    log_inspect,
    log_repair,
    log_verify,
    pipeline_compact,
    pipeline_export,
    pipeline_snapshot,
    pipeline_sync,
    pipeline_verify,
    serve,
)
from warren.cli.pipeline import pipeline
from warren.cli.reflection import reflection

GOOD = 0
DISK = 1
DAMAGE = 16
USAGE = 64
TYPERS_USAGE = 2

app = typer.Typer(
    name="warren",
    help="A durable message broker on a log-structured store.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
log = typer.Typer(name="log", help="Look at, check, repair and compact a log directory.", no_args_is_help=True)
app.add_typer(log)
log.command("inspect")(log_inspect.inspect)
log.command("verify")(log_verify.verify)
log.command("repair")(log_repair.repair)
log.command("compact")(log_compact.compact)
log.command("dump")(log_dump.dump)
log.command("follow")(log_follow.follow)
app.command("compact")(compact.compact)
app.command("serve")(serve.serve)
app.command("demo")(demo.demo)
app.add_typer(bench.bench)
app.add_typer(reflection)
app.add_typer(pipeline)
pipeline.command("compact")(pipeline_compact.compact)
pipeline.command("verify")(pipeline_verify.verify)
pipeline.command("snapshot")(pipeline_snapshot.snapshot)
pipeline.command("export")(pipeline_export.export)
pipeline.command("sync")(pipeline_sync.sync)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; its exit code."""
    try:
        app(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else GOOD if ended.code is None else DISK
        return USAGE if code == TYPERS_USAGE else code
    except WarrenError as error:
        sys.stderr.write(f"warren: {error}\n")
        return exit_code(error)
    return GOOD


def exit_code(error: WarrenError) -> int:
    if isinstance(error, Damage):
        return DAMAGE
    return DISK if isinstance(error, DiskFailure | OutOfRoom | InternalError) else USAGE


if __name__ == "__main__":
    sys.exit(main())
