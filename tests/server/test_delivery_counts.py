"""Delivery counts of quorum queues over restarts: the header continues where it was, and so does the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.served_broker import served_broker
from warren.base.messages import QueuePlace

QUORUM = {"x-queue-type": "quorum"}


def channel_to(port: int) -> Any:
    channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
    channel.confirm_delivery()
    return channel


def publish(channel: Any, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def taken(channel: Any, queue: str, auto_ack: bool = False) -> tuple[int, bytes, int]:
    """Tag, body and delivery count of the next message; the count is 0 without the header."""
    method, properties, body = channel.basic_get(queue, auto_ack)
    assert method is not None, f"{queue} is empty"
    return method.delivery_tag, body, (properties.headers or {}).get("x-delivery-count", 0)


def requeue(channel: Any, queue: str, times: int) -> None:
    for _ in range(times):
        channel.basic_reject(taken(channel, queue)[0], requeue=True)


def restart(broker: BrokerProcess, channel: Any, is_orderly: bool) -> Any:
    """When everything so far is durable."""
    channel.queue_declare("after", durable=True)
    publish(channel, "after", b"m")
    channel.connection.close()
    broker.stop() if is_orderly else broker.kill()
    broker.start()
    return channel_to(broker.port)


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_message_has_its_count_after_a_restart(tmp_path: Path, is_orderly: bool) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        channel = channel_to(broker.port)
        channel.queue_declare("queue", durable=True, arguments=QUORUM)
        publish(channel, "queue", b"first", b"second", b"third")
        requeue(channel, "queue", 3)
        channel = restart(broker, channel, is_orderly)
        first, second = taken(channel, "queue"), taken(channel, "queue")
        assert (first[1:], second[1:]) == ((b"first", 3), (b"second", 0))
        channel.basic_ack(first[0])
        channel.basic_reject(second[0], requeue=True)
        channel = restart(broker, channel, is_orderly)
        assert [taken(channel, "queue", auto_ack=True)[1:] for _ in range(2)] == [(b"second", 1), (b"third", 0)]
        channel.connection.close()


def test_the_limit_of_deliveries_counts_those_before_a_crash(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        channel = channel_to(broker.port)
        arguments = {**QUORUM, "x-delivery-limit": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("queue", durable=True, arguments=arguments)
        channel.queue_declare("dead", durable=True)
        publish(channel, "queue", b"m")
        requeue(channel, "queue", 2)
        channel = restart(broker, channel, is_orderly=False)
        requeue(channel, "queue", 2)
        counts = [channel.queue_declare(name, passive=True).method.message_count for name in ("queue", "dead")]
        assert counts == [0, 1]
        assert taken(channel, "dead")[1] == b"m"
        channel.connection.close()


def test_a_count_is_stored_for_persistent_messages_as_long_as_they_are_there(tmp_path: Path) -> None:
    """A transient message has no row: its sequence id may be given again after a crash."""
    with served_broker(tmp_path / "data") as (broker, port):
        channel = channel_to(port)
        channel.queue_declare("queue", durable=True, arguments=QUORUM)
        vhost = broker.vhosts.find("/")
        handle = vhost.find_queue("queue")

        def stored() -> list[int]:
            channel.queue_declare("queue", passive=True)  # behind everything that was sent
            return list(vhost.storage.requeues(QueuePlace(handle.id), handle.epoch).values())

        publish(channel, "queue", b"acked", b"purged")
        channel.basic_publish("", "queue", b"transient", pika.BasicProperties(delivery_mode=1))
        for _ in range(2):
            tags = [taken(channel, "queue")[0] for _ in range(3)]
            channel.basic_nack(tags[-1], multiple=True, requeue=True)
        assert stored() == [2, 2]
        assert taken(channel, "queue", auto_ack=True)[1:] == (b"acked", 2)
        assert stored() == [2]
        channel.queue_purge("queue")
        assert stored() == []
        channel.connection.close()
