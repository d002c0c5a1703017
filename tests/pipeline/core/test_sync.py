"""The safe snapshot store filled by Spark, on every kind of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.sync_stage import State, held_by, opened, stopped_store, tables, write, written
from warren.pipeline.jobs import sync as sync_tables
from warren.pipeline.jobs.sync import sync
from warren.snapshot.tables.tasks import RangeSizes

pytestmark = pytest.mark.spark


def test_a_stopped_directory_and_a_running_owner_get_their_tables(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RF-02, RF-06: with as many ranges as this kind of Spark has workers; every entry of them goes through a task."""
    monkeypatch.setattr(sync_tables, "RangeSizes", lambda: RangeSizes(entries_worth_a_task=1))
    model = written(tmp_path / "stopped")
    result = sync(spark, str(tmp_path / "stopped"))
    assert stopped_store(tmp_path / "stopped") == (model, result["durable"])
    assert (result["rounds"], result["unfit"]) == (1, 0) and result["tables"] >= 1
    live: State = {}
    with opened(tmp_path / "running") as warren:
        for seed in (1, 2):
            write(warren.database, live, seed)
            result = sync(spark, str(tmp_path / "running"))
            assert held_by(warren.database.store) == live
            assert result["epoch"] == result["durable"] and result["rounds"] == 1
        assert tables(tmp_path / "running") == []
