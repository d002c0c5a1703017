"""channel_max: how many channels a connection may have, whatever their numbers. Raw frames: clients choose them."""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.server.raw_client import HEADER, RawClient
from warren.amqp import methods


def tuned(broker: Broker, channel_max: int) -> RawClient:
    client = RawClient(broker.port)
    client.send(HEADER)
    client.expect(methods.ConnectionStart)
    client.send_method(0, methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
    tune = client.expect(methods.ConnectionTune)
    client.send_method(0, methods.ConnectionTuneOk(channel_max, tune.frame_max, 0), methods.ConnectionOpen("/"))
    client.expect(methods.ConnectionOpenOk)
    return client


@pytest.mark.parametrize("numbers", [(1, 2, 3), (100, 2000, 60_000)])
def test_one_channel_too_many_ends_the_connection_with_any_number(broker: Broker, numbers: tuple[int, ...]) -> None:
    with tuned(broker, channel_max=2) as client:
        for number in numbers[:2]:
            client.channel(number)
        client.send_method(numbers[2], methods.ChannelOpen())
        close = client.expect(methods.ConnectionClose)
        result = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
        assert (close.reply_code, close.reply_text) == (530, result)


def test_a_channel_that_was_closed_counts_no_more(broker: Broker) -> None:
    with tuned(broker, channel_max=2) as client:
        client.channel(7).channel(9)
        client.send_method(7, methods.ChannelClose(200, ""))
        client.expect(methods.ChannelCloseOk)
        client.channel(11)
