"""A consumer that does not read while publishers continue: it costs little memory, and no other client waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.load import (
    WATERMARK_BYTES,
    Flood,
    broker_with,
    client_of,
    consume,
    declared,
    most_resident_bytes,
    number_of,
    resident_bytes,
    until,
)
from tests.server.raw_client import RawClient
from warren.amqp import methods

SIZE = 10_000
COUNT = 16_000
OTHERS = 100


def tag_and_body(client: RawClient) -> tuple[int, bytes]:
    return client.expect(methods.BasicDeliver).delivery_tag, client.body()


@pytest.mark.parametrize("prefetch", [0, 100])
def test_a_consumer_that_did_not_read_is_served_when_it_does(tmp_path: Path, prefetch: int) -> None:
    """Promise 4. Others are served meanwhile; then everything comes, once and in order."""
    with broker_with(tmp_path) as broker:
        declared(broker, "slow", "quick")
        with client_of(broker) as stuck, client_of(broker) as quick, client_of(broker) as publisher:
            consume(stuck, "slow", prefetch)
            consume(quick, "quick", no_ack=True)
            flood = Flood(broker, 1, "slow", SIZE, COUNT)
            for number in range(OTHERS):
                publisher.publish(1, "quick", b"%d" % number)
                assert tag_and_body(quick)[1] == b"%d" % number
            until(lambda: flood.sent == COUNT, "the publisher was not read")
            for number in range(COUNT):
                tag, body = tag_and_body(stuck)
                assert number_of(body) == (1, number)
                if prefetch and number % prefetch == prefetch - 1:
                    stuck.send_method(1, methods.BasicAck(tag, multiple=True))
            flood.close()
        assert flood.error is None
        assert most_resident_bytes(broker) < WATERMARK_BYTES


def test_a_client_that_reads_no_answers_is_not_read(tmp_path: Path) -> None:
    """Unroutable messages are returned to their publisher: all of them would be buffered for it in memory."""
    with broker_with(tmp_path) as broker:
        before = resident_bytes(broker)
        with client_of(broker, seconds=2.0) as client:
            publish = methods.BasicPublish(routing_key="nowhere", mandatory=True)
            message = client.message(1, publish, bytes(50_000))
            with pytest.raises(TimeoutError):
                client.send(message * 3000)
            assert resident_bytes(broker) < before + (64 << 20)
            client.socket.settimeout(60.0)
            for _ in range(10):
                assert client.expect(methods.BasicReturn).reply_code == 312
                assert len(client.body()) == 50_000
        with client_of(broker):
            assert broker.process.poll() is None
