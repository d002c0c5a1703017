"""Reading beside an owner at work, on the real disk: appends, rotations, compactions and purges never stop for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.pipeline.looking import arrow_schema, fields_of_view, struct_type
from warren.base.errors import Gone
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.pipeline.options import ReadOptions, text_of
from warren.pipeline.planning import Planner, Task
from warren.pipeline.schema import TableView
from warren.pipeline.source import WarrenStreamReader
from warren.pipeline.tasks import run

KEYS = 10
EPOCHS = 400
EPOCHS_PER_LOOK = 32  # so a reader looks at least a dozen times while the owner writes, however quick the disk is
PATIENT = LogSettings(channel_count=2, use_worker_process=False, compaction_garbage_ratio=0, retention_seconds=2.0)


@contextmanager
def owner_at_work(path: Path) -> Iterator[Callable[[], bool]]:
    """A store whose every epoch writes all keys, and which tidies up all the time; reports whether it still writes.

    A reader asks that before each of its looks, and the asking lets the owner write its next epochs beside it.
    """
    store = LogStore.open(str(path), PATIENT)
    ended, may_write = threading.Event(), threading.Semaphore(0)

    def write() -> None:
        for turn in range(EPOCHS):
            may_write.acquire()
            session = store.begin(turn % 2)
            for key in range(KEYS):
                session.put(1, b"key-%d" % key, b"%d" % turn)
            session.commit()
        store.witness()
        ended.set()

    def tidy() -> None:
        while not ended.wait(0.02):
            store.compact()
            store.purge()

    def is_writing() -> bool:
        may_write.release(EPOCHS_PER_LOOK)
        return not ended.is_set()

    threads = [threading.Thread(target=write), threading.Thread(target=tidy)]
    for thread in threads:
        thread.start()
    try:
        yield is_writing
    finally:
        may_write.release(EPOCHS)
        for thread in threads:
            thread.join()
        store.close()


def asked(path: Path, **options: Any) -> ReadOptions:
    return ReadOptions.of(text_of({"path": str(path), **options}))


@pytest.mark.slow
def test_a_stream_gets_every_epoch_once(tmp_path: Path) -> None:
    """X-06, X-11, RF-05, RF-06, RF-08: a reader that asks the directory over and over gets each durable epoch once."""
    stream = WarrenStreamReader(asked(tmp_path), struct_type(fields_of_view(TableView.ENTRIES, "epoch", "key")))
    seen: list[int] = []
    with owner_at_work(tmp_path) as is_writing:
        at, is_last = stream.initialOffset(), False
        while not is_last:
            is_last = not is_writing()
            end = stream.latestOffset(at, ReadAllAvailable())
            batches = [batch for part in stream.partitions(at, end) for batch in stream.read(part)]
            seen += [epoch for batch in batches for epoch in batch.column("epoch").to_pylist()]
            at = end
        stream.stop()
    assert sorted(seen) == [epoch for epoch in range(1, at["epoch"] + 1) for _ in range(KEYS)]
    assert at["epoch"] == EPOCHS


@pytest.mark.slow
def test_a_state_is_one_moment(tmp_path: Path) -> None:
    """X-11: every epoch writes every key, so a state that shows two epochs would be a moment that never was."""
    fields = fields_of_view(TableView.KV, "key", "epoch")
    moments: list[int] = []
    with owner_at_work(tmp_path) as is_writing:
        while is_writing():
            tasks = Planner(asked(tmp_path, view="kv", buckets=2)).plan().tasks
            batches = [batch for task in tasks for batch in run(task, fields, arrow_schema(fields))]
            rows = [row for batch in batches for row in batch.to_pylist()]
            assert len(rows) in (0, KEYS) and len({row["epoch"] for row in rows}) <= 1
            moments += [row["epoch"] for row in rows[:1]]
    assert moments == sorted(moments) and len(moments) > 3


@pytest.mark.slow
def test_what_was_planned_too_long_ago_is_gone_or_whole(tmp_path: Path) -> None:
    """X-06: without a pin a purge may take what was planned; then that is said, and nothing is shown in part."""
    fields = fields_of_view(TableView.ENTRIES, "epoch", "key")
    outcomes: set[str] = set()
    with owner_at_work(tmp_path) as is_writing:
        while is_writing():
            plan = Planner(asked(tmp_path, pinSeconds=0)).plan()
            for task in plan.tasks:
                try:
                    shown = [row for batch in run(task, fields, arrow_schema(fields)) for row in batch.to_pylist()]
                except Gone:
                    outcomes.add("gone")
                    continue
                outcomes.add("whole")
                assert len(shown) % KEYS == 0
    assert "whole" in outcomes


def test_a_purge_while_files_are_looked_into_makes_it_plan_again(tmp_path: Path) -> None:
    """X-06: what was planned was not pinned yet; a request for a purged epoch is refused."""
    LogStore.open(str(tmp_path), PATIENT).close()
    planner = Planner(asked(tmp_path))
    tries: list[int] = []

    def purged(times: int) -> list[Task]:
        tries.append(times)
        if len(tries) <= times:
            raise Gone("log file 16 is gone, horizon is 360", "begin at epoch 361 or later")
        return []

    assert planner.pinned(lambda log: purged(2)).tasks == [] and len(tries) == 3
    with pytest.raises(Gone, match="log file 16"):
        planner.pinned(lambda log: purged(100))
