"""How far Spark has come with what it is doing for us: the share of tasks that are done.

A session on this machine or on a cluster is asked a few times a second, by a thread of its own; Spark Connect tells by
itself. Neither knows of work that has not begun: the share is that of the stage under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from warren.base.repeating import repeatedly
from warren.base.threads import SystemThreads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[float], None]
_ASK_SECONDS = 0.25


def nobody(share: float) -> None:
    """Whoever does not want to know."""


@contextmanager
def watched(session: SparkSession, progress: Progress) -> Iterator[None]:
    """Tell `progress` while the body runs."""
    if progress is nobody:
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
