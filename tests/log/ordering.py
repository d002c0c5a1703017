"""Working on a compaction order without Spark: the same plan and the same tasks, which travel as JSON, one after the
other in this process."""

from __future__ import annotations

import json
from typing import Any

from warren.files.protocol import Files
from warren.log.compaction.handover import CompactionJob
from warren.log.compaction.ranges import MergeTask, PartitionTask, RangePlan, RangePlanSizes, deal, merge_range
from warren.log.store import LogStore

TINY = RangePlanSizes(workers=2, entries_per_range=4, entries_worth_a_task=1)
TINY_AND_DEALT = RangePlanSizes(workers=2, entries_per_range=4, entries_worth_a_task=1, ranges_at_once_max=1)
SHORT_OF_MEMORY = RangePlanSizes(workers=2, entries_per_range=4, entries_worth_a_task=1, memory_bytes=200)


def work(
    store: LogStore, order: CompactionJob, sizes: RangePlanSizes = TINY, files: Files | None = None
) -> list[dict[str, Any]]:
    """Do what was ordered; what each range came to."""
    files = files or store.environment.files
    theirs = CompactionJob.from_json(_sent(order.to_json()), order.directory)
    assert theirs == order
    plan = RangePlan(files, theirs, sizes)
    runs = [
        _sent(deal(files, PartitionTask.from_json(_sent(task.to_json())), f"run-{n}"))
        for n, task in enumerate(plan.deals())
    ]
    return [
        _sent(merge_range(files, store.environment.threads, MergeTask.from_json(_sent(task.to_json())), f"range-{n}"))
        for n, task in enumerate(plan.merges(runs))
    ]


def compact_elsewhere(store: LogStore, sizes: RangePlanSizes = TINY) -> dict[str, Any] | None:
    """A whole compaction by order; None if there was nothing to do."""
    order = store.handover.order(64)
    if order is None:
        return None
    created = work(store, order, sizes)
    return store.handover.accept(order.name, [each for each in created if each["entries"]] or created[:1])


def _sent(value: Any) -> Any:
    return json.loads(json.dumps(value))
