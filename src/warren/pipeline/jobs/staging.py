"""Where files of a table stand until a commit takes them: nobody reads them there, and nobody misses them.

    <prefix>-<id>/lock           held while the job lives
    <prefix>-<id>/attempts/      tasks write here, each attempt under a name of its own
    <prefix>-<id>/whole/         the files that count, under their last names: the commit renames this directory

An attempt that was given up may go on writing after the job is done. It never reaches `whole`, so what a commit made
visible stays as it is. A job that died leaves its directory behind; the next one sees that nobody holds the lock and
clears it away.

Always true: `whole` is complete and synced, names too, before a commit begins.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from warren.base.errors import Refused, WarrenError
from warren.files.lock import this_process
from warren.files.protocol import Files, base_name, join, parent
from warren.log.jobs import clear_staging
from warren.log.store import Environment
from warren.pipeline.jobs.parquet_file import write_file
from warren.pipeline.jobs.tables import TablePart
from warren.pipeline.schema import TableView

_LOCK = "lock"
_log = logging.getLogger("warren.pipeline")


class Staging:
    def __init__(self, files: Files, home: str) -> None:
        self.files = files
        self.home = home
        self.attempts = join(home, "attempts")
        self.whole = join(home, "whole")

    @property
    def id(self) -> str:
        return self.home.rpartition("-")[2]

    def gather(self, written: Sequence[TablePart], view: TableView) -> tuple[TablePart, ...]:
        """Bring together what counts. There is always a file, if only to tell a reader the columns."""
        files = self.files
        files.make_directories(self.whole)
        parts: list[TablePart] = []
        for part in written:
            if part.rows:
                name = f"part-{len(parts):05d}.parquet"
                files.rename(join(self.attempts, part.name), join(self.whole, name))
                parts.append(TablePart(name, part.rows, part.size_bytes, part.first_epoch, part.last_epoch))
        if not parts:
            parts.append(write_file(files, self.whole, "part-00000.parquet", view, ()))
        files.sync_directory(self.whole)
        return tuple(parts)


@contextmanager
def staging(machine: Environment, prefix: str, rescue: Callable[[str], None] = lambda home: None) -> Iterator[Staging]:
    """A place for one job. Dead ones' places are cleared first; `rescue` may take something out of each before."""
    files = machine.files
    files.make_directories(parent(prefix))
    sweep(files, prefix, rescue)
    made = Staging(files, f"{prefix}-{machine.chance.id64():016x}")
    files.make_directories(made.home)
    lock = files.lock(join(made.home, _LOCK), this_process(machine.clock))
    try:
        files.make_directories(made.attempts)
        yield made
    finally:
        lock.release()
        _clear(files, made.home)


def sweep(files: Files, prefix: str, rescue: Callable[[str], None] = lambda home: None) -> None:
    """Clear away the places of jobs that died."""
    ours = re.compile(re.escape(base_name(prefix)) + "-[0-9a-f]{16}")
    for name in files.list(parent(prefix)):
        if ours.fullmatch(name):
            home = join(parent(prefix), name)
            try:
                lock = files.lock(join(home, _LOCK), "a job that clears up")
            except Refused:
                continue  # it lives, or somebody else clears it away
            rescue(home)
            lock.release()
            _clear(files, home)


def _clear(files: Files, home: str) -> None:
    """What cannot be cleared now — an attempt still writes — is left to the next job."""
    try:
        clear_staging(files, home)
    except WarrenError as error:
        _log.warning("%s is left behind: %s", home, error.what)
