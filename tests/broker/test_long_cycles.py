"""Dead-lettering through very many queues: bounded in each unit of work, and terminating for cycles of any length."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.exchanges.rows import exchange, queue
from tests.broker.routed_stage import RoutedStage, wire
from tests.broker.stage import BrokerStage
from tests.broker.test_request_batch import BatchStage, Sender
from warren.base.ids import QueueId
from warren.base.messages import Origin
from warren.broker.dead_letters import (
    NOTE_BYTES_MAX,
    DeadLetterRoutes,
    DeadMessages,
    Departure,
    dead_letters_of,
    deaths_of,
    is_circle,
    with_death,
)
from warren.broker.exchanges.routing import load
from warren.broker.queue_arguments import Address, Overflow
from warren.broker.unit_of_work import HOPS_MAX, UnitOfWork
from warren.queue_index.history_format import DequeueReason

RING = 70
UNITS_MAX = 50


def raised(work: UnitOfWork, error: BaseException) -> BaseException:
    return error


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each unit of work that moves something; a test ends when there are too many of them."""
    counted: list[int] = []
    leave = UnitOfWork.__exit__

    def left(working: UnitOfWork, *error: Any) -> None:
        leave(working, *error)
        counted.extend([working.hops] if working.hops else [])
        assert len(counted) < UNITS_MAX, "dead-lettering does not come to an end"

    monkeypatch.setattr(UnitOfWork, "__exit__", left)
    return counted


def ring(stage: BrokerStage, queues: int, **arguments: Any) -> None:
    for number in range(queues):
        stage.queue(f"q{number}", **arguments, dead_letter=f"q{(number + 1) % queues}")


@pytest.mark.parametrize("overflow", [Overflow.DROP_HEAD, Overflow.REJECT_PUBLISH_DLX])
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "AMQP"])
def test_a_message_is_dropped_when_it_would_reach_a_queue_of_a_long_cycle_again(
    overflow: Overflow, is_plain: bool, request: pytest.FixtureRequest
) -> None:
    """Issue 12, number 4: 64 deaths were remembered, so a cycle of 70 queues never ended."""
    broker: BrokerStage = BrokerStage() if is_plain else RoutedStage()
    stage = BatchStage(broker)
    try:
        ring(broker, RING, max_length=0, overflow=overflow)
        hops = request.getfixturevalue("hops")
        body = b"1" if is_plain else wire(b"1")
        stage.publish(Sender(), 1, body, to=stage.route("q0"))
        while stage.batch._is_scheduled:
            assert stage.end().error is None
        assert sum(hops) == RING - 1 if is_plain else sum(hops) > RING - 1
        assert {broker.length(f"q{number}") for number in range(RING)} == {0}
    finally:
        broker.down()


def test_a_batch_moves_a_bounded_number_of_times_and_the_next_one_continues(
    hops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = BatchStage()
    broker = stage.broker
    for overflow in (Overflow.DROP_HEAD, Overflow.REJECT_PUBLISH_DLX):
        prefix = overflow.name
        for number in range(35):
            broker.queue(f"{prefix}{number}", max_length=0, overflow=overflow, dead_letter=f"{prefix}{number + 1}")
        broker.queue(f"{prefix}35")
        with monkeypatch.context() as patch:
            patch.setattr("warren.broker.unit_of_work.HOPS_MAX", 10)
            hops.clear()
            stage.publish(Sender(), 1, b"1", to=stage.route(f"{prefix}0"))
            batches = 0
            while not broker.length(f"{prefix}35"):
                batches += 1
                assert stage.end().error is None
                assert batches < UNITS_MAX
            assert (sum(hops), max(hops), batches) == (35, 10, 4)
    broker.down()


def test_long_headers_count_as_moves(hops: list[int]) -> None:
    """`x-death` grows with each queue, and is written anew for each: a chain of 200 is not one unit of work."""
    stage = BatchStage(RoutedStage())
    broker = stage.broker
    for number in range(200):
        broker.queue(f"q{number}", max_length=0, overflow=Overflow.REJECT_PUBLISH_DLX, dead_letter=f"q{number + 1}")
    broker.queue("q200")
    stage.publish(Sender(), 1, wire(b"1"), to=stage.route("q0"))
    while stage.batch._is_scheduled:
        assert stage.end().error is None
    assert broker.length("q200") == 1
    assert len(hops) > 2 and max(hops) < 1.2 * HOPS_MAX
    broker.down()


def test_a_program_moves_everything_before_a_put_returns(hops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    stage = BrokerStage().up()
    for number in range(35):
        stage.queue(f"q{number}", max_length=0, dead_letter=f"q{number + 1}")
    stage.queue("q35")
    monkeypatch.setattr("warren.broker.unit_of_work.HOPS_MAX", 10)
    hops.clear()
    stage.put(b"1", to="q0")
    assert stage.get("q35") == [b"1"]
    assert max(hops) == 10
    stage.down()


def test_many_messages_with_properties_of_their_own_count_as_so_many_moves() -> None:
    work = UnitOfWork(lambda: 1 / 0, [], raised, targets=())  # type: ignore[arg-type,return-value]
    work.hops = HOPS_MAX - 3
    assert work.room_messages == 3 and work.room_bytes > 0
    work.hops = HOPS_MAX
    assert work.room_messages == 1 and work.room_bytes == 0


def test_a_note_keeps_every_death_since_the_last_rejection() -> None:
    deaths = with_death([], QueueId(1), DequeueReason.REJECTED)
    for number in range(2, 200):
        deaths = with_death(deaths, QueueId(number), DequeueReason.EXPIRED)
    assert len(deaths) == 199 and is_circle(deaths, QueueId(2)) and not is_circle(deaths, QueueId(1))
    for number in range(200, 300):
        deaths = with_death(deaths, QueueId(number), DequeueReason.REJECTED)
    assert len(deaths) == 64


def test_a_note_that_is_too_long_ends_the_way_of_a_message() -> None:
    dead_letter_routes = DeadLetterRoutes(load([exchange(100, "direct", "")], [queue(9, "target")], []))
    leave = Departure(QueueId(1), "q", Address("", "target"), DequeueReason.EXPIRED, 0)

    def dead_letters(deaths: int) -> int:
        note = "dead-letter:" + ",".join(f"{number}:expired:1" for number in range(100, 100 + deaths))
        origin = Origin(note, "key")
        assert len(deaths_of(origin)) == deaths
        return len(dead_letters_of(DeadMessages([b"1"], origin, True, 0), leave, dead_letter_routes, str).dead_letters)

    assert dead_letters(100) == 1
    assert dead_letters(NOTE_BYTES_MAX // 10) == 0
