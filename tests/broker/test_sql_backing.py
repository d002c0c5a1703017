"""Queues in SQL through `warren.open`: by a setting, or by an argument of the queue."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import warren
from warren.embedded.queues import Queue
from warren.queues.settings import QueueSettings


def bodies(queue: Queue) -> list[bytes]:
    return list(queue.browse())


def rows(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path / "sql_queues" / "queues.sqlite")) as connection, connection:
        return list(connection.execute("SELECT level, content FROM queue_messages ORDER BY queue, level, sequence"))


def test_bq_02_a_program_configures_its_queues_to_be_in_sql(tmp_path: Path) -> None:
    """BQ-02: the default by the settings, one queue by its own word; both work beside queues in the log."""
    with warren.open(str(tmp_path), queue_settings=QueueSettings(backing="sql")) as db:
        db.queue("orders").put_many([b"a", b"b"])
        db.queue("logged", backing="variable").put(b"c")
    assert rows(tmp_path) == [(0, b"a"), (0, b"b")]
    with warren.open(str(tmp_path), queue_settings=QueueSettings(backing="sql")) as db:
        orders = db.queue("orders")
        message = orders.get()
        assert message is not None and message.body == b"a"
        message.ack()
        assert bodies(orders) == [b"b"]
        assert bodies(db.queue("logged", backing="variable")) == [b"c"]
    assert rows(tmp_path) == [(0, b"b")]


def test_without_a_queue_in_sql_there_is_no_file(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        db.queue("logged").put(b"a")
    assert not (tmp_path / "sql_queues").exists()


def test_priorities_limits_and_dead_letters_work_in_sql(tmp_path: Path) -> None:
    with warren.open(str(tmp_path), queue_settings=QueueSettings(backing="sql")) as db:
        over = db.queue("over")
        urgent = db.queue("urgent", max_priority=2, max_length=2, dead_letter="over")
        for number, priority in enumerate([0, 2, 0]):
            urgent.put(b"%d" % number, priority=priority)
        assert bodies(urgent) == [b"0", b"2"]
        assert bodies(over) == [b"1"], "over its limit it loses the highest priority first"


def test_what_is_left_of_an_unknown_queue_is_removed(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        db.queue("passing", durable=False, backing="sql").put(b"a")
        db.queue("stays", backing="sql").put(b"b")
    assert rows(tmp_path) == [(0, b"a"), (0, b"b")]
    with warren.open(str(tmp_path)) as db:
        assert bodies(db.queue("stays", backing="sql")) == [b"b"]
    assert rows(tmp_path) == [(0, b"b")]
