"""Compaction and verification as jobs, on every kind of Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.ordering import TINY, TINY_AND_DEALT
from warren.base.errors import WarrenError
from warren.log.compaction.ranges import PartitionTask
from warren.log.read.parts import FilePart
from warren.log.store import LogStore
from warren.pipeline.jobs.compact import compact, compact_running, deal_task
from warren.pipeline.jobs.spark_tasks import run_tasks, workers_of
from warren.pipeline.jobs.verify import verify

pytestmark = pytest.mark.spark


def test_a_running_store_is_compacted_by_order(spark: Any, store: LogStore) -> None:
    """CO-09, CO-10, SO-02, ST-04: in one pass, then, with more in it, in two; the store reads the same behind each."""
    wanted = list(store.refresh().cursor())
    result = compact(spark, store.directory, sizes=TINY)
    assert (result["status"], result["entries"]) == ("ok", len(wanted))
    assert len(store.manifest.state.compacted) > 1
    assert list(store.refresh().cursor()) == wanted
    with store.begin() as session:
        session.put(1, b"one more", b"value")
    shown: list[float] = []
    compact_running(spark, store.directory, shown.append, TINY_AND_DEALT)
    assert [row for row in store.refresh().cursor() if row.key != b"one more"] == wanted
    assert len(list(store.refresh().cursor())) == len(wanted) + 1
    assert verify(spark, store.directory).is_good


def test_tasks_answer_in_order_and_what_one_raises_is_raised_here(spark: Any, store: LogStore) -> None:
    assert workers_of(spark) >= 1
    assert run_tasks(spark, dict, [{"n": n} for n in range(5)]) == [{"n": n} for n in range(5)]
    [record, *_] = store.manifest.state.files.values()
    nowhere = PartitionTask("/nowhere", "/nowhere", (FilePart(record, store.durable),), store.durable, ())
    with pytest.raises(WarrenError, match="/nowhere"):
        run_tasks(spark, deal_task, [nowhere.to_json()])
