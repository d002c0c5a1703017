"""A list of tasks, done wherever Spark likes, and what each of them told.

    driver       run_tasks(session, work, tasks)     tasks are plain data (JSON), `work` is a function of this package
    executors    work(task) → plain data             a task reads and writes files itself; no row crosses the JVM

It is written with DataFrames, so that it runs over Spark Connect too. Spark may run a task again, or twice at once:
what a task writes carries a name of its attempt's own (`attempt_name`), and only what the answer names counts.

Always true: answers come in the order of the tasks, one for each. What a task raised is raised here, in our own words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from warren.base.chance import SystemRandom
from warren.base.errors import Refused
from warren.pipeline.jobs.watching import Progress, is_connect, nobody, watched
from warren.pipeline.session import clear_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = dict[str, Any]
Work = Callable[[Told], Told]
_MANY = 4096
_ANSWER = "number bigint, told string"
_ANSWER_FIELDS = pa.schema([("number", pa.int64()), ("told", pa.string())])


def run_tasks(session: SparkSession, work: Work, tasks: Sequence[Told], progress: Progress = nobody) -> list[Told]:
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
