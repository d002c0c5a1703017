"""A large backlog goes into the store as a table that another process made: the real ones, on a real disk."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.log.merge_model import columns_of
from tests.snapshot.snapshot_store_suite import put
from tests.snapshot.test_database import until
from warren.base.errors import Damage, DiskFailure, Gone
from warren.base.ids import Epoch, TimelineId
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.log.merge.external import KeyRange
from warren.log.settings import LogSettings
from warren.snapshot.database import LOG, TABLES, Database
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import MINOR_MAX, Applied, SnapshotStore
from warren.snapshot.tables.bulk import ProcessTables
from warren.snapshot.tables.tasks import TableResult, TableTask, make_table

SETTINGS = ReflectionSettings(lag_seconds=0.0, bulk_bytes=20_000, step_bytes=60_000, retry_seconds=0.05)
State = dict[bytes, bytes]


class CountingTables(ProcessTables):
    def __init__(self) -> None:
        super().__init__()
        self.results: list[TableResult] = []

    def make(self, task: TableTask) -> Sequence[TableResult]:
        results = super().make(task)
        self.results += results
        return results


@pytest.fixture
def tables() -> Iterator[CountingTables]:
    counting = CountingTables()
    yield counting
    counting.rest()


def opened(
    home: Path, tables: ProcessTables, settings: ReflectionSettings = SETTINGS, rotate_bytes: int = 1 << 20
) -> Database:
    environment = Environment.real()

    def open_store(path: str, timeline: TimelineId) -> SnapshotStore:
        return RocksDbStore.open(path, timeline, threads=environment.threads)

    log = LogSettings(rotate_bytes=rotate_bytes, retention_seconds=0, retention_bytes=0, compaction_poll_seconds=3600)
    return Database.open(str(home), open_store, log, settings, environment, tables=tables)


def write(database: Database, model: State, rng: random.Random, sessions: int) -> None:
    """Sessions of puts, removes and now and then a clear, each far below what makes a backlog."""
    for _ in range(sessions):
        session = database.begin()
        if rng.random() < 0.05:
            session.clear_storage(1)
            model.clear()
        keys = [b"%04d" % rng.randrange(1500) for _ in range(40)]
        values = [rng.randbytes(rng.randrange(60)) for _ in keys]
        session.put_many(1, keys, values)
        model.update(zip(keys, values, strict=True))
        gone = [b"%04d" % rng.randrange(1500) for _ in range(15)]
        session.remove_many(1, gone)
        for key in gone:
            model.pop(key, None)
        session.end()


def rows(database: Database) -> State:
    database.settle()
    view = database.view()
    try:
        return {row.key: row.value for row in view.range(1)}
    finally:
        view.close()


def test_tables_and_batches_bring_the_store_to_one_state(tmp_path: Path, tables: CountingTables) -> None:
    """X-04: whichever way a stretch of the log goes, and in whatever order the ways follow one another."""
    rng, model = random.Random(5), State()
    for life in range(3):
        with opened(tmp_path, tables) as database:
            assert rows(database) == model
            for _ in range(4):
                assert database.reflection is not None
                database.reflection.pause()
                write(database, model, rng, 60)
                database.log.flush()
                database.reflection.resume()
                assert rows(database) == model
                write(database, model, rng, 1)
                assert rows(database) == model, f"life {life}"
            assert database.store.applied.epoch == database.log.durable
    assert len(tables.results) >= 12
    assert sum(result.figures.removes for result in tables.results) > 0
    assert any(result.figures.cleared for result in tables.results)
    assert os.listdir(tmp_path / TABLES) == []


def test_the_log_goes_behind_a_table_at_once(tmp_path: Path, tables: CountingTables) -> None:
    """X-03, C-15: a table is on disk when it was ingested, without waiting for a flush."""
    with opened(tmp_path, tables) as database:
        assert database.reflection is not None
        database.reflection.pause()
        write(database, {}, random.Random(1), 100)
        database.log.flush()
        assert database.log.manifest.state.reflected == 0
        database.reflection.resume()
        database.catch_up()
        assert tables.results
        assert database.log.manifest.state.reflected >= database.log.durable - 5


def test_a_store_that_is_lost_is_built_again_by_tables(tmp_path: Path, tables: CountingTables) -> None:
    model = State()
    keep_log = ReflectionSettings(lag_seconds=0.0, bulk_bytes=20_000, step_bytes=60_000, flush_seconds=3600)
    with opened(tmp_path, tables, keep_log) as database:
        write(database, model, random.Random(2), 200)
        assert rows(database) == model
    (tmp_path / "store").rename(tmp_path / "lost")
    tables.results.clear()
    with opened(tmp_path, tables, keep_log) as database:
        assert rows(database) == model
        assert len(tables.results) >= 3
        assert database.problems


def test_a_worker_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path, tables: CountingTables) -> None:
    rng, model = random.Random(3), State()
    with opened(tmp_path, tables) as database:
        for _ in range(5):
            assert database.reflection is not None
            database.reflection.pause()
            write(database, model, rng, 60)
            database.log.flush()
            if tables.pid is not None:
                os.kill(tables.pid, signal.SIGKILL)
            database.reflection.resume()
            with suppress(DiskFailure):  # the reflection's own thread may have met it first
                database.catch_up()
            assert rows(database) == model


def test_versions_that_do_not_follow_the_epochs_are_left_to_batches(tmp_path: Path, tables: CountingTables) -> None:
    """VO-03: nothing above the safe version comes with a table."""
    with opened(tmp_path, tables) as database:
        assert database.reflection is not None
        database.reflection.pause()
        write(database, {}, random.Random(4), 60)
        session = database.begin()
        session.put(1, b"later", b"1", version=(1 << 40, 0))
        session.commit()
        database.reflection.resume()
        database.catch_up()
        view = database.view()
        assert view.get(1, b"later") is None
        view.close()
        database.reflection.advance((1 << 40, 0))
        assert rows(database)[b"later"] == b"1"


def test_a_task_says_what_it_cannot_read(tmp_path: Path, tables: CountingTables) -> None:
    with opened(tmp_path, tables, ReflectionSettings(lag_seconds=0.0, bulk_bytes=0)) as database:
        write(database, {}, random.Random(6), 300)
        database.log.rotate()
        write(database, {}, random.Random(7), 10)
        database.log.flush()
        durable, log = database.log.durable, str(tmp_path / LOG)
        task = TableTask(log, str(tmp_path / "t.table"), Epoch(0), durable)
        assert tables.make(task)[0].entries_in > 10_000
        sealed = next(record for record in database.log.manifest.state.files.values() if record.end)
        with open(tmp_path / LOG / sealed.name, "r+b") as file:
            file.seek(sealed.end // 2)
            file.write(b"damaged")
        with pytest.raises(Damage, match=sealed.name):
            tables.make(task)
        database.catch_up()
        assert database.reflection is not None
        database.reflection.flush()
        database.log.purge()
        with pytest.raises(Gone, match="epoch 1 is gone"):
            tables.make(task)


def test_tables_of_key_ranges_hold_together_what_one_table_holds(tmp_path: Path, tables: CountingTables) -> None:
    with opened(tmp_path, tables, ReflectionSettings(lag_seconds=0.0, bulk_bytes=0)) as database:
        write(database, {}, random.Random(8), 50)
        database.log.flush()
        whole = TableTask(str(tmp_path / LOG), str(tmp_path / "0.table"), Epoch(0), database.log.durable)
        edges = [None, (1, b"0400"), (1, b"1100"), None]
        results = [make_table(LocalFiles(), whole)]
        for number, (low, high) in enumerate(pairwise(edges)):
            path = str(tmp_path / f"{number + 1}.table")
            part = TableTask(whole.directory, path, whole.after, whole.up_to, (), (), KeyRange(low, high), 0.3)
            assert TableTask.from_json(part.to_json()) == part
            results.append(make_table(LocalFiles(), part))
        one, parts = results[0].figures, [each.figures for each in results[1:]]
        assert sum(part.puts for part in parts) == one.puts > 0
        assert sum(part.removes for part in parts) == one.removes > 0
        assert max(part.newest for part in parts) == one.newest
        assert all(part.puts for part in parts)


def test_a_log_whose_content_is_in_the_store_is_rotated_early_and_goes(tmp_path: Path, tables: CountingTables) -> None:
    """X-03: what was overwritten again and again takes no more disk than twice what is there, and two containers."""
    settings = ReflectionSettings(lag_seconds=0.0, flush_seconds=0.05)
    with opened(tmp_path, tables, settings, rotate_bytes=64 << 20) as database:
        for number in range(60):
            session = database.begin()
            session.put_many(1, [b"%03d" % row for row in range(400)], [b"%08d" % number * 12] * 400)
            session.commit()
            database.settle()  # whatever the reflection's own thread has come to
            assert database.reflection is not None
            database.reflection.flush()
        assert database.log.rotation.rotations > 0
        database.log.purge()
        written = sum(file.stat().st_size for file in (tmp_path / LOG).iterdir() if file.is_file())
        assert written < 60 * 400 * 100, "less than was written"


def test_an_idle_store_is_tidied(tmp_path: Path, tables: CountingTables) -> None:
    store = RocksDbStore.open(str(tmp_path / "store"), TimelineId(7), SnapshotStoreSettings(write_buffer_bytes=1 << 16))
    rng = random.Random(9)
    try:
        for number in range(1, 4):
            entries = [put((number, row), b"%05d" % row, rng.randbytes(600)) for row in range(500)]
            store.apply([columns_of(entries)], Applied(TimelineId(7), Epoch(number), (number, MINOR_MAX)))
            store.flush()
        before = _bytes_of(tmp_path / "store")
        store.tidy()
        assert _bytes_of(tmp_path / "store") < before / 2
        store.tidy()
    finally:
        store.close()


def _bytes_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.sst"))


def test_what_a_start_has_replayed_is_flushed_without_further_writes(tmp_path: Path, tables: CountingTables) -> None:
    """X-03: else each start would replay the same again, and the log behind it would stay."""
    slow = ReflectionSettings(lag_seconds=0.0, bulk_bytes=0, flush_seconds=3600.0)
    database = opened(tmp_path, tables, slow)
    write(database, {}, random.Random(10), 20)
    database.settle()
    durable = database.log.durable
    database.abandon()
    database.store.close()
    (tmp_path / "store").rename(tmp_path / "lost")
    with opened(tmp_path, tables, replace(SETTINGS, flush_seconds=0.05)) as database:
        assert database.store.applied.epoch == durable
        until(lambda: database.log.manifest.state.reflected == durable)


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.SPARK, Mode.OFF])
def test_no_worker_is_left_behind_by_a_start(tmp_path: Path, tables: CountingTables, mode: Mode) -> None:
    with opened(tmp_path, tables, replace(SETTINGS, reflection=Mode.OFF)) as database:
        write(database, {}, random.Random(11), 60)
    tables.results.clear()
    with opened(tmp_path, tables, replace(SETTINGS, reflection=mode)):
        assert tables.results, "a worker was needed"
        assert tables.pid is None, "and has ended"
