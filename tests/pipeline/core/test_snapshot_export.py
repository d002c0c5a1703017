"""Tables on every kind of Spark: files are written where the tasks run, and committed where the job was started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.pipeline.table_stage import delta, entries_in, leftovers, parquet_snapshot, state_in, state_of
from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, EPOCHS, write
from warren.base.errors import Damage
from warren.log.store import LogStore
from warren.pipeline.jobs.export import export
from warren.pipeline.jobs.snapshot import snapshot

pytestmark = pytest.mark.spark


def test_a_snapshot_is_the_state_row_for_row(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """X-11: in three files, each written by a task; read by another reader than Spark it is the start-up snapshot."""
    made = snapshot(spark, store.directory, str(tmp_path / "state"), buckets=3)
    assert made.files == 3 and leftovers(tmp_path / "state") == []
    assert state_in(parquet_snapshot(tmp_path / "state")) == state_of(store)


def test_an_export_is_every_durable_entry_once(spark: Any, store: LogStore, tmp_path: Path) -> None:
    """X-11: over two runs, each in several commits, while the owner compacts between them."""
    target = str(tmp_path / "entries")
    assert export(spark, store.directory, target, batch_epochs_max=6).batches == 2
    last = write(store, EPOCHS)
    store.compact()
    store.witness()
    assert export(spark, store.directory, target).batches == 1
    epochs = [entry[0] for entry in entries_in(delta(target))]
    assert epochs == [epoch for epoch in range(1, last + 1) for _ in range(ENTRIES_PER_EPOCH)]
    assert DeltaTable(target).transaction_version("warren-export") == last


def test_damage_that_a_task_finds_is_named_and_nothing_is_made(spark: Any, store: LogStore, tmp_path: Path) -> None:
    [record, *_] = [record for record in store.manifest.state.files.values() if record.entries]
    path = Path(store.directory, record.name)
    raw = bytearray(path.read_bytes())
    raw[record.end - 300] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Damage) as raised:
        snapshot(spark, store.directory, str(tmp_path / "state"))
    assert raised.value.path == str(path) and not (tmp_path / "state").exists()
