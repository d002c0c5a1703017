"""How far it has come: a bar on a terminal, elsewhere a line every five seconds; on stderr: stdout is for data."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_SECONDS = 5.0


class Bar:
    """`with Bar("checking", 12, "files") as bar: bar.step()`. Steps may come from several threads."""

    def __init__(self, what: str, total: float, unit: str = "") -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._said_at = time.monotonic()
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

    def reach(self, done: float) -> None:
        """So much of the total is done."""
        self._done = done
        if self._rich is not None:
            self._rich.update(self._task, completed=done)
        elif time.monotonic() - self._said_at >= LINE_SECONDS:
            self._said_at = time.monotonic()
            sys.stderr.write(f"{self._what}: {done:g} of {self._total:g} {self._unit}\n")
