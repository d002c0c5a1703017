"""`warren`: the commands and their exit codes.

    0   good                        16   damage was found, or something could not be repaired
    1   the disk failed or is full  64   wrong usage: an unknown option, no such directory, a directory in use
        (doctor: a problem was found)      (ctl has the codes of rabbitmqctl)
                                    69   move: a broker was not there

A `WarrenError` is a sentence and a hint on stderr, never a traceback; a traceback is a defect of Warren. A command
imports its modules when it runs, so that `warren --help` stays quick.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence

import typer

from warren import __version__
from warren.base.build import mode
from warren.base.errors import Damage, DiskFailure, InternalError, OutOfRoom, WarrenError
from warren.cli import admin, demo, log_fix, log_show, move, pipeline, serve, status
from warren.cli.bench import add_bench

GOOD = 0
DISK = 1
DAMAGE = 16
USAGE = 64
TYPERS_USAGE = 2

app = typer.Typer(
    name="warren",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"warren {__version__} ({mode()}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def warren(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print version and build mode."
    ),
) -> None:
    """A durable message broker on a log-structured store.

    \b
    Examples:
      warren serve --data-dir /var/lib/warren
      warren log verify /var/lib/warren
      warren COMMAND --help
    """


log = typer.Typer(name="log", help="Inspect, verify, repair and compact a log directory.", no_args_is_help=True)
app.add_typer(log)
log.command("inspect")(log_show.inspect)
log.command("verify")(log_fix.verify)
log.command("repair")(log_fix.repair)
log.command("compact")(log_fix.compact)
log.command("dump")(log_show.dump)
log.command("follow")(log_show.follow)
app.command("compact")(admin.compact)
app.command("serve")(serve.serve)
app.command("demo")(demo.demo)
app.command("move")(move.move)
app.command("status")(status.status)
app.command("doctor")(status.doctor)
ctl_settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
app.command("ctl", context_settings=ctl_settings)(status.ctl)
add_bench(app)
app.add_typer(admin.reflection)
app.add_typer(pipeline.pipeline)
pipeline.pipeline.command("compact")(pipeline.compact)
pipeline.pipeline.command("verify")(pipeline.verify)
pipeline.pipeline.command("snapshot")(pipeline.snapshot)
pipeline.pipeline.command("export")(pipeline.export)
pipeline.pipeline.command("sync")(pipeline.sync)


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
