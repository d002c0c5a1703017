"""A real broker whose queues dead-letter to each other in long chains and rings serves other clients meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods

RING = 70
CHAIN = 450


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    yield broker
    broker.kill()


def declare(client: RawClient, names: list[str], overflow: str) -> None:
    """Each queue holds nothing and dead-letters to the next one in the list."""
    for name, target in pairwise(names):
        arguments = {
            "x-max-length": 0,
            "x-overflow": overflow,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": target,
        }
        client.declare(name, arguments=arguments)


def test_a_ring_of_queues_comes_to_an_end(broker: BrokerProcess) -> None:
    """Issue 12, number 4: one publish stopped the broker for all vhosts."""
    with RawClient(broker.port).log_in().channel(confirms=True) as client:
        names = [f"q{number}" for number in range(RING)]
        declare(client, [*names, names[0]], "drop-head")
        client.publish(1, "q0", b"1")
        assert client.expect(methods.BasicAck).delivery_tag == 1
        with RawClient(broker.port).log_in().channel(confirms=True) as other:
            other.declare("other")
            other.publish(1, "other", b"1")
            assert other.expect(methods.BasicAck).delivery_tag == 1
            assert {other.declare(name, passive=True).message_count for name in names} == {0}


def test_a_long_chain_of_full_queues_leaves_others_alone(broker: BrokerProcess) -> None:
    """Issue 12, number 3."""
    with RawClient(broker.port).log_in().channel(confirms=True) as client:
        names = [f"q{number}" for number in range(CHAIN)]
        declare(client, [*names, "end"], "reject-publish-dlx")
        client.declare("end")
        client.declare("other")
        client.publish(1, "other", b"1")
        assert client.expect(methods.BasicAck).delivery_tag == 1
        client.publish(1, "q0", b"2")
        assert client.expect(methods.BasicNack).delivery_tag == 2
        client.send_method(1, methods.BasicConsume(queue="end", no_ack=True))
        client.expect(methods.BasicConsumeOk)
        client.expect(methods.BasicDeliver)
        assert client.body() == b"2"
