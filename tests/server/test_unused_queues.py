"""x-expires: how long a queue without a consumer stays, on the simulator's clock."""

from __future__ import annotations

import pytest

from tests.server.test_request_batches import result_of
from tools.simulator.broker.client import BrokerClient
from tools.simulator.broker.environment import SimulatedBroker
from tools.simulator.broker.expected_messages import PlainQueue
from warren.amqp import methods

EXPIRES_MS = 1000


def pass_seconds(incarnation: SimulatedBroker, seconds: float) -> None:
    bell = incarnation.threads.condition()
    with bell:
        bell.wait(seconds)


def is_there(incarnation: SimulatedBroker) -> bool:
    return incarnation.vhosts.find("/").started_queue("brief") is not None


def consume_for(incarnation: SimulatedBroker, client: BrokerClient, seconds: float) -> None:
    arguments = {"x-expires": EXPIRES_MS}
    client.expected.declaring_queue(PlainQueue("brief"))
    client.call(methods.QueueDeclare(0, "brief", durable=True, arguments=arguments), methods.QueueDeclareOk)
    client.consume("brief")
    pass_seconds(incarnation, seconds)


def depart(client: BrokerClient, departure: str) -> None:
    if departure == "cancel":
        client.cancel()
    elif departure == "channel":
        client.close_channel()
    else:
        client.leave()


@pytest.mark.parametrize("departure", ["cancel", "channel", "connection"])
@pytest.mark.parametrize("stayed_seconds", [0.9, 5.0])
def test_the_time_of_an_unused_queue_begins_when_its_last_consumer_departs(
    departure: str, stayed_seconds: float
) -> None:
    """Whether the consumer stayed for less than the time or for longer."""

    def scenario(incarnation: SimulatedBroker, client: BrokerClient) -> list[bool]:
        consume_for(incarnation, client, stayed_seconds)
        before = is_there(incarnation)
        depart(client, departure)
        pass_seconds(incarnation, 0.8)
        behind = is_there(incarnation)
        pass_seconds(incarnation, 0.4)
        return [before, behind, is_there(incarnation)]

    assert result_of(scenario) == [True, True, False]


def test_a_queue_stays_as_long_as_one_of_its_consumers_does() -> None:
    def scenario(incarnation: SimulatedBroker, client: BrokerClient) -> list[bool]:
        consume_for(incarnation, client, 0.5)
        client.consume("brief")
        client.cancel()
        pass_seconds(incarnation, 5.0)
        before = is_there(incarnation)
        client.cancel()
        pass_seconds(incarnation, 1.2)
        return [before, is_there(incarnation)]

    assert result_of(scenario) == [True, False]
