"""Batch reads on every kind of Spark: the raw log, the state, a past, and only the columns that were asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, EPOCHS, SETTINGS, write
from warren.files.environment import Environment
from warren.log.store import LogStore
from warren.pipeline import read
from warren.testing.fakes import ManualClock

pytestmark = pytest.mark.spark


def test_the_entries_are_the_durable_ones_each_once(spark: Any, store: LogStore) -> None:
    """X-11: ten epochs of six entries, whole, and nothing that was not committed."""
    store.begin().put(1, b"never", b"committed")
    frame = spark.read.format("warren").load(store.directory)
    assert frame.schema.simpleString() == (
        "struct<epoch:bigint,kind:string,storage:bigint,key:binary,value:binary,major:bigint,minor:bigint,"
        "stream:int,lsn:bigint,file:bigint>"
    )
    rows = frame.collect()
    assert sorted(row.epoch for row in rows) == [n for n in range(1, EPOCHS + 1) for _ in range(ENTRIES_PER_EPOCH)]
    assert len({row.lsn for row in rows}) == len(rows), "every entry has a place of its own"
    assert sorted(bytes(row.value) for row in rows if row.kind == "put") == sorted(
        b"value %d.%d" % (number, key) for number in range(EPOCHS) for key in range(5)
    )


def test_the_state_equals_the_snapshot_row_for_row(spark: Any, store: LogStore) -> None:
    """X-11: dealt into three tasks, and the start-up snapshot says the same."""
    state = spark.read.format("warren").option("view", "kv").option("buckets", 3).load(store.directory)
    rows = sorted((r.storage, bytes(r.key), bytes(r.value), (r.major, r.minor)) for r in state.collect())
    assert rows == [(r.storage, r.key, r.value, r.version) for r in store.refresh().cursor()]


def test_only_the_columns_of_a_narrow_schema_are_shown(spark: Any, store: LogStore) -> None:
    narrow = spark.read.format("warren").schema("kind byte, epoch long").load(store.directory)
    rows = narrow.collect()
    assert narrow.columns == ["kind", "epoch"] and len(rows) == EPOCHS * ENTRIES_PER_EPOCH
    assert sorted({tuple(row) for row in rows})[:2] == [(1, 1), (1, 2)]


def test_filters_on_the_epoch_are_taken(spark: Any, store: LogStore) -> None:
    pushed = spark.read.format("warren").option("pushdown", True).load(store.directory)
    chosen = pushed.where("epoch >= 3 and epoch < 5 and kind = 'remove'")
    assert sorted(row.epoch for row in chosen.collect()) == [3, 4]
    assert pushed.where("epoch > 10").count() == 0


def test_a_past_is_shown_as_of_an_epoch(spark: Any, store: LogStore) -> None:
    """X-11: the state of epoch 2, of which ten have come."""
    early = read(store.directory, "kv", as_of=2, columns=["storage", "key"], spark=spark)
    keys = {1: (0, 2, 4), 2: (0, 1, 3)}
    assert {(row.storage, bytes(row.key)) for row in early.collect()} == {
        (storage, b"key-%d" % key) for storage in keys for key in keys[storage]
    }


def test_a_past_is_shown_as_of_a_time(spark: Any, tmp_path: Path) -> None:
    """Three epochs, an hour between them by the owner's clock; half an hour after the second it is the second."""
    clock = ManualClock()
    with LogStore.open(str(tmp_path), SETTINGS, replace(Environment.real(), clock=clock)) as store:
        moments = []
        for number in range(3):
            clock.advance_ns(3600 * 10**9)
            moments.append(clock.wall_ns())
            write(store, number)
        store.witness()
        asked = datetime.fromtimestamp(moments[1] / 1e9 + 1800, UTC)
        then = read(store.directory, as_of=asked, columns=["epoch"], spark=spark)
        assert {row.epoch for row in then.collect()} == {1, 2}


def test_a_batch_read_that_has_ended_holds_no_pin(spark: Any, store: LogStore) -> None:
    """Released by the last task, before the action returns."""
    frame = spark.read.format("warren").option("partitionBytes", 1).load(store.directory)
    assert frame.count() == EPOCHS * ENTRIES_PER_EPOCH
    assert store.pins.live() == []
    assert len(frame.collect()) == len(frame.collect()) == EPOCHS * ENTRIES_PER_EPOCH
    assert store.pins.live() == []
