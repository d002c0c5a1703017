"""`warren reflection status|pause|resume|persist DIR`: how far what is durable has come into the safe snapshot store.

The orders go through the control socket of the directory, to the process that has the database open or, in mode
`watch`, to its puller. If neither runs there is nothing to order: opening the database reflects everything.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from warren.cli.output import AsJson, DataDirectory, say, say_json

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
        say_json(told)
        return
    paused = ", paused" if told["is_paused"] else ""
    say(f"reflection {told['mode']} by process {told['pid']}{paused}")
    durable, applied, flushed = told["durable"], told["applied"]["epoch"], told["flushed"]["epoch"]
    say(f"durable up to epoch {durable}, applied up to {applied}, flushed up to {flushed}")
    if told["failure"] is not None:
        say(f"it stands still: {told['failure']['error']}")
        say(f"  hint: {told['failure']['hint']}")


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
    from warren.snapshot.control_socket import NotListening, call
    from warren.snapshot.layout import LOG, REFLECTION_SOCKET

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
        say_json(told)
    else:
        say(f"reflection: {sentence}")
