"""`warren compact --data-dir D`: ask the store that runs in D to compact itself, and show what came of it.

D/ctrl/start_compaction    made here; the store deletes it when it begins
D/ctrl/compaction_result   written by the store when it is done
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from warren.cli.log_compact import show
from warren.cli.output import AsJson, say_json

DAMAGE = 16
POLL_SECONDS = 0.05


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
) -> None:
    """Start a compaction in the running store and print its result."""
    from warren.app.directories import store_directory
    from warren.base.errors import Refused
    from warren.log.control import RESULT, START
    from warren.log.layout import CTRL, MANIFEST

    directory = Path(store_directory(data_dir, store_dir, no_data_dir))
    if not (directory / MANIFEST).exists():
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    start, result = directory / CTRL / START, directory / CTRL / RESULT
    before = _read(result)
    start.parent.mkdir(exist_ok=True)
    start.touch()
    found = _await(start, result, before, timeout)
    if as_json:
        say_json(found)
    elif found["status"] == "ok":
        show(found)
    if found["status"] != "ok":
        raise typer.Exit(_complain(found))


def _await(start: Path, result: Path, before: dict[str, Any] | None, timeout: float) -> dict[str, Any]:
    from warren.base.errors import Refused

    deadline = time.monotonic() + timeout
    while True:
        found = _read(result)
        if found is not None and found != before:
            return found
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    if start.exists():
        start.unlink()
        hint = "start it, or compact the stopped directory with `warren log compact`"
        raise Refused(f"nobody took up the request within {timeout:g} s: is a store running there?", hint)
    raise Refused(f"the compaction was not done within {timeout:g} s", f"its result will be in {result}")


def _read(result: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return told


def _complain(found: dict[str, Any]) -> int:
    hint = f"\n  hint: {found['hint']}" if found.get("hint") else ""
    typer.echo(f"warren: the compaction failed: {found.get('error')}{hint}", err=True)
    return DAMAGE
