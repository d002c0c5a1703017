"""The SQL-backed queue: the alternate implementation (BQ-02, BQ-03, BQ-04, HS-04)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.queues.backing_stage import BackingStage, contents_of, flags_of, numbered, one, tags_of
from tests.queues.levels_machine import LevelsMachine
from tests.queues.sql_stage import OTHER, PLACE, SqlStage, without_log
from warren.base.errors import DiskFailure, Refused
from warren.base.ids import Epoch, QueueId
from warren.base.messages import Origin, Publication
from warren.base.threads import SystemThreads
from warren.broker.queue_arguments import QueueArguments
from warren.broker.storage import BackingKinds
from warren.log.writer import Placed
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queues.kinds.priority_queue import PriorityQueue
from warren.queues.kinds.sql_queue import IN_MEMORY, Batch, SqlFilter, SqlQueue, SqlStore
from warren.testing.fakes import ManualClock


def by_hand(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return list(connection.execute(statement))


def move(it: SqlStage, tag: int) -> None:
    """One message from the one queue to the other, as a dead-letter move does it."""
    batch = without_log()
    [slice_] = it.queue.read_pending([one(tag)])
    it.other.publish(Publication(slice_.contents or []), batch)
    it.queue.ack([one(tag)], DequeueReason.MOVED, batch)
    batch.end()


# -- what it is for --------------------------------------------------------------------------------------------------


def test_bq_02_a_queue_can_be_configured_to_be_in_sql() -> None:
    """BQ-02: by the settings for all queues, or by its own argument; with priorities a sub-queue for each level."""
    store = SqlStore(IN_MEMORY, SystemThreads())
    kinds = BackingKinds(
        {"sql": lambda wanted: SqlQueue(wanted.place, wanted.is_durable, store)}, "memory", PriorityQueue
    )
    arguments = QueueArguments.from_table({"x-backing": "sql", "x-max-priority": 2})
    queue = kinds.make(QueueId(7), True, arguments, {}, Epoch(0))
    batch = without_log()
    queue.publish(Publication([b"x"], priority=1), batch)
    batch.end()
    assert queue.facts()["levels_kind"] == "sql"
    again = kinds.make(QueueId(7), True, arguments, {}, Epoch(0))
    assert (len(again), again.facts()["ready_at_1"]) == (1, 1)


def test_bq_03_a_queue_can_be_read_with_plain_sql(tmp_path: Path) -> None:
    """BQ-03: readable from the file, and by filters that SQL evaluates."""
    it = SqlStage(tmp_path / "q.sqlite")
    for number, key in enumerate(["eu.new", "us.new", "eu.old", "eu.new"]):
        origin = Origin("orders", key, "anna")
        it.stage.put(b"body %d" % number, origin=origin, published_ms=1000 + number, expires_ms=5000 * (number % 2))
    tags = tags_of(it.stage.get(1))
    reported = "SELECT sequence, routing_key, CAST(content AS TEXT) FROM queue_messages WHERE routing_key LIKE 'eu.%'"
    assert by_hand(tmp_path / "q.sqlite", reported) == [
        (0, "eu.new", "body 0"),
        (2, "eu.old", "body 2"),
        (3, "eu.new", "body 3"),
    ]

    def found(where: SqlFilter) -> list[bytes]:
        return [content for slice_ in it.queue.search(where) for content in slice_.contents or []]

    assert found(SqlFilter(routing_key_like="eu.%")) == [b"body 2", b"body 3"], "what is pending is not there"
    assert found(SqlFilter(published_before_ms=1002, user_like="anna")) == [b"body 1"]
    assert found(SqlFilter(expires_before_ms=6000, published_from_ms=1002)) == [b"body 3"]
    assert found(SqlFilter(content_has=b"dy 2", exchange_like="orders", size_from=6)) == [b"body 2"]
    assert found(SqlFilter(size_from=7)) == []
    it.stage.requeue(one(tags[0]))
    assert found(SqlFilter(routing_key_like="eu.new")) == [b"body 0", b"body 3"]


@pytest.mark.parametrize("refused", ["INSERT ON queue_messages WHEN NEW.queue = 8", "DELETE ON queue_messages"])
def test_bq_04_a_move_between_two_queues_is_one_transaction(tmp_path: Path, refused: str) -> None:
    """BQ-04: the message is in one of them at any time; what SQL refuses has not happened to either."""
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"first", b"second")
    trigger = f"CREATE TRIGGER refusing BEFORE {refused} BEGIN SELECT RAISE(ABORT, 'not today'); END"
    by_hand(tmp_path / "q.sqlite", trigger)
    tags = tags_of(it.stage.get(2))
    with pytest.raises(DiskFailure, match="not today"):
        move(it, tags[0])
    by_hand(tmp_path / "q.sqlite", "DROP TRIGGER refusing")
    it.crash_and_open()
    assert (it.stage.browsed(), it.beside.browsed()) == ([b"first", b"second"], [])
    move(it, tags_of(it.stage.get(1))[0])
    it.crash_and_open()
    assert (it.stage.browsed(), it.beside.browsed()) == ([b"second"], [b"first"])


def test_hs_04_everything_works_on_a_machine_without_the_log_store(tmp_path: Path) -> None:
    """HS-04: the changes have no log to write to; what was answered is there when the file is opened again."""
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(*numbered(0, 6))
    tags = tags_of(it.stage.get(4))
    it.stage.ack(one(tags[1]), one(tags[2]))
    it.stage.requeue(one(tags[3]))
    it.crash_and_open()
    assert it.stage.browsed() == [b"0000", b"0003", b"0004", b"0005"]
    assert by_hand(tmp_path / "q.sqlite", "PRAGMA journal_mode") == [("wal",)]


def test_every_commit_is_synced() -> None:
    store = SqlStore(IN_MEMORY, SystemThreads())
    assert store._connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2


# -- start and stop --------------------------------------------------------------------------------------------------


def test_after_a_crash_everything_counts_as_delivered_and_after_a_clean_stop_what_was(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(*numbered(0, 4))
    tags = tags_of(it.stage.get(2))
    it.stage.ack(one(tags[0]))
    it.stop_and_open()
    fetched = it.stage.get(9)
    assert (contents_of(fetched), flags_of(fetched)) == (numbered(1, 4), [True, False, False])
    it.crash_and_open()
    it.stage.put(b"new")
    assert flags_of(it.stage.get(9)) == [True, True, True, False]


def test_a_clean_stop_is_good_for_one_start(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"a")
    it.stop_and_open()
    it.stage.get(1)
    it.crash_and_open()
    assert flags_of(it.stage.get(1)) == [True]


def test_what_happens_after_a_stop_makes_it_unclean(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"a", b"b")
    batch = without_log()
    it.queue.stop(batch)
    batch.end()
    it.stage.ack(one(tags_of(it.stage.get(1))[0]))
    it.crash_and_open()
    assert flags_of(it.stage.get(1)) == [True]


def test_transient_messages_and_queues_do_not_outlive_a_stop(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"stays")
    it.stage.put(b"goes", is_persistent=False)
    it.stop_and_open()
    assert (it.stage.browsed(), it.queue.ready_bytes) == ([b"stays"], 5)
    passing = SqlStage(tmp_path / "passing.sqlite", is_durable=False)
    passing.stage.put(b"goes")
    assert [each.slice.run.is_persistent for each in passing.stage.get(1)] == [False]
    passing.stop_and_open()
    assert len(passing.queue) == 0


def test_a_sequence_id_is_never_given_twice(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"a", b"b")
    it.stage.ack(*map(one, tags_of(it.stage.get(2))))
    it.crash_and_open()
    it.stage.put(b"c")
    assert tags_of(it.stage.get(1)) == [2]


def test_what_is_deleted_is_gone_and_may_be_made_again(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"a")
    it.beside.put(b"stays")
    it.stage.delete()
    assert by_hand(tmp_path / "q.sqlite", "SELECT queue FROM queue_places") == [(OTHER.queue,)]
    it.stage.put(b"again")
    it.crash_and_open()
    assert (it.stage.browsed(), it.beside.browsed()) == ([b"again"], [b"stays"])


# -- changes that are under way --------------------------------------------------------------------------------------


def test_what_an_open_batch_publishes_can_be_fetched_dropped_and_browsed(tmp_path: Path) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(*numbered(0, 2))
    batch = without_log()
    it.queue.publish(Publication(numbered(2, 8)), batch)
    head = it.queue.head()
    assert head is not None and head.contents is None and it.queue.ram_bytes == 24
    assert it.queue.drop(1, DequeueReason.OVER_LIMIT, batch) == 1
    fetched = it.queue.fetch(4)
    assert contents_of(fetched) == numbered(1, 5)
    tags = tags_of(fetched)
    assert [slice_.contents for slice_ in it.queue.read_pending([one(tags[2])])] == [[b"0003"]]
    it.queue.ack([one(tags[0]), one(tags[3])], DequeueReason.ACKED, batch)
    it.queue.requeue([one(tags[2])], batch)
    assert (it.stage.browsed(), it.queue.ready_bytes) == ([b"0003", *numbered(5, 8)], 16)
    batch.end()
    assert it.queue.ram_bytes == 0
    it.crash_and_open()
    assert it.stage.browsed() == [b"0002", b"0003", *numbered(5, 8)]


def test_aborted_changes_that_only_published_never_were() -> None:
    it = SqlStage()
    it.stage.put(b"a")
    tags = tags_of(it.stage.get(1))
    batch = without_log()
    it.queue.publish(Publication([b"never"]), batch)
    batch.abort()
    assert (it.stage.browsed(), len(it.queue), it.queue.ready_bytes) == ([], 0, 0)
    it.stage.put(b"b")
    assert it.stage.requeue(one(tags[0])) == 1
    assert contents_of(it.stage.get(9)) == [b"a", b"b"]


@pytest.mark.parametrize("is_published_too", [False, True])
def test_after_aborted_changes_that_took_messages_it_has_to_be_opened_again(
    tmp_path: Path, is_published_too: bool
) -> None:
    it = SqlStage(tmp_path / "q.sqlite")
    it.stage.put(b"a", b"b")
    batch = without_log()
    if is_published_too:
        it.queue.publish(Publication([b"c"]), batch)
        it.queue.fetch(9)
    else:
        it.queue.drop(1, DequeueReason.OVER_LIMIT, batch)
    batch.abort()
    for call in (lambda: it.stage.put(b"x"), lambda: it.stage.get(1), it.stage.purge):
        with pytest.raises(Refused, match="open the queue again"):
            call()
    it.crash_and_open()
    assert it.stage.browsed() == [b"a", b"b"]


class LogWriting:
    """A log that records writes and waits."""

    placed: Sequence[Placed] = ()

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def put(self, storage: int, key: bytes, value: bytes) -> None: ...

    def remove(self, storage: int, key: bytes) -> None: ...

    def remove_storage(self, storage: int) -> None: ...

    def record(self, value: bytes, *, key: bytes) -> None: ...

    def end(self) -> Epoch:
        self._events.append("log")
        return Epoch(5)

    def abort(self) -> None: ...


@pytest.mark.parametrize(
    ("is_into_sql", "order"), [(True, ["sql", "log"]), (False, ["log", "durable 5", "sql"])], ids=["in", "out"]
)
def test_a_move_between_sql_and_the_log_is_in_one_of_them_at_any_time(is_into_sql: bool, order: list[str]) -> None:
    events: list[str] = []

    class RecordingStore(SqlStore):
        def write(self, batch: Batch) -> None:
            events.append("sql")
            super().write(batch)

    queue = SqlQueue(
        PLACE, True, RecordingStore(IN_MEMORY, SystemThreads(), lambda epoch: events.append(f"durable {epoch}"))
    )
    BackingStage(queue, without_log).put(b"a")
    tags = tags_of(queue.fetch(1))
    events.clear()
    batch = IndexBatch(lambda: LogWriting(events), ManualClock())
    batch.requeued(OTHER, [(0, 1)])  # stands for what is done to a queue in the log
    if is_into_sql:
        queue.publish(Publication([b"b"]), batch)
    else:
        queue.ack([one(tags[0])], DequeueReason.MOVED, batch)
    batch.end()
    assert events == order


# -- any order -------------------------------------------------------------------------------------------------------


class SqlMachine(LevelsMachine):
    crashes = 0

    def make(self) -> BackingStage:
        self.sql = SqlStore(IN_MEMORY, SystemThreads())
        return BackingStage(SqlQueue(PLACE, True, self.sql), without_log)

    @rule()
    def crash_and_open(self) -> None:
        """Transient messages are gone, pending ones ready, all flagged."""
        self.stage = BackingStage(SqlQueue(PLACE, True, self.sql), without_log)
        SqlMachine.crashes += 1
        self.model.crash()
        self.pending = {}


def test_an_sql_backed_queue_equals_a_plain_list_after_any_reopen() -> None:
    run_state_machine_as_test(SqlMachine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
    assert SqlMachine.crashes > 10
