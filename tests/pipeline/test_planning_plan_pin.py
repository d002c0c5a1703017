"""The pin of a batch read is released by its last task; where tasks fail or are not wanted it lapses in a minute."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.log.upkeep_stage import DIRECTORY, Stage, put
from tests.pipeline.looking import arrow_schema, fields_of_view
from warren.base.errors import Gone
from warren.log.file_record import PINS
from warren.log.store import LogStore
from warren.pipeline.options import ReadOptions, text_of
from warren.pipeline.planning import LINGER_SECONDS, Planner, Task, share
from warren.pipeline.schema import TableView
from warren.pipeline.tasks import run

FIELDS = fields_of_view(TableView.ENTRIES)
FILES = 3


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def store(stage: Stage) -> Iterator[LogStore]:
    with stage.store() as store:
        for number in range(FILES):
            put(store, {b"%d" % number: b"value"})
            store.rotate()
        yield store


def tasks_of(stage: Stage, **options: Any) -> list[Task]:
    planner = Planner(ReadOptions.of(text_of({"path": DIRECTORY, **options})), stage.environment())
    return share(stage.environment(), planner.plan())


def begun(stage: Stage, task: Task) -> Generator[Any]:
    rows = run(task, FIELDS, arrow_schema(FIELDS), stage.environment())
    assert isinstance(rows, Generator)
    return rows


def test_the_last_task_of_a_read_releases_the_pin_of_the_plan(stage: Stage, store: LogStore) -> None:
    tasks = tasks_of(stage)
    assert len(tasks) == FILES
    for task in reversed(tasks):
        assert len(store.pins.live()) == 1
        assert len(list(begun(stage, task))) == 1
    assert stage.disk.list(f"{DIRECTORY}/{PINS}") == []


def test_it_is_kept_while_a_task_runs_and_its_files_cannot_go(stage: Stage, store: LogStore) -> None:
    first, *others = tasks_of(stage)
    rows = begun(stage, first)
    next(rows)
    for task in others:
        list(begun(stage, task))
    assert len(store.pins.live()) == 2, "the plan's and the running task's own"
    rows.close()
    assert stage.disk.list(f"{DIRECTORY}/{PINS}") == [], "a task whose rows are no longer wanted has ended"


def test_a_read_whose_tasks_do_not_all_run_holds_nothing_a_minute_later(stage: Stage, store: LogStore) -> None:
    """As `limit` does: one task, and never the others."""
    list(begun(stage, tasks_of(stage)[0]))
    assert len(store.pins.live()) == 1
    stage.advance(LINGER_SECONDS + 1)
    assert store.pins.live() == []
    store.purge()
    assert stage.disk.list(f"{DIRECTORY}/{PINS}") == [], "with what lies beside it"


def test_a_task_that_fails_may_be_tried_again_within_that_time(stage: Stage, store: LogStore) -> None:
    first, *others = tasks_of(stage)
    rows = begun(stage, first)
    next(rows)
    with pytest.raises(ValueError, match="a worker's own"):
        rows.throw(ValueError("a worker's own"))
    for task in others:
        list(begun(stage, task))
    assert len(store.pins.live()) == 1
    list(begun(stage, first))
    assert store.pins.live() == []


def test_a_plan_whose_tasks_have_not_begun_is_held_for_as_long_as_was_asked_for(stage: Stage, store: LogStore) -> None:
    tasks = tasks_of(stage, pinSeconds=600)
    stage.advance(500)
    assert len(store.pins.live()) == 1
    list(begun(stage, tasks[0]))
    stage.advance(LINGER_SECONDS + 1)
    assert store.pins.live() == []


def test_a_plan_that_runs_a_second_time_takes_the_pins_of_its_tasks_only(stage: Stage, store: LogStore) -> None:
    tasks = tasks_of(stage)
    for task in [*tasks, *tasks]:
        list(begun(stage, task))
    assert stage.disk.list(f"{DIRECTORY}/{PINS}") == []
    put(store, {b"later": b""})
    store.compact()
    store.purge()
    with pytest.raises(Gone, match="horizon is"):
        list(begun(stage, tasks[0]))
