"""Spark's planner and tasks beside a rotation and a purge, at each of their operations on the disk, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from tests.log.interleaving import every_run
from tests.log.stage import DIRECTORY, memory_machine, small_disk
from tests.log.test_log_files_file_lookup import KEYS, rotate, rotate_and_purge, store_on
from tests.pipeline.looking import arrow_schema, fields_of_view
from warren.base.errors import Gone
from warren.files.protocol import Files
from warren.log.store import LogStore
from warren.pipeline.options import ReadOptions, text_of
from warren.pipeline.planning import Planner
from warren.pipeline.schema import TableView
from warren.pipeline.tasks import run

Reader = Callable[[Files, LogStore], None]


def planned_and_read(view: TableView, wanted: list[bytes], files: Files, store: LogStore) -> None:
    environment = memory_machine(files)
    plan = Planner(ReadOptions.of(text_of({"path": DIRECTORY, "view": view.value})), environment).plan()
    fields = fields_of_view(view)
    batches = [batch for task in plan.tasks for batch in run(task, fields, arrow_schema(fields), environment)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    keys = {row["key"] for row in rows if "key" in row}
    assert keys >= set(wanted) or keys <= {b"later"}, "all of a range, or what is left behind a purge"
    assert view is not TableView.DAMAGE or not rows, rows


READERS = [
    pytest.param(partial(planned_and_read, view, [] if view is TableView.DAMAGE else KEYS), id=view)
    for view in TableView
]


@pytest.mark.parametrize("reader", READERS)
def test_a_rotation_at_any_moment_is_neither_damage_nor_an_error(reader: Reader) -> None:
    for attempt in every_run(store_on, rotate, reader, small_disk):
        attempt()


@pytest.mark.parametrize("reader", READERS)
def test_what_a_purge_has_removed_is_gone_and_not_damaged(reader: Reader) -> None:
    for attempt in every_run(store_on, rotate_and_purge, reader, small_disk, is_partial=False):
        with suppress(Gone):
            attempt()
