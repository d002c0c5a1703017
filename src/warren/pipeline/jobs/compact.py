"""Compaction as a Spark job: the same merge, the same commit, its key ranges distributed to tasks.

    owner     order                    the running process, through ctrl/, or this one if the store is not locked
    driver    plan                     key ranges from a few blocks (log/compaction/ranges)
    tasks     partition, merge         log/compaction/ranges: sorted files below staging/<order>/, one for each range
    owner     accept                   checks and one manifest edit (log/compaction/handover)

No row crosses the JVM. Above a number of ranges the inputs are partitioned into runs first, so that each entry is read
and written twice, whatever the size. Files of a failed or second attempt of a task are never named in an answer; they
are removed with the directory of the order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.base.errors import Locked, Misuse, Refused
from warren.files.environment import Environment
from warren.log.compaction.compaction import NOTHING_TO_DO
from warren.log.compaction.control import request_compaction
from warren.log.compaction.handover import PLACES_MAX, CompactionJob
from warren.log.compaction.ranges import MergeTask, PartitionTask, RangePlan, RangePlanSizes, deal, merge_range
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.pipeline.jobs.spark_tasks import Progress, TaskData, attempt_name, ignore_progress, run_tasks, workers_of
from warren.snapshot.database import refuse_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER_SECONDS = 24 * 3600
ANSWER_SECONDS = 600.0


def compact(
    session: SparkSession, directory: str, progress: Progress = ignore_progress, sizes: RangePlanSizes | None = None
) -> dict[str, Any]:
    """Compact a log directory, whether a process has it open or not; returns figures of the job."""
    if not os.path.isabs(directory):
        raise Misuse(f"'{directory}' is no absolute path", "every node must find it under the same name")
    try:
        return compact_stopped(session, directory, progress, sizes=sizes)
    except Locked:
        return compact_running(session, directory, progress, sizes=sizes)


def compact_stopped(
    session: SparkSession,
    directory: str,
    progress: Progress = ignore_progress,
    settings: LogSettings | None = None,
    sizes: RangePlanSizes | None = None,
) -> dict[str, Any]:
    """Open a directory that no process has open, compact it, purge, and close it."""
    settings = settings or LogSettings(compaction_garbage_ratio=0.0)
    with LogStore.open(directory, settings) as store:
        refuse_database(store.environment.files, directory)
        order = store.handover.order()
        if order is None:
            return {"status": "ok", **NOTHING_TO_DO}
        try:
            result = store.handover.accept(order.name, run_order(session, order, progress, sizes))
        finally:
            store.handover.cancel(order.name)  # no effect if it was accepted
        purged = store.purge()
    return {"status": "ok", **result, "purged": list(purged.files), "freed_bytes": purged.freed_bytes}


def compact_running(
    session: SparkSession,
    directory: str,
    progress: Progress = ignore_progress,
    sizes: RangePlanSizes | None = None,
    answer_seconds: float = ANSWER_SECONDS,
) -> dict[str, Any]:
    """Compact the store of a running process: it orders and accepts, Spark does the work in between."""
    environment = Environment.real()

    def request(message: dict[str, Any]) -> dict[str, Any]:
        answer = request_compaction(environment, directory, message, answer_seconds)
        if answer["status"] != "ok":
            raise Refused(answer.get("error", "the store refused"), answer.get("hint", ""))
        return answer

    answer = request({"order": {"places": PLACES_MAX, "seconds": ORDER_SECONDS}})
    if "order" not in answer:
        return answer
    order = CompactionJob.from_json(answer["order"], directory)
    try:
        made = run_order(session, order, progress, sizes)
    except BaseException:
        request({"cancel": {"name": order.name}})
        raise
    return request({"accept": {"name": order.name, "made": made}})


def run_order(
    session: SparkSession,
    order: CompactionJob,
    progress: Progress = ignore_progress,
    sizes: RangePlanSizes | None = None,
) -> list[TaskData]:
    """Execute an order; returns the files written, by key range."""
    sizes = sizes or replace(RangePlanSizes(), workers=workers_of(session))
    plan = RangePlan(Environment.real().files, order, sizes)
    deals = plan.deals()
    runs = run_tasks(session, deal_task, [task.to_json() for task in deals], lambda share: progress(share / 2))
    begun = 0.5 if deals else 0.0
    merges = [task.to_json() for task in plan.merges(runs)]
    made = run_tasks(session, merge_task, merges, lambda share: progress(begun + share * (1 - begun)))
    return without_empty(made)


def without_empty(made: Sequence[TaskData]) -> list[TaskData]:
    """A range in which everything was dropped needs no file, but at least one file must replace the sources."""
    return [each for each in made if each["entries"]] or list(made[:1])


def deal_task(raw: TaskData) -> TaskData:
    return deal(Environment.real().files, PartitionTask.from_json(raw), attempt_name("run"))


def merge_task(raw: TaskData) -> TaskData:
    environment = Environment.real()
    return merge_range(environment.files, environment.threads, MergeTask.from_json(raw), attempt_name("range"))
