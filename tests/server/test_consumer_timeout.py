"""Consumer timeout: a delivery that stays unacknowledged closes its channel, and is delivered again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods

TIMEOUT_MS = 700
TEXT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel {channel} timed out. Timeout value used: {ms} ms. "
    "This timeout value can be configured, see consumers doc guide to learn more"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text(f"consumer_timeout = {TIMEOUT_MS}\n")
    with BrokerProcess(tmp_path / "data", "--config", str(conf)) as broker:
        yield broker


def consume(client: RawClient, channel: int, queue: str, no_ack: bool = False) -> None:
    client.send_method(channel, methods.BasicConsume(queue=queue, no_ack=no_ack))
    client.expect(methods.BasicConsumeOk)


def expect_timeout(client: RawClient, channel: int, ms: int) -> None:
    close = client.expect(methods.ChannelClose)
    assert (close.reply_code, close.reply_text) == (406, TEXT.format(channel=channel, ms=ms))
    assert (close.class_id, close.method_id) == (0, 0)
    client.send_method(channel, methods.ChannelCloseOk())


def test_a_delivery_without_ack_closes_its_channel_only_and_is_delivered_again(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.log_in().channel(1).channel(2).channel(3)
        for queue in ("slow", "quick", "automatic"):
            client.declare(queue)
        consume(client, 2, "quick")
        client.publish(1, "quick", b"m")
        client.send_method(2, methods.BasicAck(client.expect(methods.BasicDeliver).delivery_tag))
        consume(client, 3, "automatic", no_ack=True)
        client.publish(1, "automatic", b"m")
        client.expect(methods.BasicDeliver)
        consume(client, 1, "slow")
        client.publish(2, "slow", b"m")
        assert not client.expect(methods.BasicDeliver).redelivered
        expect_timeout(client, 1, TIMEOUT_MS)
        consume(client, 2, "slow")  # the other channels are open
        delivery = client.expect(methods.BasicDeliver)
        assert delivery.redelivered
        client.send_method(2, methods.BasicAck(delivery.delivery_tag))
        assert client.declare("slow", 3).message_count == 0


def test_acks_in_time_keep_a_channel_open_however_long_it_consumes(broker: BrokerProcess) -> None:
    """Another channel times out three times meanwhile."""
    with RawClient(broker.port) as client, RawClient(broker.port) as slow:
        client.log_in().channel().declare("queue")
        slow.log_in().channel().declare("slow")
        slow.publish(1, "slow", b"m")
        consume(client, 1, "queue")
        for _ in range(3):
            consume(slow, 1, "slow")
            slow.expect(methods.BasicDeliver)
            client.publish(1, "queue", b"m")
            client.send_method(1, methods.BasicAck(client.expect(methods.BasicDeliver).delivery_tag))
            expect_timeout(slow, 1, TIMEOUT_MS)
            slow.channel()
        assert client.declare("queue").message_count == 0


def test_a_message_of_get_times_out_too(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.log_in().channel().declare("queue")
        client.publish(1, "queue", b"m")
        client.send_method(1, methods.BasicGet(queue="queue"))
        client.expect(methods.BasicGetOk)
        expect_timeout(client, 1, TIMEOUT_MS)


def test_a_queue_has_its_own_timeout_also_after_a_crash(tmp_path: Path) -> None:
    """The timeout of the server is its default, 30 minutes."""
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            client.log_in().channel().declare("queue", durable=True, arguments={"x-consumer-timeout": 300})
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            client.log_in().channel()
            client.publish(1, "queue", b"m")
            consume(client, 1, "queue")
            client.expect(methods.BasicDeliver)
            expect_timeout(client, 1, 300)


def test_an_invalid_timeout_of_a_queue_is_refused(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.log_in().channel()
        client.send_method(1, methods.QueueDeclare(queue="q", arguments={"x-consumer-timeout": -1}))
        close = client.expect(methods.ChannelClose)
        expected = (
            "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/': {value_negative,-1}"
        )
        assert (close.reply_code, close.reply_text) == (406, expected)
