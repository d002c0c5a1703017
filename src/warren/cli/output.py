"""How commands say things: one JSON object for programs, tables and sentences for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from warren.app.compaction_engine import Engine


def _log_of(directory: str) -> str:
    from warren.files.local import LocalFiles
    from warren.snapshot.layout import log_directory

    return log_directory(LocalFiles(), directory)


def _data_of(directory: str) -> str:
    from warren.files.local import LocalFiles
    from warren.snapshot.layout import data_directory

    return data_directory(LocalFiles(), directory)


Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="The log directory, or the data directory it is in.", show_default=False, callback=_log_of
    ),
]
DataDirectory = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="The data directory of the database, or its log.", show_default=False, callback=_data_of
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Credentials = Annotated[bool, typer.Option("--credentials", help="With the password hashes of users.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
ThreadNum = Annotated[int, typer.Option("--thread-num", min=1, max=64, help="Files scanned at once.")]
WhichEngine = Annotated[
    Engine, typer.Option("--engine", envvar="WARREN_COMPACTION_ENGINE", help="Who merges: this machine, or Spark.")
]

WIDTH_OF_PIPE = 160

console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_PIPE)


def say_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def say(line: str = "") -> None:
    console.print(line, markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table, its last column as wide as it likes."""
    made = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    console.print(made)


def size(count: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
