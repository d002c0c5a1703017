"""A database with a history, what must be in its store at the end, and an owner of it that can be killed.

    python -m tests.pipeline.sync_stage DIR MODE SEED SESSIONS     writes the history, says `ready`, ends with its input

The store is read without its log: opening the database would bring in what is missing.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warren.base.ids import Epoch
from warren.embedded.database import Warren, open_embedded
from warren.files.local import LocalFiles
from warren.log.manifest import read_manifest
from warren.log.settings import EntryKind, LogSettings
from warren.snapshot.database import LOG, STORE, TABLES, Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.tables.tasks import RangeSizes

SMALL = RangeSizes(workers=2, entries_max=400, entries_worth_a_task=1)  # every task is one of Spark's
BY_DRIVER = RangeSizes(workers=2, entries_worth_a_task=1 << 40)  # none is
STORAGES = 3
State = dict[tuple[int, bytes], bytes]


def opened(home: Path, mode: Mode = Mode.SPARK, **reflection: Any) -> Warren:
    log = LogSettings(
        channel_count=2,
        compaction_poll_seconds=3600,
        compaction_garbage_ratio=0.0,
        retention_seconds=0,
        retention_bytes=0,
    )
    return open_embedded(str(home), log, ReflectionSettings(reflection=mode, lag_seconds=0.0, **reflection))


def write(database: Database, model: State, seed: int, sessions: int = 40) -> None:
    """Keys of 1 … 60 bytes in three storages, overwritten and removed, clears, two channels, several files."""
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.randrange(1, 60)) for _ in range(400)] + [b"\0", b"\0\0", b"\xff" * 9]
    for number in range(sessions):
        session = database.begin(number % 2)
        if number % 11 == 10:
            storage = rng.randrange(1, STORAGES + 1)
            session.clear_storage(storage)
            for gone in [each for each in model if each[0] == storage]:
                del model[gone]
        for _ in range(50):
            storage, key = rng.randrange(1, STORAGES + 1), rng.choice(keys)
            if rng.random() < 0.2:
                session.remove(storage, key)
                model.pop((storage, key), None)
            else:
                model[storage, key] = rng.randbytes(rng.randrange(60))
                session.put(storage, key, model[storage, key])
        session.commit()
        if number % 9 == 8:
            database.log.rotate()


def written(home: Path, seed: int = 1, sessions: int = 40) -> State:
    """A directory with a history of which the store has nothing, stopped."""
    model: State = {}
    with opened(home, Mode.OFF) as warren:
        write(warren.database, model, seed, sessions)
    return model


def held_by(store: Any) -> State:
    """Content of a store without its log."""
    view, found = store.view(), State()
    for batch in view.batches():
        columns = (batch.kinds.array().tolist(), batch.storages.array().tolist())
        rows = zip(*columns, batch.keys.to_list(), batch.values.to_list(), strict=True)
        found.update({(storage, key): value for kind, storage, key, value in rows if kind == EntryKind.PUT})
    view.close()
    return {key: value for key, value in found.items() if 1 <= key[0] <= STORAGES}


def stopped_store(home: Path) -> tuple[State, Epoch]:
    """What the store of a stopped directory holds, and its mark."""
    timeline = read_manifest(LocalFiles(), str(home / LOG)).timeline.id
    store = RocksDbStore.open(str(home / STORE), timeline)
    try:
        return held_by(store), store.applied.epoch
    finally:
        store.close()


def tables(home: Path) -> list[str]:
    return os.listdir(home / TABLES)


class Owner:
    """A process that owns a directory."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.communicate(timeout=150)
        assert self._process.returncode == 0


@contextmanager
def owned(home: Path, mode: Mode, seed: int = 1, sessions: int = 40) -> Iterator[Owner]:
    """A process that owns the directory, as soon as it has written its history."""
    words = [str(home), str(mode), str(seed), str(sessions)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.sync_stage", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Owner(process)
        finally:
            process.kill()


def main() -> None:
    with opened(Path(sys.argv[1]), Mode(sys.argv[2])) as warren:
        write(warren.database, {}, int(sys.argv[3]), int(sys.argv[4]))
        os.write(1, b"ready\n")
        sys.stdin.read()


if __name__ == "__main__":
    main()
