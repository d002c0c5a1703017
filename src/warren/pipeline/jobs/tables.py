"""Tables that snapshots and exports write: positions and parts, Parquet files written by tasks, the staging directory.

    Position      how far a table has come: a timeline, and its last epoch in the table
    TablePart     one Parquet file, as described by the task that wrote it
    TableBatch    the content of one commit: parts, their epochs, the timeline they were read from

A task writes its rows as one Parquet file where it runs; no row passes the JVM or the driver:

    driver      task_of(task, folder, number)     plain data
    executors   write_rows(data)                  reads its part of the log like the source, writes, syncs, answers

The file has a name of the attempt: Spark may run a task twice, and an abandoned attempt may still write. The driver
takes only files named in answers. Row groups are large enough to be read one by one.

Files are staged until a commit makes them visible:

    <prefix>-<id>/lock           locked while the job runs
    <prefix>-<id>/attempts/      tasks write here, each attempt under its own name
    <prefix>-<id>/whole/         the committed files under their final names: the commit renames this directory

An abandoned attempt may write after the job is done, but never to `whole`, so committed files do not change. The next
job removes the directory of a job that died: its lock is free.

Invariant: `whole` is complete and synced, names included, before a commit begins.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warren.base.errors import Misuse, Refused, WarrenError
from warren.base.ids import Epoch, TimelineId
from warren.durability.timeline import Timeline
from warren.files.environment import Environment
from warren.files.local import this_process, translated
from warren.files.protocol import Files, base_name, join, parent
from warren.log.compaction.jobs import clear_staging
from warren.pipeline.jobs.spark_tasks import TaskData, attempt_name
from warren.pipeline.planning import Task
from warren.pipeline.schema import COLUMNS, SelectedColumn, TableView
from warren.pipeline.tasks import run

MANIFEST = "_MANIFEST.json"  # Spark and Delta ignore names that begin with an underscore
LOCK = "_lock"
STAGING = "_staging"
DELTA_LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class Position:
    timeline: TimelineId
    epoch: Epoch

    def to_json(self) -> dict[str, Any]:
        return {"timeline": f"{self.timeline:016x}", "epoch": self.epoch}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Position:
        return cls(TimelineId(int(raw["timeline"], 16)), Epoch(int(raw["epoch"])))

    def is_of(self, timeline: Timeline) -> bool:
        """True if this position is on the timeline or one of its ancestors."""
        return self.timeline in (timeline.id, *(ancestor.timeline for ancestor in timeline.ancestry))


@dataclass(frozen=True, slots=True)
class TablePart:
    name: str
    rows: int
    size_bytes: int
    first_epoch: Epoch | None = None  # None: no rows
    last_epoch: Epoch | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> TablePart:
        return cls(raw["name"], raw["rows"], raw["bytes"], raw["first_epoch"], raw["last_epoch"])


@dataclass(frozen=True, slots=True)
class TableBatch:
    timeline: TimelineId
    first: Epoch
    last: Epoch
    parts: tuple[TablePart, ...] = ()

    @property
    def position(self) -> Position:
        return Position(self.timeline, self.last)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


def check_paths(directory: str, target: str) -> None:
    """Refuse relative paths, and a target inside the log directory."""
    for path in (directory, target):
        if not os.path.isabs(path):
            raise Misuse(f"'{path}' is no absolute path", "every node must find it under the same name")
    if os.path.commonpath([os.path.normpath(directory), os.path.normpath(target)]) == os.path.normpath(directory):
        raise Misuse(f"{target} lies in the log directory", "choose a target outside of it")


def names_in(files: Files, target: str) -> list[str]:
    """The names in a directory; none if it does not exist yet."""
    if not files.exists(target):
        return []
    if not files.stat(target).is_directory:
        raise Refused(f"{target} is a file", "name a directory, or a path that does not exist yet")
    return files.list(target)


def not_ours(target: str, names: Sequence[str], what: str) -> Refused:
    return Refused(f"{target} is no {what} of warren: it has {names[0]}", "name an empty directory, or a new one")


GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
_TYPES = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}


def usual_fields(view: TableView) -> list[SelectedColumn]:
    return [SelectedColumn(column.name, column.types[0]) for column in COLUMNS[view] if column.is_usual]


def table_schema(view: TableView) -> Any:
    """The Arrow schema of a table of this view."""
    return pa.schema([(field.name, _TYPES[field.type]) for field in usual_fields(view)])


def task_of(task: Task, folder: str, number: int) -> TaskData:
    return {"task": task.to_json(), "folder": folder, "number": number}


def write_rows(data: TaskData) -> TaskData:
    """Body of a Spark task."""
    task, environment = Task.from_json(data["task"]), Environment.real()
    name = attempt_name(f"part-{data['number']:05d}") + ".parquet"
    batches = run(task, usual_fields(task.view), table_schema(task.view), environment)
    return write_file(environment.files, data["folder"], name, task.view, batches).to_json()


def write_file(files: Files, folder: str, name: str, view: TableView, batches: Iterable[Any]) -> TablePart:
    """A Parquet file of these batches; its bytes are synced, its name not."""
    path, epochs = join(folder, name), _Epochs()
    with (
        translated("write", path),
        pa.OSFile(path, "wb") as sink,
        pq.ParquetWriter(sink, table_schema(view), compression="zstd") as writer,
    ):
        for group in _groups(epochs.counted(batches)):
            writer.write_table(pa.Table.from_batches(group))
    file = files.open(path, writable=True)
    try:
        file.sync()
        return TablePart(name, epochs.rows, file.size(), epochs.first, epochs.last)
    finally:
        file.close()


class _Epochs:
    """Counts rows and tracks their first and last epoch."""

    def __init__(self) -> None:
        self.rows = 0
        self.first: Epoch | None = None
        self.last: Epoch | None = None

    def counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                bounds = pc.min_max(batch.column("epoch")).as_py()
                self.first = bounds["min"] if self.first is None else min(self.first, bounds["min"])
                self.last = bounds["max"] if self.last is None else max(self.last, bounds["max"])
                self.rows += batch.num_rows
            yield batch


def _groups(batches: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Batches grouped into row groups."""
    waiting, rows, size_bytes = list[Any](), 0, 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= GROUP_ROWS or size_bytes >= GROUP_BYTES:
            yield waiting
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield waiting


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
        """Move the written parts to `whole`. There is always a file, so that a reader finds the columns."""
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
def staging(
    environment: Environment, prefix: str, rescue: Callable[[str], None] = lambda home: None
) -> Iterator[Staging]:
    """A staging directory for one job. Those of dead jobs are removed first, after `rescue` was called for each."""
    files = environment.files
    files.make_directories(parent(prefix))
    sweep(files, prefix, rescue)
    made = Staging(files, f"{prefix}-{environment.rng.id64():016x}")
    files.make_directories(made.home)
    lock = files.lock(join(made.home, _LOCK), this_process(environment.clock))
    try:
        files.make_directories(made.attempts)
        yield made
    finally:
        lock.release()
        _clear(files, made.home)


def sweep(files: Files, prefix: str, rescue: Callable[[str], None] = lambda home: None) -> None:
    """Remove the staging directories of jobs that died."""
    ours = re.compile(re.escape(base_name(prefix)) + "-[0-9a-f]{16}")
    for name in files.list(parent(prefix)):
        if ours.fullmatch(name):
            home = join(parent(prefix), name)
            try:
                lock = files.lock(join(home, _LOCK), "a job that clears up")
            except Refused:
                continue  # its job runs, or another job removes it
            rescue(home)
            lock.release()
            _clear(files, home)


def _clear(files: Files, home: str) -> None:
    """A directory that cannot be removed now, as an attempt still writes, is left to the next job."""
    try:
        clear_staging(files, home)
    except WarrenError as error:
        _log.warning("staging directory left behind: %s: %s", home, error.what)
