"""`warren.open(path).queue(name)`, on a real disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import warren
from warren.base.errors import Locked, Misuse, Refused
from warren.broker.errors import NotYours, QueueDeleted, QueueFull, UnknownQueue
from warren.catalog.rows import Inequivalent
from warren.embedded.database import Warren
from warren.embedded.queues import Queue
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Warren]:
    with warren.open(str(tmp_path / "db")) as opened:
        yield opened


@pytest.fixture
def jobs(db: Warren) -> Queue:
    return db.queue("jobs")


def drained(queue: Queue) -> list[bytes]:
    batch = queue.get_many(1_000_000)
    batch.ack()
    return batch.bodies


# -- putting and getting ---------------------------------------------------------------------------------------------


def test_messages_come_out_in_order_and_are_acknowledged(jobs: Queue) -> None:
    jobs.put(b"1")
    assert jobs.put_many([b"2", b"3"]) == 2
    assert (len(jobs), jobs.name, repr(jobs), bool(jobs)) == (3, "jobs", "<queue 'jobs'>", True)
    message = jobs.get()
    assert message is not None
    assert (message.body, message.redelivered, repr(message)) == (b"1", False, "<message b'1'>")
    message.ack()
    batch = jobs.get_many(10)
    assert (batch.bodies, list(batch), len(batch)) == ([b"2", b"3"], [b"2", b"3"], 2)
    assert repr(batch) == "<batch of 2 messages>"
    batch.nack()
    assert [each.body for each in jobs] == [b"2", b"3"]
    assert (jobs.get(), len(jobs.get_many(5)), len(jobs)) == (None, 0, 0)


def test_an_empty_batch_is_false_and_settles_nothing(jobs: Queue) -> None:
    empty = jobs.get_many(3, timeout=0.01)
    assert not empty
    empty.ack()
    empty.nack()


def test_a_block_acknowledges_or_gives_back(jobs: Queue) -> None:
    jobs.put_many([b"1", b"2"])
    with jobs.get_many(1) as batch:
        assert batch.bodies == [b"1"]
    with pytest.raises(ZeroDivisionError), jobs.get() as message:  # type: ignore[union-attr]
        message.body = bytes(1 // len(message.body[1:]))
    again = jobs.get()
    assert again is not None
    assert (again.body, again.redelivered) == (b"2", True)
    with again:
        again.nack(requeue=False)
    assert (len(jobs), again.is_settled) == (0, True)


def test_messages_may_be_settled_by_tag_and_some_of_a_batch_alone(jobs: Queue) -> None:
    jobs.put_many([b"1", b"2", b"3"])
    batch = jobs.get_many(3)
    first, second, third = batch.tags
    assert jobs.ack(first) == 1
    assert jobs.nack(third) == 1
    assert jobs.ack(second) == 1
    again = jobs.get_many(3)
    assert (again.bodies, again.redelivered) == ([b"3"], [True])
    assert jobs.ack(again) == 1


def test_changing_the_list_that_was_handed_in_or_out_changes_no_message(jobs: Queue) -> None:
    bodies = [b"1", b"2"]
    jobs.put_many(bodies)
    bodies[:] = [b"x", b"y"]
    batch = jobs.get_many(2)
    batch.bodies.clear()
    batch.nack()
    assert drained(jobs) == [b"1", b"2"]


def test_futures_are_done_when_their_messages_are_durable(jobs: Queue) -> None:
    futures = [jobs.put_later(b"%03d" % number) for number in range(200)]
    futures.append(jobs.put_many_later([b"x", b"y"]))
    for future in futures:
        assert future.result(10) is None
    assert len(jobs) == 202
    assert not futures[0].cancel()


def test_what_is_browsed_stays(jobs: Queue) -> None:
    jobs.put_many(b"%03d" % number for number in range(300))
    assert list(jobs.browse()) == [b"%03d" % number for number in range(300)]
    assert len(jobs) == 300


def test_purge_and_delete(db: Warren, jobs: Queue) -> None:
    jobs.put_many([b"1", b"2", b"3"])
    taken = jobs.get()
    assert jobs.purge() == 2
    assert taken is not None
    taken.nack()
    assert (len(jobs), jobs.delete(), db.queues()) == (1, 1, [])
    with pytest.raises(QueueDeleted, match="'jobs' was deleted"):
        jobs.put(b"4")
    assert len(db.queue("jobs")) == 0


def test_many_more_messages_than_one_session_takes(tmp_path: Path) -> None:
    settings = QueueSettings(put_count_max=100, put_bytes_max=5000)
    with warren.open(str(tmp_path / "db"), queue_settings=settings) as db:
        jobs = db.queue("jobs")
        bodies = [b"%d" % number * (1 + number % 50) for number in range(1500)]
        assert jobs.put_many(iter(bodies)) == 1500
        assert jobs.put_many(bodies) == 1500
        assert drained(jobs) == bodies * 2


# -- options ---------------------------------------------------------------------------------------------------------


def test_priorities(db: Warren) -> None:
    jobs = db.queue("jobs", max_priority=2)
    for body, priority in ((b"low", 0), (b"high", 2), (b"higher", 9), (b"middle", 1)):
        jobs.put(body, priority=priority)
    assert drained(jobs) == [b"high", b"higher", b"middle", b"low"]


def test_time_limits_and_dead_letters_happen_by_themselves(db: Warren) -> None:
    dead = db.queue("dead")
    short = db.queue("short", message_ttl=0.05, max_length=2, dead_letter="dead")
    short.put_many([b"1", b"2", b"3"])
    assert [dead.get(timeout=5).body for _ in range(3)] == [b"1", b"2", b"3"]  # type: ignore[union-attr]
    assert len(short) == 0
    once = db.queue("once")
    once.put(b"gone soon", ttl=0.001)
    once.put(b"stays", ttl=60)
    threading.Event().wait(0.01)
    assert drained(once) == [b"stays"]


def test_a_full_queue_refuses(db: Warren) -> None:
    full = db.queue("full", max_length=2, overflow="reject-publish")
    full.put_many([b"1", b"2"])
    with pytest.raises(QueueFull, match="2 messages"):
        full.put(b"3")
    assert drained(full) == [b"1", b"2"]


def test_an_unused_queue_expires(db: Warren) -> None:
    db.queue("passing", expires=0.02)
    for _ in range(500):
        if not db.queues():
            break
        threading.Event().wait(0.01)
    assert db.queues() == []


def test_transient_messages_and_queues_do_not_outlive_a_stop(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        db.queue("kept").put(b"1")
        db.queue("kept").put(b"2", persistent=False)
        db.queue("passing", durable=False).put(b"3")
    with warren.open(str(tmp_path)) as db:
        assert db.queues() == ["kept"]
        assert drained(db.queue("kept")) == [b"1"]


def test_another_kind_of_backing_queue(db: Warren) -> None:
    """BQ-02: by name; nothing else changes."""
    plain = db.queue("plain", backing="memory")
    plain.put_many([b"1", b"2"])
    assert (plain.facts()["kind"], db.queue("usual").facts()["kind"]) == ("memory", "variable")
    assert drained(plain) == [b"1", b"2"]
    with pytest.raises(Refused, match="'clay'"):
        db.queue("other", backing="clay")


# -- several queues --------------------------------------------------------------------------------------------------


def test_several_queues_get_the_same_messages(db: Warren) -> None:
    names = ["a", "b", "c"]
    queues = [db.queue(name) for name in names]
    assert db.publish(b"1", names) == 1
    assert db.publish([b"2" * 5000, b"3"], [*names, "a"]) == 2
    db.publish_later(b"4", ["c"]).result(10)
    assert [drained(queue) for queue in queues] == [
        [b"1", b"2" * 5000, b"3"],
        [b"1", b"2" * 5000, b"3"],
        [b"1", b"2" * 5000, b"3", b"4"],
    ]
    with pytest.raises(UnknownQueue, match="'d'"):
        db.publish(b"5", ["a", "d"])
    with pytest.raises(Misuse, match="no queue was named"):
        db.publish(b"5", [])
    assert [len(queue) for queue in queues] == [0, 0, 0]


def test_fan_out_survives_a_restart(tmp_path: Path) -> None:
    bodies = [b"%d" % number * 2000 for number in range(20)]
    with warren.open(str(tmp_path)) as db:
        for name in "abc":
            db.queue(name)
        db.publish(bodies, "abc")
        assert drained(db.queue("b")) == bodies
    with warren.open(str(tmp_path)) as db:
        assert [drained(db.queue(name)) for name in "abc"] == [bodies, [], bodies]


# -- threads ---------------------------------------------------------------------------------------------------------


def test_many_threads_share_a_queue_and_every_message_is_got_once(jobs: Queue) -> None:
    bodies: list[bytes] = []

    def put(number: int) -> None:
        for at in range(50):
            jobs.put(b"%d-%d" % (number, at))

    def get() -> None:
        while (message := jobs.get(timeout=2)) is not None:
            bodies.append(message.body)
            message.ack()
            if len(bodies) == 200:
                break

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    threads += [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bodies) == sorted(b"%d-%d" % (number, at) for number in range(4) for at in range(50))
    for number in range(4):
        own = [body for body in bodies if body.startswith(b"%d-" % number)]
        assert len(own) == 50


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_refused_says_why_and_disturbs_nothing(db: Warren, jobs: Queue) -> None:
    other = db.queue("other")
    jobs.put(b"1")
    message = jobs.get()
    assert message is not None
    with pytest.raises(NotYours, match="did not deliver"):
        other.ack(message.tag)
    with pytest.raises(Misuse, match="not str"):
        jobs.put("text")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="not int"):
        jobs.put_many([b"2", 3])  # type: ignore[list-item]
    with pytest.raises(Misuse, match="use put"):
        jobs.put_many(b"2")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="expire"):
        jobs.put(b"2", ttl=-1)
    with pytest.raises(Misuse, match="priority"):
        jobs.put(b"2", priority=1000)
    with pytest.raises(Misuse, match="settled"):
        jobs.ack(b"2")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="get at least one"):
        jobs.get_many(0)
    message.ack()
    with pytest.raises(NotYours, match="before"):
        message.ack()
    with pytest.raises(NotYours, match="pending"):
        jobs.ack(message.tag)
    assert (len(jobs), len(other)) == (0, 0)
    jobs.put(b"2")
    assert drained(jobs) == [b"2"]


def test_declarations_that_differ_or_make_no_sense_are_refused(db: Warren, jobs: Queue) -> None:
    with pytest.raises(Inequivalent, match="x-max-length"):
        db.queue("jobs", max_length=5)
    assert db.find_queue("jobs").name == "jobs"
    with pytest.raises(UnknownQueue, match="declare it first"):
        db.find_queue("missing")
    with pytest.raises(Misuse, match="overflow"):
        db.queue("x", overflow="spill")
    with pytest.raises(Misuse, match="message_ttl"):
        db.queue("x", message_ttl=-1.0)
    with pytest.raises(Misuse, match="'colour'"):
        db.queue("x", colour="red")  # type: ignore[call-arg]
    with pytest.raises(Refused, match="x-max-priority"):
        db.queue("x", max_priority=1000)
    with pytest.raises(Refused, match="1 … 255"):
        db.queue("")
    assert db.queues() == ["jobs"]


def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    with warren.open(str(tmp_path), message_store_settings=MessageStoreSettings(max_message_size=10_000)) as db:
        jobs = db.queue("jobs")
        with pytest.raises(Refused, match="10001 bytes: at most 10000"):
            jobs.put(b"x" * 10_001)
        with pytest.raises(Refused, match="at most 10000"):
            jobs.put_many([b"1", b"x" * 10_001])
        jobs.put(b"x" * 10_000)
        assert drained(jobs) == [b"x" * 10_000]


def test_a_closed_database_takes_nothing(tmp_path: Path) -> None:
    db = warren.open(str(tmp_path))
    jobs = db.queue("jobs")
    jobs.put(b"1")
    message = jobs.get()
    assert message is not None
    db.close()
    for call in (lambda: jobs.put(b"2"), jobs.get, message.ack, lambda: len(jobs), lambda: db.queue("x"), db.queues):
        with pytest.raises(Misuse, match="closed"):
            call()


def test_a_second_process_gets_an_error_that_names_the_owner(tmp_path: Path, db: Warren) -> None:
    db.queue("jobs")
    code = f"import warren\nwarren.open({db.database.directory!r}).queue('jobs')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "Locked" in result.stderr
    assert str(os.getpid()) in result.stderr
    with pytest.raises(Locked):
        warren.open(db.database.directory)
