"""Stores on the real disk for the jobs that make tables, and tables read as their users would.

poured(stage, folder)         the memory disk's store, on the real disk: tasks run in processes of their own
inline(monkeypatch, module)   the job's tasks done by this process, so that a test can be quick or count steps
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.log.upkeep_stage import DIRECTORY, Stage
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.files.protocol import Files
from warren.log.store import LogStore
from warren.pipeline.jobs.spark_tasks import TaskData, Work
from warren.testing.memory_files import MemoryFiles

Key = tuple[int, bytes, bytes, tuple[int, int]]
Entry = tuple[int, int, str, int, bytes, bytes]


def poured(stage: Stage, folder: Path) -> str:
    """The store of a stage, copied file by file."""
    _pour(stage.disk, DIRECTORY, folder)
    return str(folder)


def _pour(disk: MemoryFiles, path: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in disk.list(path):
        inner = f"{path}/{name}"
        if disk.stat(inner).is_directory:
            _pour(disk, inner, folder / name)
        else:
            (folder / name).write_bytes(disk.contents(inner))


def machine_with(files: Files) -> Environment:
    real = Environment.real()
    return Environment(files, real.clock, real.threads, real.rng)


def inline(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, before: Callable[[], object] = lambda: None
) -> list[int]:
    """Let a job's tasks be done here, `before` them something else; returns a list that grows by each job's tasks."""
    done: list[int] = []

    def run(session: Any, work: Work, tasks: list[TaskData], *_: Any) -> list[TaskData]:
        before()
        done.append(len(tasks))
        return [json.loads(json.dumps(work(json.loads(json.dumps(task))))) for task in tasks]

    monkeypatch.setattr(module, "run_tasks", run)
    return done


def state_of(store: LogStore) -> list[Key]:
    return [(row.storage, row.key, row.value, row.version) for row in store.refresh().cursor()]


def state_in(table: pa.Table) -> list[Key]:
    rows = table.to_pylist()
    return sorted((row["storage"], row["key"], row["value"], (row["major"], row["minor"])) for row in rows)


def entries_in(table: pa.Table) -> list[Entry]:
    names = ("epoch", "minor", "kind", "storage", "key", "value")
    rows = table.to_pylist()
    assert len({row["lsn"] for row in rows}) == len(rows), "an entry is shown once"
    return sorted(tuple(row[name] for name in names) for row in rows)


def parquet_snapshot(target: str | Path) -> pa.Table:
    return pq.read_table(str(target))


def parquet_export(target: str | Path) -> pa.Table:
    batches = sorted(Path(target).glob("batch-*"))
    return pa.concat_tables([pq.read_table(str(batch)) for batch in batches])


def delta(target: str | Path) -> pa.Table:
    return DeltaTable(str(target)).to_pyarrow_table()


def manifest_in(folder: str | Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(Path(folder, "_MANIFEST.json").read_text(encoding="utf-8"))
    return manifest


def leftovers(target: str | Path) -> list[str]:
    """What jobs have left behind in a target or beside it."""
    place = Path(target)
    return [path.name for path in (*place.parent.iterdir(), *place.glob("*")) if "staging-" in path.name]


def pins_in(directory: str) -> list[str]:
    return LocalFiles().list(f"{directory}/pins")
