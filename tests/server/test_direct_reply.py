"""Direct replies to a client that does not read them."""

from __future__ import annotations

from pathlib import Path

from tests.server.raw_client import RawClient
from tests.server.served_broker import served_broker
from warren.amqp import methods
from warren.amqp.content import DIRECT_REPLY_TO, Properties
from warren.server.connection import UNREAD_TIMES

REPLIES = 600
REPLY_BYTES = 100_000


def test_replies_that_a_client_leaves_unread_are_dropped_above_a_limit(tmp_path: Path) -> None:
    with served_broker(tmp_path / "data") as (broker, port), RawClient(port) as client, RawClient(port) as server:
        client.log_in().channel().declare("requests")
        client.send_method(1, methods.BasicConsume(queue=DIRECT_REPLY_TO, no_ack=True))
        client.expect(methods.BasicConsumeOk)
        client.publish(1, "requests", b"", properties=Properties(reply_to=DIRECT_REPLY_TO))
        name = reply_name_seen_by(server)
        for tag in range(1, REPLIES + 1):
            server.publish(1, name, b"x" * REPLY_BYTES)
            assert server.expect(methods.BasicAck).delivery_tag == tag
        transports = [connection.transport for connection in broker.server.connections]
        unsent = max(transport.get_write_buffer_size() for transport in transports if transport is not None)
        assert unsent < (UNREAD_TIMES + 1) * broker.settings.unsent_bytes_max
        assert 0 < broker.counts.unroutable_dropped < REPLIES
        delivered = REPLIES - broker.counts.unroutable_dropped
        for _ in range(delivered):
            client.expect(methods.BasicDeliver)
            assert len(client.body()) == REPLY_BYTES
        server.publish(1, name, b"last")
        client.expect(methods.BasicDeliver)
        assert client.body() == b"last"


def reply_name_seen_by(server: RawClient) -> str:
    server.log_in().channel(confirms=True)
    while True:
        server.send_method(1, methods.BasicGet(queue="requests", no_ack=True))
        if isinstance(server.method(), methods.BasicGetOk):
            header = server.frame()
            length = header.payload[14]
            return header.payload[15 : 15 + length].decode()
