"""`warren compact --data-dir D`: ask the store that runs in D to compact itself, and show what came of it.

D/ctrl/start_compaction    made here; the store deletes it when it begins
D/ctrl/compaction_result   written by the store when it is done

D is the log directory or the data directory of a broker or database, whose log is D/log. Nothing is merged there: the
reflection is brought to now, the log is rotated, and files that nothing holds are purged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.app.compaction_engine import CompactionSettings, Engine, is_for_spark
from warren.cli.log_compact import show_compaction
from warren.cli.output import AsJson, WhichEngine, say_json

if TYPE_CHECKING:
    from warren.log.machine import Environment

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
    from warren.app.directories import store_directory
    from warren.log.requests import request_compaction
    from warren.log.store import Environment
    from warren.snapshot.layout import log_directory

    machine = Environment.real()
    directory = log_directory(machine.files, store_directory(data_dir, store_dir, no_data_dir))
    _bring_reflection_to_now(machine, directory, timeout)
    if is_for_spark(CompactionSettings(engine), directory):
        from warren.cli.pipeline_compact import on_spark

        found = on_spark(directory)
    else:
        found = request_compaction(machine, directory, {}, timeout)
    if as_json:
        say_json(found)
    elif found["status"] == "ok":
        show_compaction(found)
    if found["status"] != "ok":
        raise typer.Exit(_complain(found))


def _bring_reflection_to_now(machine: Environment, directory: str, timeout: float) -> None:
    """What stays goes to the safe snapshot store of a database, if the log belongs to one: then the log can go."""
    from warren.files.protocol import join
    from warren.snapshot.control_socket import NotListening, call
    from warren.snapshot.layout import REFLECTION_SOCKET, data_directory, is_database

    home = data_directory(machine.files, directory)
    if is_database(machine.files, home):
        with suppress(NotListening):  # stopped, or its reflection is off: the request below says so
            call(join(home, REFLECTION_SOCKET), {"command": "persist"}, timeout)


def _complain(found: dict[str, Any]) -> int:
    hint = f"\n  hint: {found['hint']}" if found.get("hint") else ""
    typer.echo(f"warren: the compaction failed: {found.get('error')}{hint}", err=True)
    return DAMAGE
