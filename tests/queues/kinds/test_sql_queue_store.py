"""The SQL database of queues when something is wrong with it, and with several threads at it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.queues.backing_stage import BackingStage, numbered, one, tags_of
from tests.queues.sql_stage import OTHER, PLACE, SqlStage, without_log
from warren.base.errors import Damage, Locked, OutOfRoom, Refused
from warren.base.messages import QueuePlace
from warren.base.threads import SystemThreads
from warren.queues.kinds.sql_queue import IN_MEMORY, SqlQueue, SqlStore, joined


def test_a_file_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    SqlStage(path).store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(Refused, match="of version 9"):
        SqlStore(str(path), SystemThreads())


def test_a_file_that_is_something_else_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "q.sqlite"
    path.write_bytes(b"no database " * 100)
    with pytest.raises(Damage, match="not a database"):
        SqlStore(str(path), SystemThreads())


def test_a_full_disk_is_reported_and_passes_when_there_is_room(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"a")
    connection = it.store._connection
    connection.exec_driver_sql("PRAGMA max_page_count = 8")
    with pytest.raises(OutOfRoom, match="make room"):
        it.stage.put(b"x" * 100_000)
    assert it.stage.browsed() == [b"a"], "what was not taken never was"
    connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    it.stage.put(b"y" * 100_000)
    it.crash_and_open()
    assert it.stage.browsed() == [b"a", b"y" * 100_000]


def test_a_file_open_in_another_process_is_locked(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.store._connection.exec_driver_sql("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(tmp_path / "q.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Locked):
        it.stage.put(b"a")
    other.execute("ROLLBACK")
    other.close()
    it.stage.put(b"b")
    assert it.stage.browsed() == [b"b"]


def test_queues_of_several_threads_share_one_database() -> None:
    """Each thread has a queue and changes of its own; nothing of one gets into another's transaction."""
    store, threads = SqlStore(IN_MEMORY, SystemThreads()), SystemThreads()
    queues = [SqlQueue(QueuePlace(PLACE.queue, level), True, store) for level in range(4)]

    def work(queue: SqlQueue) -> None:
        stage = BackingStage(queue, without_log)
        for first in range(0, 60, 3):
            stage.put(*numbered(first, first + 3))
            stage.ack(one(tags_of(stage.get(1))[0]))

    threads.together([lambda queue=queue: work(queue) for queue in queues])  # type: ignore[misc]
    for level in range(4):
        again = SqlQueue(QueuePlace(PLACE.queue, level), True, store)
        assert BackingStage(again, without_log).browsed() == numbered(20, 60)
    assert store.sessions == {}


def test_queues_of_one_database_do_not_see_each_other() -> None:
    it = SqlStage()
    it.stage.put(*numbered(0, 3))
    it.beside.put(*numbered(3, 5))
    assert it.stage.purge() == 3
    assert (it.beside.browsed(), it.store.recover(OTHER, True).count) == (numbered(3, 5), 2)


def test_ranges_that_touch_are_one_statement() -> None:
    assert joined([(5, 6), (1, 3), (3, 5), (8, 9)]) == [(1, 6), (8, 9)]
