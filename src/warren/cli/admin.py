"""`warren compact --data-dir D`: ask the store that runs in D to compact itself, and show what came of it.

D/ctrl/start_compaction    made here; the store deletes it when it begins
D/ctrl/compaction_result   written by the store when it is done

D is the log directory or the data directory of a broker or database, whose log is D/log. Nothing is merged there: the
reflection is brought to now, the log is rotated, and files that nothing holds are purged.

`warren reflection status|pause|resume|persist DIR`: how far what is durable has come into the safe snapshot store.

The orders go through the control socket of the directory, to the process that has the database open or, in mode
`watch`, to its puller. If neither runs there is nothing to order: opening the database reflects everything.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.log_fix import show_compaction
from warren.cli.output import AsJson, DataDirectory, WhichEngine, print_json, print_line
from warren.config.compaction_engine import CompactionSettings, Engine, is_for_spark

if TYPE_CHECKING:
    from warren.files.environment import Environment


DAMAGE = 16


def compact(
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="D", help="The data directory of the running process.")
    ] = None,
    store_dir: Annotated[
        str | None, typer.Option("--store-dir", metavar="S", help="The directory of the store, if it is another.")
    ] = None,
    no_data_dir: Annotated[
        bool, typer.Option("--no-data-dir", help="The process has no data directory: --store-dir must be given.")
    ] = False,
    as_json: AsJson = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Longest to wait for the result, seconds.")
    ] = 600,
    engine: WhichEngine = Engine.AUTO,
) -> None:
    """Start a compaction in the running store and print its result. Above a size Spark does the work."""
    from warren.config.options import store_directory
    from warren.files.environment import Environment
    from warren.log.compaction.control import request_compaction
    from warren.snapshot.database import log_directory

    environment = Environment.real()
    directory = log_directory(environment.files, store_directory(data_dir, store_dir, no_data_dir))
    _bring_reflection_to_now(environment, directory, timeout)
    if is_for_spark(CompactionSettings(engine), directory):
        from warren.cli.pipeline import on_spark

        found = on_spark(directory)
    else:
        found = request_compaction(environment, directory, {}, timeout)
    if as_json:
        print_json(found)
    elif found["status"] == "ok":
        show_compaction(found)
    if found["status"] != "ok":
        raise typer.Exit(_complain(found))


def _bring_reflection_to_now(environment: Environment, directory: str, timeout: float) -> None:
    """What stays goes to the safe snapshot store of a database, if the log belongs to one: then the log can go."""
    from warren.files.protocol import join
    from warren.snapshot.database import REFLECTION_SOCKET, data_directory, is_database
    from warren.workers.control_socket import NotListening, call

    home = data_directory(environment.files, directory)
    if is_database(environment.files, home):
        with suppress(NotListening):  # stopped, or its reflection is off: the request below says so
            call(join(home, REFLECTION_SOCKET), {"command": "persist"}, timeout)


def _complain(found: dict[str, Any]) -> int:
    hint = f"\n  hint: {found['hint']}" if found.get("hint") else ""
    typer.echo(f"warren: the compaction failed: {found.get('error')}{hint}", err=True)
    return DAMAGE


STATUS_SECONDS = 30.0

reflection = typer.Typer(
    name="reflection", help="Look at and order the reflection of a running database.", no_args_is_help=True
)
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Longest to wait for the answer, in seconds.")]


@reflection.command("status")
def status(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = STATUS_SECONDS) -> None:
    """How far log and store are, who reflects, whether it is paused, what is wrong."""
    told = _order(directory, "status", timeout)
    if as_json:
        print_json(told)
        return
    paused = ", paused" if told["is_paused"] else ""
    print_line(f"reflection {told['mode']} by process {told['pid']}{paused}")
    durable, applied, flushed = told["durable"], told["applied"]["epoch"], told["flushed"]["epoch"]
    print_line(f"durable up to epoch {durable}, applied up to {applied}, flushed up to {flushed}")
    if told["failure"] is not None:
        print_line(f"it stands still: {told['failure']['error']}")
        print_line(f"  hint: {told['failure']['hint']}")


@reflection.command("pause")
def pause(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = STATUS_SECONDS) -> None:
    """Leave everything in the log until `resume`: the store stands still, the log grows."""
    _tell(_order(directory, "pause", timeout), as_json, "paused")


@reflection.command("resume")
def resume(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = STATUS_SECONDS) -> None:
    """Go on after `pause`."""
    _tell(_order(directory, "resume", timeout), as_json, "goes on")


@reflection.command("persist")
def persist(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = 600.0) -> None:
    """Bring everything that is durable into the store, and the store to the disk; also while it is paused."""
    told = _order(directory, "persist", timeout)
    _tell(told, as_json, f"flushed up to epoch {told['flushed']['epoch']}")


def _order(directory: str, command: str, timeout: float) -> dict[str, Any]:
    from warren.base.errors import Refused
    from warren.files.local import LocalFiles
    from warren.files.protocol import join
    from warren.snapshot.database import LOG, REFLECTION_SOCKET
    from warren.workers.control_socket import NotListening, call

    if not LocalFiles().exists(join(directory, LOG)):
        raise Refused(
            f"{directory} is no directory of a database: it has no {LOG}", "name what `warren.open` was given"
        )
    try:
        return call(join(directory, REFLECTION_SOCKET), {"command": command}, timeout)
    except NotListening as error:
        hint = "open it first: reflection runs only while a process has the database open"
        raise Refused(f"nobody reflects {directory}: {error.what}", hint) from error


def _tell(told: dict[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(told)
    else:
        print_line(f"reflection: {sentence}")
