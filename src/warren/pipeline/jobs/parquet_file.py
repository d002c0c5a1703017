"""A task's rows as one Parquet file, written where the task runs: no row of it passes the JVM or the driver.

    driver      task_of(task, folder, number)     plain data
    executors   write_rows(told)                  reads its part of the log as the source does, writes, syncs, answers

The file has a name of the attempt's own. Spark may run a task twice, and an attempt that is given up may still write:
the driver takes only the files that the answers name. Row groups are large enough to be worth reading one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warren.base.ids import Epoch
from warren.files.protocol import Files, join
from warren.files.system_errors import translated
from warren.log.store import Environment
from warren.pipeline.jobs.running import Told, attempt_name
from warren.pipeline.jobs.tables import TablePart
from warren.pipeline.planning import Task
from warren.pipeline.schema import COLUMNS, SelectedColumn, TableView
from warren.pipeline.tasks import run

GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
_TYPES = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string()}


def usual_fields(view: TableView) -> list[SelectedColumn]:
    return [SelectedColumn(column.name, column.types[0]) for column in COLUMNS[view] if column.is_usual]


def table_schema(view: TableView) -> Any:
    """The Arrow schema of a table that shows this view."""
    return pa.schema([(field.name, _TYPES[field.type]) for field in usual_fields(view)])


def task_of(task: Task, folder: str, number: int) -> Told:
    return {"task": task.to_json(), "folder": folder, "number": number}


def write_rows(told: Told) -> Told:
    """What a Spark task does."""
    task, machine = Task.from_json(told["task"]), Environment.real()
    name = attempt_name(f"part-{told['number']:05d}") + ".parquet"
    batches = run(task, usual_fields(task.view), table_schema(task.view), machine)
    return write_file(machine.files, told["folder"], name, task.view, batches).to_json()


def write_file(files: Files, folder: str, name: str, view: TableView, batches: Iterable[Any]) -> TablePart:
    """A Parquet file of these batches; its bytes are synced, its name not."""
    path, epochs = join(folder, name), _Epochs()
    with (
        translated("write", path),
        pa.OSFile(path, "wb") as sink,
        pq.ParquetWriter(sink, table_schema(view), compression="zstd") as writer,
    ):
        for group in _groups(epochs.seen_in(batches)):
            writer.write_table(pa.Table.from_batches(group))
    file = files.open(path, writable=True)
    try:
        file.sync()
        return TablePart(name, epochs.rows, file.size(), epochs.first, epochs.last)
    finally:
        file.close()


class _Epochs:
    """How many rows went by, and of which epochs."""

    def __init__(self) -> None:
        self.rows = 0
        self.first: Epoch | None = None
        self.last: Epoch | None = None

    def seen_in(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                told = pc.min_max(batch.column("epoch")).as_py()
                self.first = told["min"] if self.first is None else min(self.first, told["min"])
                self.last = told["max"] if self.last is None else max(self.last, told["max"])
                self.rows += batch.num_rows
            yield batch


def _groups(batches: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Batches that make up a row group together."""
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
