"""A list of tasks, done wherever Spark likes, and what each of them told.

    driver       run_tasks(session, work, tasks)     tasks are plain data (JSON), `work` is a function of this package
    executors    work(task) → plain data             a task reads and writes files itself; no row crosses the JVM

It is written with DataFrames, so that it runs over Spark Connect too. Spark may run a task again, or twice at once:
what a task writes carries a name of its attempt's own (`attempt_name`), and only what the answer names counts.

Always true: answers come in the order of the tasks, one for each. What a task raised is raised here, in our own words.

The driver's pin, renewed for as long as a job runs: files stay for tasks that have not begun yet.

A task takes a pin of its own when it begins. A long job's last tasks begin late, so the plan's pin must not lapse
before them. When the driver dies nobody renews it, and it holds nothing longer than its seconds.

How far Spark has come with what it is doing for us: the share of tasks that are done.

A session on this machine or on a cluster is asked a few times a second, by a thread of its own; Spark Connect tells by
itself. Neither knows of work that has not begun: the share is that of the stage under way.
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
_ASK_SECONDS = 0.25


def no_owner(share: float) -> None:
    """Whoever does not want to know."""


@contextmanager
def watched(session: SparkSession, progress: Progress) -> Iterator[None]:
    """Tell `progress` while the body runs."""
    if progress is no_owner:
        yield
    elif is_connect(session):
        with _told_by_connect(session, progress):
            yield
    else:
        with _asked(session, progress):
            yield


def is_connect(session: Any) -> bool:
    return not hasattr(session, "_jsparkSession")


@contextmanager
def _told_by_connect(session: Any, progress: Progress) -> Iterator[None]:
    def listen(stages: Any, *_: Any, **__: Any) -> None:
        _tell(progress, [(stage.num_tasks, stage.num_completed_tasks) for stage in stages or ()])

    session.registerProgressHandler(listen)
    try:
        yield
    finally:
        session.removeProgressHandler(listen)


@contextmanager
def _asked(session: Any, progress: Progress) -> Iterator[None]:
    tracker = session.sparkContext.statusTracker()

    def ask() -> None:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        _tell(progress, [(stage.numTasks, stage.numCompletedTasks) for stage in stages if stage])

    with repeatedly(SystemThreads(), "warren-spark-progress", _ASK_SECONDS, ask):
        yield


def _tell(progress: Progress, stages: list[tuple[int, int]]) -> None:
    total = sum(tasks for tasks, _ in stages)
    if total:
        progress(sum(done for _, done in stages) / total)


Told = dict[str, Any]
Work = Callable[[Told], Told]
_MANY = 4096
_ANSWER = "number bigint, told string"
_ANSWER_FIELDS = pa.schema([("number", pa.int64()), ("told", pa.string())])


def run_tasks(session: SparkSession, work: Work, tasks: Sequence[Told], progress: Progress = no_owner) -> list[Told]:
    """Do all tasks, each in a Spark task of its own."""
    if not tasks:
        return []
    numbers = session.range(0, len(tasks), 1, numPartitions=len(tasks))
    answers = numbers.mapInArrow(partial(_run, work, [json.dumps(task) for task in tasks]), _ANSWER)
    with clear_errors(), watched(session, progress):
        told = {row.number: json.loads(row.told) for row in answers.collect()}
    if len(told) != len(tasks):
        raise Refused(f"Spark gave {len(told)} answers to {len(tasks)} tasks", "nothing has changed: run the job again")
    return [told[number] for number in range(len(tasks))]


def workers_of(session: SparkSession) -> int:
    """How many tasks the session runs at once, as far as it says."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    parts = session.range(0, _MANY).mapInArrow(_one_each, "number bigint")  # as many as there are cores, by default
    return max(1, parts.count())


def attempt_name(name: str) -> str:
    """A name that no other attempt at the same task has."""
    return f"{name}.{SystemRandom().id64():016x}"


def _run(work: Work, tasks: Sequence[str], batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            told = json.dumps(work(json.loads(tasks[number])))
            yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([told])], schema=_ANSWER_FIELDS)


def _one_each(batches: Iterator[Any]) -> Iterator[Any]:
    """One row for each part of a DataFrame."""
    for _ in batches:
        continue
    yield pa.RecordBatch.from_arrays([pa.array([0])], names=["number"])


_log = logging.getLogger("warren.pipeline")


@contextmanager
def held(planner: Planner, plan: Plan) -> Iterator[None]:
    """Hold the plan's pin until the end of the body, then let it go."""
    if plan.pin is None:
        yield
        return
    seconds, pin = planner.options.pin_seconds, plan.pin

    def renew() -> None:
        nonlocal pin
        try:
            pin = planner.pins.renew(pin, seconds)
        except WarrenError as error:  # tasks that come too late are told so themselves
            _log.warning("the pin of the job could not be renewed: %s", error.what)

    try:
        with repeatedly(planner.environment.threads, "warren-job-pin", seconds / 3, renew):
            yield
    finally:
        planner.pins.release(pin)
