"""Output of commands: one JSON object with `--json`, else lines and tables; progress; shared arguments.

Progress goes to stderr (stdout is for data): a bar on a terminal, elsewhere a line every five seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from warren.config.compaction_engine import Engine


def _log_of(directory: str) -> str:
    from warren.files.local import LocalFiles
    from warren.snapshot.database import log_directory

    return log_directory(LocalFiles(), directory)


def _data_of(directory: str) -> str:
    from warren.files.local import LocalFiles
    from warren.snapshot.database import data_directory

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
Credentials = Annotated[bool, typer.Option("--credentials", help="Include the password hashes of users.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")]
ThreadNum = Annotated[int, typer.Option("--thread-num", min=1, max=64, help="Files scanned at once.")]
WhichEngine = Annotated[
    Engine,
    typer.Option("--engine", envvar="WARREN_COMPACTION_ENGINE", help="Engine of the merge: this machine, or Spark."),
]

WIDTH_OF_PIPE = 160

console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_PIPE)


def print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_line(line: str = "") -> None:
    console.print(line, markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; its last column has any width."""
    grid = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    console.print(grid)


def size(count: int) -> str:
    """Bytes with a unit: `1.5 MiB`."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


LINE_SECONDS = 5.0


class Bar:
    """`with Bar("checking", 12, "files") as bar: bar.step()`. Steps may come from several threads."""

    def __init__(self, what: str, total: float | None, unit: str = "") -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._printed_at = time.monotonic()
        self._rich: Progress | None = None

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._rich = Progress(*columns, console=Console(stderr=True), transient=True)
            self._rich.start()
            self._task = self._rich.add_task(f"{self._what} {self._unit}".strip(), total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    def step(self, count: float = 1) -> None:
        self.reach(self._done + count)

    def reach(self, done: float, total: float | None = None) -> None:
        """Set the finished part of the total; and the total, if it was not known or has changed."""
        self._done = done
        self._total = self._total if total is None else total
        if self._rich is not None:
            self._rich.update(self._task, completed=done, total=self._total)
        elif time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._printed_at = time.monotonic()
            of_total = "" if self._total is None else f"of {self._total:g} "
            sys.stderr.write(f"{self._what}: {done:g} {of_total}{self._unit}\n")
