"""A queue with a dead-letter exchange costs as much as one without, as long as nothing is dead-lettered."""

from __future__ import annotations

import pytest

from tests.broker.routed_stage import RoutedStage, wire
from tests.broker.test_request_batch import BatchStage, Sender
from tests.growth.counting import count_calls
from warren.broker.request_batch import Settlement
from warren.broker.unit_of_work import UnitOfWork

FEW, MANY = 20, 80


def calls_of_a_publish_and_an_ack(targets: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """And how many queues were locked for them."""
    stage = BatchStage(RoutedStage())
    broker = stage.broker
    assert isinstance(broker, RoutedStage)
    broker.exchange("dlx", "fanout")
    for number in range(targets):
        broker.queue(f"dead{number}")
        broker.bind("dlx", f"dead{number}")
    jobs = broker.queue("jobs", dead_letter_exchange="dlx", max_length=10, message_ttl_ms=60_000)
    handle_counts: list[int] = []
    enter = UnitOfWork.__enter__

    def entered(working: UnitOfWork) -> UnitOfWork:
        handle_counts.append(len(working.handles))
        return enter(working)

    with monkeypatch.context() as patch:
        patch.setattr(UnitOfWork, "__enter__", entered)
        calls = 0
        for _ in range(2):  # the first one warms caches up
            stage.publish(Sender(), 1, wire(b"1"), to=stage.route("jobs"))
            calls = count_calls(stage.batch.execute)
        handle_counts.clear()
        delivery = broker.take("jobs")
        stage.batch.settle(jobs, Settlement.ACK, delivery.incarnation, delivery.fetched[0].tags)
        calls += count_calls(stage.batch.execute)
    broker.down()
    return calls, max(handle_counts)


def test_publishes_and_acks_do_not_cost_more_with_more_dead_letter_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12, number 17: all queues that could be reached were locked in every turn."""
    few, few_held = calls_of_a_publish_and_an_ack(FEW, monkeypatch)
    many, many_held = calls_of_a_publish_and_an_ack(MANY, monkeypatch)
    assert (few_held, many_held) == (1, 1)
    assert many <= 1.05 * few
