"""A client from which nothing comes for two heartbeats: how its connection ends."""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.server.raw_client import RawClient
from warren.amqp import frames


def test_a_silent_client_is_reset_so_that_its_next_write_fails(broker: Broker) -> None:
    """After a FIN the first write would succeed, and be lost."""
    with RawClient(broker.port) as client:
        client.log_in(heartbeat=1)
        with pytest.raises(ConnectionResetError):
            client.method()  # heartbeats are none
        with pytest.raises(BrokenPipeError):
            client.send(frames.HEARTBEAT_FRAME)
