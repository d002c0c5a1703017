"""Fan-out to n queues costs n, not n²."""

from __future__ import annotations

import pytest

from tests.broker.test_request_batch import BatchStage, Sender
from tests.growth.counting import count_calls
from warren.broker.queue import BrokerQueue

LARGE = b"x" * 20_000  # stored once for all queues, in the message store


def calls_of_a_fan_out(queues: int, body: bytes) -> int:
    stage = BatchStage()
    try:
        names = [f"q{number}" for number in range(queues)]
        for name in names:
            stage.broker.queue(name)
        route = stage.route(*names)
        stage.publish(Sender(), 1, body, to=route)
        stage.end()
        stage.publish(Sender(), 1, body, to=route)
        return count_calls(stage.batch.execute)
    finally:
        stage.broker.down()


@pytest.mark.parametrize("body", [b"x", LARGE], ids=["small", "large"])
def test_a_message_for_four_times_the_queues_costs_four_times_as_much(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 12, number 16. A search in a list of queues compares them, which is counted as calls of `__eq__`."""

    def compared(queue: BrokerQueue, other: object) -> bool:
        return queue is other

    monkeypatch.setattr(BrokerQueue, "__eq__", compared)
    few, many = calls_of_a_fan_out(50, body), calls_of_a_fan_out(200, body)
    assert many <= 4.2 * few
