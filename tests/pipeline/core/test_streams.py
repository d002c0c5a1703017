"""Streams on every kind of Spark: to the end, on from a checkpoint, and what is behind the horizon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.process_group import wait_until
from tests.pipeline.streaming import committed, epochs_in, stream_to_end
from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, EPOCHS, ten_epochs, write
from warren.base.errors import Gone
from warren.log.store import LogStore
from warren.pipeline.session import clear_errors

pytestmark = pytest.mark.spark


@pytest.fixture
def purging_store(tmp_path: Path) -> Iterator[LogStore]:
    """Nothing that is compacted is kept, unless a reader has a pin on it."""
    with ten_epochs(str(tmp_path / "log"), retention_seconds=0.0, retention_bytes=0) as store:
        yield store


def each_whole(first: int, last: int) -> list[int]:
    return [epoch for epoch in range(first, last + 1) for _ in range(ENTRIES_PER_EPOCH)]


def leave_behind(store: LogStore) -> int:
    """Three epochs more, and then everything is compacted and purged: the horizon afterwards."""
    for number in range(EPOCHS, EPOCHS + 3):
        write(store, number)
    store.compact()
    wait_until("released pin", lambda: not store.pins.live())  # a stream that has ended holds nothing
    store.purge()  # or the store's own thread was quicker
    assert store.manifest.state.horizon == EPOCHS + 3
    return store.manifest.state.horizon


def test_a_stream_reads_what_is_there_and_ends(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """X-11: every durable epoch whole and once, at most four in a batch."""
    stream_to_end(spark, store.directory, tmp_path, maxEpochsPerTrigger=4)
    assert epochs_in(spark, tmp_path) == each_whole(1, EPOCHS)
    assert committed(tmp_path / "checkpoint") == {0, 1, 2}


def test_a_restarted_stream_resumes_at_its_checkpoint(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """X-11: two runs of one checkpoint, between which the owner rotates, compacts and writes on."""
    stream_to_end(spark, store.directory, tmp_path, fromEpoch=3)
    store.rotate()
    store.compact()
    write(store, 20)
    store.witness()
    stream_to_end(spark, store.directory, tmp_path)
    assert epochs_in(spark, tmp_path) == each_whole(3, EPOCHS + 1)
    assert committed(tmp_path / "checkpoint") == {0, 1}


def test_a_stream_behind_the_horizon_is_refused(spark: Any, purging_store: LogStore, tmp_path: Path) -> None:
    """X-06: what a purge took behind a stream that had ended is said, with the horizon, and no row comes; only with
    failOnDataLoss=false it resumes there, with whole epochs."""
    stream_to_end(spark, purging_store.directory, tmp_path)
    horizon = leave_behind(purging_store)
    last = write(purging_store, 30)
    purging_store.witness()
    with pytest.raises(Gone, match=f"horizon is {horizon}"), clear_errors():
        stream_to_end(spark, purging_store.directory, tmp_path)
    assert epochs_in(spark, tmp_path) == each_whole(1, EPOCHS)
    stream_to_end(spark, purging_store.directory, tmp_path, failOnDataLoss=False)
    assert epochs_in(spark, tmp_path) == each_whole(1, EPOCHS) + each_whole(horizon + 1, last)
