"""x-expires: how long a queue without a consumer stays, on the simulator's clock."""

from __future__ import annotations

import pytest

from tests.server.test_turns import told_in
from tools.simulator.broker_client import BrokerClient
from tools.simulator.broker_ledger import PlainQueue
from tools.simulator.broker_machine import BrokerLife
from warren.amqp import methods

EXPIRES_MS = 1000


def pass_seconds(life: BrokerLife, seconds: float) -> None:
    bell = life.threads.condition()
    with bell:
        bell.wait(seconds)


def is_there(life: BrokerLife) -> bool:
    return life.realms.find("/").queues.known("brief") is not None


def consume_for(life: BrokerLife, client: BrokerClient, seconds: float) -> None:
    arguments = {"x-expires": EXPIRES_MS}
    client.ledger.declaring_queue(PlainQueue("brief"))
    client.ask(methods.QueueDeclare(0, "brief", durable=True, arguments=arguments), methods.QueueDeclareOk)
    client.consume("brief")
    pass_seconds(life, seconds)


def depart(client: BrokerClient, how: str) -> None:
    if how == "cancel":
        client.cancel()
    elif how == "channel":
        client.close_channel()
    else:
        client.leave()


@pytest.mark.parametrize("how", ["cancel", "channel", "connection"])
@pytest.mark.parametrize("stayed_seconds", [0.9, 5.0])
def test_the_time_of_an_unused_queue_begins_when_its_last_consumer_departs(how: str, stayed_seconds: float) -> None:
    """Whether the consumer stayed for less than the time or for longer."""

    def scenario(life: BrokerLife, client: BrokerClient) -> list[bool]:
        consume_for(life, client, stayed_seconds)
        before = is_there(life)
        depart(client, how)
        pass_seconds(life, 0.8)
        behind = is_there(life)
        pass_seconds(life, 0.4)
        return [before, behind, is_there(life)]

    assert told_in(scenario) == [True, True, False]


def test_a_queue_stays_as_long_as_one_of_its_consumers_does() -> None:
    def scenario(life: BrokerLife, client: BrokerClient) -> list[bool]:
        consume_for(life, client, 0.5)
        client.consume("brief")
        client.cancel()
        pass_seconds(life, 5.0)
        before = is_there(life)
        client.cancel()
        pass_seconds(life, 1.2)
        return [before, is_there(life)]

    assert told_in(scenario) == [True, False]
