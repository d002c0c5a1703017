"""Run a list of tasks on Spark, report progress, and hold the pin of the plan meanwhile.

    driver       run_tasks(session, work, tasks)     tasks are plain data (JSON), `work` is a function of this package
    executors    work(task) → plain data             a task reads and writes files itself; no row crosses the JVM

Tasks run as DataFrame operations, so that they run over Spark Connect too. Spark may run a task again, or twice at
once: files written by a task have the name of the attempt (`attempt_name`), and only files named in an answer count.

Progress is the share of finished tasks in the current stage; Spark does not know stages that have not started. A
local or cluster session is polled a few times a second by a thread; Spark Connect calls back.

`renewed_pin` renews the plan's pin while a job runs. A task takes its own pin when it starts, and the last tasks of a
long job start late: the pin must not lapse before them. If the driver dies, it lapses after its `pin_seconds`.

Invariants: answers come in the order of the tasks, one for each. An error of a task is raised here as Warren's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from warren.base.environment import SystemRandom
from warren.base.errors import Refused, WarrenError
from warren.base.threads import SystemThreads, repeatedly
from warren.pipeline.planning import Plan, Planner
from warren.pipeline.session import clear_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Progress = Callable[[float], None]
_POLL_SECONDS = 0.25


def ignore_progress(share: float) -> None:
    """Default: no progress report."""


@contextmanager
def report_progress(session: SparkSession, progress: Progress) -> Iterator[None]:
    """Call `progress` while the body runs."""
    if progress is ignore_progress:
        yield
    elif is_connect(session):
        with _connect_progress(session, progress):
            yield
    else:
        with _polled_progress(session, progress):
            yield


def is_connect(session: Any) -> bool:
    return not hasattr(session, "_jsparkSession")


@contextmanager
def _connect_progress(session: Any, progress: Progress) -> Iterator[None]:
    def on_progress(stages: Any, *_: Any, **__: Any) -> None:
        _report(progress, [(stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()])

    session.registerProgressHandler(on_progress)
    try:
        yield
    finally:
        session.removeProgressHandler(on_progress)


@contextmanager
def _polled_progress(session: Any, progress: Progress) -> Iterator[None]:
    tracker = session.sparkContext.statusTracker()

    def poll() -> None:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        _report(progress, [(stage.numTasks, stage.numCompletedTasks) for stage in stages if stage])

    with repeatedly(SystemThreads(), "warren-spark-progress", _POLL_SECONDS, poll):
        yield


def _report(progress: Progress, stages: list[tuple[int, int]]) -> None:
    total = sum(tasks for tasks, _ in stages)
    if total:
        progress(sum(done for _, done in stages) / total)


TaskData = dict[str, Any]
Work = Callable[[TaskData], TaskData]
_MANY = 4096
_ANSWER = "number bigint, answer string"
_ANSWER_FIELDS = pa.schema([("number", pa.int64()), ("answer", pa.string())])


def run_tasks(
    session: SparkSession, work: Work, tasks: Sequence[TaskData], progress: Progress = ignore_progress
) -> list[TaskData]:
    """Run all tasks, each in its own Spark task."""
    if not tasks:
        return []
    numbers = session.range(0, len(tasks), 1, numPartitions=len(tasks))
    answers = numbers.mapInArrow(partial(_run, work, [json.dumps(task) for task in tasks]), _ANSWER)
    with clear_errors(), report_progress(session, progress):
        by_number = {row.number: json.loads(row.answer) for row in answers.collect()}
    if len(by_number) != len(tasks):
        raise Refused(
            f"Spark gave {len(by_number)} answers to {len(tasks)} tasks", "nothing has changed: run the job again"
        )
    return [by_number[number] for number in range(len(tasks))]


def workers_of(session: SparkSession) -> int:
    """How many tasks the session runs at once, as far as Spark reports it."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    parts = session.range(0, _MANY).mapInArrow(_one_each, "number bigint")  # one partition per core, by default
    return max(1, parts.count())


def attempt_name(name: str) -> str:
    """A name that is unique among the attempts of a task."""
    return f"{name}.{SystemRandom().id64():016x}"


def _run(work: Work, tasks: Sequence[str], batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            answer = json.dumps(work(json.loads(tasks[number])))
            yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([answer])], schema=_ANSWER_FIELDS)


def _one_each(batches: Iterator[Any]) -> Iterator[Any]:
    """One row for each partition of a DataFrame."""
    for _ in batches:
        continue
    yield pa.RecordBatch.from_arrays([pa.array([0])], names=["number"])


_log = logging.getLogger("warren.pipeline")


@contextmanager
def renewed_pin(planner: Planner, plan: Plan) -> Iterator[None]:
    """Renew the plan's pin until the end of the body, then release it."""
    if plan.pin is None:
        yield
        return
    seconds, pin = planner.options.pin_seconds, plan.pin

    def renew() -> None:
        nonlocal pin
        try:
            pin = planner.pins.renew(pin, seconds)
        except WarrenError as error:  # tasks that start too late get `Gone`
            _log.warning("job pin not renewed: %s", error.what)

    try:
        with repeatedly(planner.environment.threads, "warren-job-pin", seconds / 3, renew):
            yield
    finally:
        planner.pins.release(pin)
