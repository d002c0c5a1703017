"""One run of a benchmark: its size, its directory, and its progress report.

A scenario is a generator of figures. It takes directories from the run, reports its row and progress, and yields
figures in order. The caller may stop it after the last wanted row; its directories are emptied either way.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.bench.measurement import Figure, Measurement
from warren.base.errors import Refused

Figures = Generator[Figure, None, None]  # what a scenario yields
ROOM_BYTES_PER_ENTRY = 800  # log, snapshot, staged output and references of the largest scenario


class Watcher(Protocol):
    """Receives progress."""

    def began(self, row: str) -> None: ...

    def reached(self, share: float) -> None: ...

    def measured(self, measurement: Measurement) -> None: ...


@dataclass(frozen=True, slots=True)
class BenchRun:
    home: Path  # a directory of our own, on the disk to be measured
    entries: int
    watcher: Watcher

    @contextmanager
    def room(self) -> Iterator[Path]:
        """An empty directory, gone afterwards. What others left to be written is written first."""
        gc.collect()
        os.sync()
        path = Path(tempfile.mkdtemp(dir=self.home))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def began(self, row: str) -> None:
        self.watcher.began(row)

    def reached(self, share: float) -> None:
        self.watcher.reached(share)


@contextmanager
def run_in(
    directory: Path,
    entries: int,
    watcher: Watcher,
    bytes_per_entry: int = ROOM_BYTES_PER_ENTRY,
    what: str = "entries",
) -> Iterator[BenchRun]:
    """A run below a directory; everything it writes is removed at its end."""
    if not directory.is_dir():
        raise Refused(f"{directory} is no directory", "name one on the disk that you want to measure")
    free, needed = shutil.disk_usage(directory).free, entries * bytes_per_entry
    if free < needed:
        hint = f"measure with fewer --{what}, or another --directory"
        raise Refused(f"{entries} {what} need {needed >> 20} MiB, {directory} has {free >> 20} MiB left", hint)
    with tempfile.TemporaryDirectory(prefix="warren-bench-", dir=directory) as home:
        yield BenchRun(Path(home), entries, watcher)
