"""Upkeep beside traffic: what it sums, and what it blocks while it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.broker.stage import BrokerStage
from warren.broker.garbage import GARBAGE_BYTES_MIN, GarbageUpkeep
from warren.broker.queue_api import SettleCall

SECONDS_MAX = 30.0


@pytest.fixture
def stage() -> Iterator[BrokerStage]:
    new_stage = BrokerStage().up()
    yield new_stage
    new_stage.down()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def fail() -> None:
    raise ValueError("a defect")


def failing(stage: BrokerStage) -> GarbageUpkeep:
    """Its thread runs, and every pass raises what nothing in Warren raises on purpose."""
    upkeep = stage.storage.upkeep
    upkeep.run = fail  # type: ignore[method-assign]
    upkeep.begin(1e6)
    upkeep.note_dead(10 * GARBAGE_BYTES_MIN)
    return upkeep


def test_a_pass_that_raises_anything_is_an_alarm_and_blocks_no_publisher(stage: BrokerStage) -> None:
    upkeep = failing(stage)
    until(lambda: bool(upkeep.alarms()))
    assert "garbage is not cleared away: unexpected ValueError('a defect')" in upkeep.alarms()[0]
    assert not upkeep.is_behind()
    stage.queue("q")
    stage.put(b"x", to="q")


def test_the_next_good_pass_clears_the_alarm(stage: BrokerStage) -> None:
    upkeep = failing(stage)
    until(lambda: bool(upkeep.alarms()))
    del upkeep.run
    until(lambda: not upkeep.alarms())
    assert stage.storage.alarms() == []


def test_a_thread_that_is_gone_blocks_no_publisher(stage: BrokerStage) -> None:
    upkeep = stage.storage.upkeep
    gone = threading.Thread(target=int)
    gone.start()
    gone.join()
    upkeep._loop._thread = gone
    upkeep.note_dead(10 * GARBAGE_BYTES_MIN)
    assert not upkeep.is_behind()


def test_passes_that_fail_back_off_even_if_they_are_requested_often(stage: BrokerStage) -> None:
    upkeep = failing(stage)
    until(lambda: upkeep.rounds == 1)
    for _ in range(100):
        upkeep.request_pass()
    assert upkeep.rounds == 1


def test_what_is_alive_is_what_the_queues_hold(stage: BrokerStage) -> None:
    """Published, delivered, acknowledged, purged, deleted, and found again at a start."""
    alive = stage.storage.alive_bytes
    for name in ("a", "b"):
        stage.queue(name)
    stage.put(*[b"x" * 100] * 10, to="a")
    stage.put(*[b"y" * 10_000] * 3, to=["a", "b"])
    assert alive() == 1000 + 2 * 30_000
    handle = stage.vhost.find_queue("a")
    delivery = stage.queue_api.get(handle, 4, None)
    assert delivery is not None and alive() == 61_000, "what is delivered is not gone"
    settling = SettleCall(delivery.incarnation, [each.tags for each in delivery.fetched])
    assert stage.queue_api.ack(handle, settling) == 4
    assert alive() == 60_600
    stage.queue_api.purge(stage.vhost.find_queue("b"))
    assert alive() == 30_600
    stage.down()
    stage.up()
    assert stage.storage.alive_bytes() == 0, "no queue was started yet"
    stage.vhost.find_queue("a")
    assert stage.storage.alive_bytes() == 30_600
    stage.vhost.delete_queue(stage.vhost.find_queue("a"))
    assert stage.storage.alive_bytes() == 0


def test_reading_what_is_alive_beside_declarations_does_not_fail(stage: BrokerStage) -> None:
    """With an iteration over the set of queues a declaration in another thread ended the thread of upkeep."""
    errors, is_over = list[Exception](), threading.Event()

    def measure() -> None:
        try:
            while not is_over.is_set():
                stage.storage.alive_bytes()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=measure) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(150):
            stage.queue(f"q{number}", durable=False)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_messages_are_scrubbed_although_every_round_is_a_requested_pass(stage: BrokerStage) -> None:
    """A busy broker requests passes all the time: the scrub must not wait for a quiet round."""
    upkeep, scrubbed = stage.storage.upkeep, list[int]()
    upkeep._scrub = lambda: scrubbed.append(upkeep.rounds)
    upkeep.begin(1e6)  # no round starts on the timer
    for passes in range(1, 4):
        upkeep.request_pass()
        until(lambda passes=passes: upkeep.rounds >= passes)  # type: ignore[misc]
    assert scrubbed == []
    stage.clock.advance_ns(int(1e6 * 1e9))
    upkeep.request_pass()
    until(lambda: bool(scrubbed))
