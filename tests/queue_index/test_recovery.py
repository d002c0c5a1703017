"""What a start finds: counters, and what came after them, however long the queue is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.queue_index.index_stage import (
    BEHIND,
    BILLS,
    ORDERS,
    CountedReads,
    IndexStage,
    a_run,
    alive_in,
    firsts,
    large,
    spoil,
)
from tests.snapshot.database_stage import DatabaseStage
from warren.base.errors import Damage
from warren.base.ids import SequenceId
from warren.files.environment import Environment
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.index import QueueIndex
from warren.queue_index.row_format import RUN_COUNT_MAX, Counters
from warren.snapshot.database import Database
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.testing.memory_files import CrashModel


@pytest.fixture
def stage() -> Iterator[IndexStage]:
    stage = IndexStage()
    yield stage
    stage.database.close()


def counters(next_: int, head: int, count: int, size_bytes: int, delivered_to: int, is_clean: bool = False) -> Counters:
    return Counters(SequenceId(next_), SequenceId(head), count, size_bytes, SequenceId(delivered_to), is_clean)


def test_a_queue_of_which_nothing_is_known_is_empty(stage: IndexStage) -> None:
    assert stage.index.recover(ORDERS) == Counters()


def test_runs_without_counters_are_counted(stage: IndexStage) -> None:
    stage.publish(4, [b"abc"] * 2)
    stage.publish(6, [b"x", b"yy"])
    stage.reopen()
    assert stage.index.recover(ORDERS) == counters(8, 4, 4, 9, 8)


def test_counters_and_the_runs_behind_them_are_the_whole_queue(stage: IndexStage) -> None:
    run = stage.publish(0, [b"abc"] * 4)
    batch = stage.index.begin()
    batch.dequeue(ORDERS, run, 0b0001, [(0, 1)], DequeueReason.ACKED)
    batch.counters(ORDERS, counters(4, 1, 3, 9, 2))
    batch.publish(ORDERS, a_run(4, [b"1", b"22", b"333"]), [b"1", b"22", b"333"])
    batch.dequeue(ORDERS, a_run(4, [b"1", b"22", b"333"]), 0b101, [(4, 5), (6, 7)], DequeueReason.ACKED)
    stage.end(batch)
    stage.publish(7, [b"z"])
    stage.reopen()
    assert stage.index.recover(ORDERS) == counters(8, 1, 5, 12, 8)


def test_the_head_is_the_first_that_is_alive_if_all_before_are_gone(stage: IndexStage) -> None:
    stage.write(counters(4, 4, 0, 0, 4))
    batch = stage.index.begin()
    batch.publish(ORDERS, a_run(6, [b"1", b"22", b"333"]), [b"1", b"22", b"333"])
    batch.dequeue(ORDERS, a_run(6, [b"1", b"22", b"333"]), 0b011, [(6, 8)], DequeueReason.ACKED)
    stage.end(batch)
    assert stage.index.recover(ORDERS, stage.newest) == counters(9, 8, 1, 3, 9)


def test_after_a_clean_stop_only_what_was_delivered_counts_as_delivered(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    stage.write(counters(3, 0, 3, 603, 1, is_clean=True))
    stage.reopen()
    assert stage.index.recover(ORDERS) == counters(3, 0, 3, 603, 1, is_clean=True)


def test_after_an_unclean_stop_everything_counts_as_delivered(stage: IndexStage) -> None:
    stage.publish(0, large("a"))
    stage.write(counters(3, 0, 3, 603, 1, is_clean=False))
    stage.reopen()
    assert stage.index.recover(ORDERS) == counters(3, 0, 3, 603, 3, is_clean=False)


def test_what_came_after_a_clean_stop_makes_the_next_one_unclean(stage: IndexStage) -> None:
    stage.write(counters(3, 3, 0, 0, 3, is_clean=True))
    stage.publish(3, [b"x"])
    assert stage.index.recover(ORDERS, stage.newest) == counters(4, 3, 1, 1, 4, is_clean=False)


def test_a_start_reads_what_came_after_the_counters_and_nothing_else(stage: IndexStage) -> None:
    """So it does not grow with the queue."""
    for first in range(0, 60, 3):
        stage.publish(first, large("a"))
    stage.write(counters(60, 0, 60, 20 * 603, 0))
    stage.publish(60, large("b"))
    stage.database.settle()
    stage.reopen()
    counted = CountedReads(stage)
    assert counted.index(stage).recover(ORDERS).count == 63
    assert (counted.rows, stage.database.pointed.reads) == (1, 1)


@pytest.mark.parametrize("model", list(CrashModel))
def test_messages_and_where_they_stand_are_in_the_log_alone(model: CrashModel) -> None:
    """HS-01, X-07: the power goes, and the store is lost with everything that was in it."""
    stage = IndexStage(DatabaseStage())
    run = stage.publish(0, large("a"))
    stage.publish(5, [b"small"], BILLS)
    stage.dequeue(run, 0b010, 0b010)
    stage.write(counters(3, 0, 2, 402, 2))
    stage.publish(3, large("b"))
    stage.database.abandon()
    stage.stage.crash(model, 7)
    stage.stage.store = None
    stage.open()
    assert stage.alive() == {0: large("a")[0], 2: large("a")[2], 3: large("b")[0], 4: large("b")[1], 5: large("b")[2]}
    assert stage.alive(BILLS) == {5: b"small"}
    assert stage.index.recover(ORDERS) == counters(6, 0, 5, 1005, 6)
    assert [event.ranges for event in stage.events()] == [((1, 2),)]
    stage.database.close()


def test_no_sequence_id_of_a_run_that_cannot_be_read_is_given_again(stage: IndexStage) -> None:
    stage.write(counters(3, 3, 0, 0, 3, is_clean=True))
    run = stage.publish(3, large("a"))
    stage.database.settle()
    spoil(stage, run)
    with pytest.raises(Damage, match=f"queue {ORDERS.queue}, sequence id 3"):
        stage.index.recover(ORDERS, stage.newest)
    reported: list[int] = []
    found = stage.index.recover(ORDERS, stage.newest, on_damage=lambda first, _: reported.append(first))
    assert (reported, found.head, found.next, found.is_clean) == ([3], 3, 3 + RUN_COUNT_MAX, False)
    assert found.count == RUN_COUNT_MAX, "as many as it may have: none is left behind when it can be read again"


def test_a_run_that_cannot_be_read_has_no_more_messages_than_there_is_room_for(stage: IndexStage) -> None:
    runs = [stage.publish(first, large("a")) for first in (0, 3, 6)]
    stage.database.settle()
    spoil(stage, runs[1])
    found = stage.index.recover(ORDERS, stage.newest, on_damage=lambda first, damage: None)
    assert (found.head, found.count, found.next) == (0, 9, 3 + RUN_COUNT_MAX)


def test_a_queue_that_starts_again_beside_the_others_names_what_it_wrote_last(stage: IndexStage) -> None:
    """Without a restart of the database, whatever the store has taken so far."""
    assert stage.database.reflection is not None
    stage.database.reflection.pause()
    stage.publish(0, large("a"))
    stage.write(replace(counters(3, 0, 3, 603, 2), is_clean=True))
    assert stage.index.recover(ORDERS, stage.newest) == counters(3, 0, 3, 603, 2, is_clean=True)
    assert firsts(stage.index.scan(ORDERS, SequenceId(0), BEHIND, stage.newest)) == [0]
    stage.database.reflection.resume()


def test_it_is_the_same_on_a_real_disk_over_rocksdb(tmp_path: Path) -> None:
    """A scan that is abandoned half way releases the store; what is read comes from the log's own files."""
    environment = Environment.real()

    def opened() -> Database:
        open_store = partial(RocksDbStore.open, threads=environment.threads)
        return Database.open(str(tmp_path), open_store, environment=environment)

    with opened() as database:
        index = QueueIndex.of(database)
        runs = [a_run(first, large("a")) for first in range(0, 300, 3)]
        for run in runs:
            batch = index.begin()
            batch.publish(ORDERS, run, large("a"))
            newest = batch.end()
        batch = index.begin()
        batch.dequeue(ORDERS, runs[0], 0b111, [(0, 3)], DequeueReason.ACKED)
        batch.dequeue(ORDERS, runs[1], 0b001, [(3, 4)], DequeueReason.ACKED)
        batch.counters(ORDERS, counters(300, 4, 296, 1, 7, is_clean=True))
        newest = max(newest, batch.end())
        scan = index.scan(ORDERS, SequenceId(0), BEHIND, newest)
        assert next(scan).gone == 0b001
        del scan
    with opened() as database:
        index = QueueIndex.of(database)
        assert index.recover(ORDERS) == counters(300, 4, 296, 1, 7, is_clean=True)
        assert sorted(alive_in(index, ORDERS, newest)) == list(range(4, 300))
