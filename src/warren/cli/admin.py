"""Commands to a running process: compaction and reflection.

`warren compact --data-dir D` requests a compaction of the store that runs in D and prints its result:

    D/ctrl/start_compaction    created here; the store deletes it when it starts
    D/ctrl/compaction_result   written by the store when it is done

D is the log directory, or the data directory of a broker or database, whose log is D/log. Nothing is merged in a
database: reflection is brought up to date, the log is rotated, and files that nothing needs are purged.

`warren reflection status|pause|resume|persist DIR` controls the reflection of the log into the safe snapshot store. The
commands go through the control socket of the directory, to the process that has the database open or, in mode `watch`,
to its puller. Without such a process they are refused: opening the database reflects everything.
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
    """Start a compaction in the running store and print its result. Large ones run on Spark (--engine)."""
    from warren.config.options import store_directory
    from warren.files.environment import Environment
    from warren.log.compaction.control import request_compaction
    from warren.snapshot.database import log_directory

    environment = Environment.real()
    directory = log_directory(environment.files, store_directory(data_dir, store_dir, no_data_dir))
    _persist_reflection(environment, directory, timeout)
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
        raise typer.Exit(_print_failure(found))


def _persist_reflection(environment: Environment, directory: str, timeout: float) -> None:
    """If the log belongs to a database, flush its snapshot store: then the log behind it can be purged."""
    from warren.files.protocol import join
    from warren.snapshot.database import REFLECTION_SOCKET, data_directory, is_database
    from warren.workers.control_socket import NotListening, call

    home = data_directory(environment.files, directory)
    if is_database(environment.files, home):
        with suppress(NotListening):  # stopped, or reflection is off: the request below reports it
            call(join(home, REFLECTION_SOCKET), {"command": "persist"}, timeout)


def _print_failure(found: dict[str, Any]) -> int:
    hint = f"\n  hint: {found['hint']}" if found.get("hint") else ""
    typer.echo(f"warren: the compaction failed: {found.get('error')}{hint}", err=True)
    return DAMAGE


STATUS_SECONDS = 30.0

reflection = typer.Typer(
    name="reflection", help="Status and control of the reflection of a running database.", no_args_is_help=True
)
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Longest to wait for the answer, in seconds.")]


@reflection.command("status")
def status(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = STATUS_SECONDS) -> None:
    """Show the epochs of log and store, the reflecting process, whether it is paused, and its error."""
    answer = _send(directory, "status", timeout)
    if as_json:
        print_json(answer)
        return
    paused = ", paused" if answer["is_paused"] else ""
    print_line(f"reflection {answer['mode']} by process {answer['pid']}{paused}")
    durable, applied, flushed = answer["durable"], answer["applied"]["epoch"], answer["flushed"]["epoch"]
    print_line(f"durable up to epoch {durable}, applied up to {applied}, flushed up to {flushed}")
    if answer["failure"] is not None:
        print_line(f"stopped by an error: {answer['failure']['error']}")
        print_line(f"  hint: {answer['failure']['hint']}")


@reflection.command("pause")
def pause(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = STATUS_SECONDS) -> None:
    """Stop applying entries to the store until `resume`; the log grows."""
    _show_answer(_send(directory, "pause", timeout), as_json, "paused")


@reflection.command("resume")
def resume(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = STATUS_SECONDS) -> None:
    """Continue after `pause`."""
    _show_answer(_send(directory, "resume", timeout), as_json, "resumed")


@reflection.command("persist")
def persist(directory: DataDirectory, as_json: AsJson = False, timeout: Timeout = 600.0) -> None:
    """Apply everything durable to the store and flush it; also while paused."""
    answer = _send(directory, "persist", timeout)
    _show_answer(answer, as_json, f"flushed up to epoch {answer['flushed']['epoch']}")


def _send(directory: str, command: str, timeout: float) -> dict[str, Any]:
    from warren.base.errors import Refused
    from warren.files.local import LocalFiles
    from warren.files.protocol import join
    from warren.snapshot.database import LOG, REFLECTION_SOCKET
    from warren.workers.control_socket import NotListening, call

    if not LocalFiles().exists(join(directory, LOG)):
        raise Refused(
            f"{directory} is no directory of a database: it has no {LOG}", "name the directory given to `warren.open`"
        )
    try:
        return call(join(directory, REFLECTION_SOCKET), {"command": command}, timeout)
    except NotListening as error:
        hint = "open it first: reflection runs only while a process has the database open"
        raise Refused(f"no process reflects {directory}: {error.what}", hint) from error


def _show_answer(answer: dict[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(answer)
    else:
        print_line(f"reflection: {sentence}")
