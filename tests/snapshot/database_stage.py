"""A database on a memory disk, with a store that forgets what was not flushed, for tests that cut the power."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.left_open import remembered
from tests.log.upkeep_stage import QUIET
from tools.simulator.volatile_store import VolatileStore, VolatileTables
from warren.base.ids import TimelineId
from warren.base.threads import SystemThreads, Threads
from warren.files.environment import Environment
from warren.files.protocol import Files
from warren.log.settings import EntryKind
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.store import ReadView, SnapshotStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import CrashModel, MemoryFiles

DIRECTORY = "db"
State = dict[tuple[int, bytes], bytes]
TINY = ReflectionSettings(
    lag_seconds=0.0, step_bytes=400, chunk_bytes=200, buffer_bytes=2000, flush_seconds=1e6, bulk_bytes=0
)


class DatabaseStage:
    """A machine: disk, clock, and the safe snapshot store, which is no file of the memory disk."""

    def __init__(self, mode: Mode = Mode.NOTIFY, seed: int = 1, **reflection: Any) -> None:
        self.disk = MemoryFiles()
        self.clock = ManualClock()
        self.rng = SeededRandom(seed)
        self.log_settings = replace(QUIET, channel_count=2, container_bytes=512 << 10)
        self.reflection = replace(TINY, reflection=mode, **reflection)
        self.store: VolatileStore | None = None

    def environment(self, files: Files | None = None, threads: Threads | None = None) -> Environment:
        return Environment(files or self.disk, self.clock, threads or SystemThreads(), self.rng)

    def open(self, files: Files | None = None, threads: Threads | None = None) -> Database:
        environment = self.environment(files, threads)
        tables = VolatileTables(environment.files, self._present_store)
        opened = Database.open(
            DIRECTORY, self._open_store, self.log_settings, self.reflection, environment, tables=tables
        )
        return opened if threads is not None else remembered(opened)

    def crash(self, model: CrashModel, seed: int) -> None:
        """The power goes: the disk keeps what it must, the store what it flushed, or a little more."""
        self.disk = self.disk.crash(model, SeededRandom(seed))
        if self.store is not None:
            self.store = self.store.crash(SeededRandom(seed))

    def _present_store(self) -> VolatileStore:
        assert self.store is not None, "a table is made for a store"
        return self.store

    def _open_store(self, path: str, timeline: TimelineId) -> SnapshotStore:
        self.store = self.store.reopened(timeline) if self.store else VolatileStore(timeline)
        return self.store


def rows(database: Database) -> State:
    """As of now."""
    return _rows_of(database.view_now())


def safe_rows(database: Database) -> State:
    """As of the safe snapshot version, when the store has taken everything that it may."""
    database.catch_up()
    return _rows_of(database.view())


def _rows_of(view: ReadView) -> State:
    found: State = {}
    for batch in view.batches():
        kinds, storages = batch.kinds.array().tolist(), batch.storages.array().tolist()
        for kind, storage, key, value in zip(
            kinds, storages, batch.keys.to_list(), batch.values.to_list(), strict=True
        ):
            if kind == EntryKind.PUT:
                found[storage, key] = value
    view.close()
    return found


def put(database: Database, pairs: dict[bytes, bytes], storage: int = 1, channel: int = 0) -> int:
    session = database.begin(channel)
    for key, value in pairs.items():
        session.put(storage, key, value)
    return session.commit()
