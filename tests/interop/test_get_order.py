"""basic.get beside other methods of the same segment: raw frames, so that a broker may execute them in one batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names
from tests.server.raw_client import RawClient
from warren.amqp import frames, methods
from warren.amqp.methods import Method


@pytest.fixture
def raw(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client.log_in().channel()


def publishes(client: RawClient, queue: str, *bodies: bytes) -> bytes:
    return b"".join(client.message(1, methods.BasicPublish(routing_key=queue), body) for body in bodies)


def method(of: Method) -> bytes:
    return frames.method_frame(1, of)


def get(queue: str, no_ack: bool = True) -> bytes:
    return method(methods.BasicGet(queue=queue, no_ack=no_ack))


def received(client: RawClient) -> tuple[bytes, int]:
    """The body, and how many messages are behind it."""
    answer = client.expect(methods.BasicGetOk)
    return client.body(), answer.message_count


def take(client: RawClient, queue: str, count: int) -> int:
    """Get so many messages without an ack; the last tag."""
    client.send(get(queue, no_ack=False) * count)
    for _ in range(count):
        tag = client.expect(methods.BasicGetOk).delivery_tag
        client.body()
    return tag


def test_a_waiting_consumer_precedes_a_get_behind_the_publish(raw: RawClient, broker: Broker, names: Names) -> None:
    queue = names.queue()
    raw.declare(queue)
    with RawClient(broker.port) as other:
        other.log_in().channel()
        other.send_method(1, methods.BasicConsume(queue=queue, no_ack=True))
        other.expect(methods.BasicConsumeOk)
        for body in (b"a", b"b", b"c"):
            raw.send(publishes(raw, queue, body) + get(queue))
            raw.expect(methods.BasicGetEmpty)
            other.expect(methods.BasicDeliver)
            assert other.body() == body


def test_a_get_behind_publishes_sees_no_more_than_the_limit(raw: RawClient, names: Names) -> None:
    queue = names.queue()
    raw.declare(queue, arguments={"x-max-length": 2})
    raw.send(publishes(raw, queue, b"1", b"2", b"3", b"4") + get(queue))
    assert received(raw) == (b"3", 1)


@pytest.mark.parametrize(("behind", "expected"), [([b"3"], (b"2", 1)), ([b"3", b"4"], (b"3", 1))])
def test_a_get_behind_a_requeue_over_the_limit_sees_no_more_than_it(
    raw: RawClient, names: Names, behind: list[bytes], expected: tuple[bytes, int]
) -> None:
    queue = names.queue()
    raw.declare(queue, arguments={"x-max-length": 2})
    raw.send(publishes(raw, queue, b"1", b"2"))
    tag = take(raw, queue, 2)
    raw.send(publishes(raw, queue, *behind))
    raw.send(method(methods.BasicNack(delivery_tag=tag, multiple=True, requeue=True)) + get(queue))
    assert received(raw) == expected


def test_a_get_does_not_see_what_is_published_behind_it(raw: RawClient, names: Names) -> None:
    queue = names.queue()
    raw.declare(queue)
    raw.send(get(queue) + publishes(raw, queue, b"1"))
    raw.expect(methods.BasicGetEmpty)


@pytest.mark.parametrize("method_name", ["nack", "recover"])
def test_a_get_does_not_see_what_is_requeued_behind_it(raw: RawClient, names: Names, method_name: str) -> None:
    queue = names.queue()
    raw.declare(queue)
    raw.send(publishes(raw, queue, b"1", b"2"))
    tag = take(raw, queue, 1)
    nack, recover = methods.BasicNack(delivery_tag=tag, requeue=True), methods.BasicRecoverAsync(requeue=True)
    raw.send(get(queue) + method(nack if method_name == "nack" else recover))
    assert received(raw) == (b"2", 0)


def test_a_get_precedes_a_consumer_that_comes_behind_it(raw: RawClient, names: Names) -> None:
    queue = names.queue()
    raw.declare(queue)
    raw.send(publishes(raw, queue, b"1", b"2"))
    raw.declare(queue)
    raw.send(get(queue) + method(methods.BasicConsume(queue=queue, no_ack=True)))
    assert received(raw) == (b"1", 1)
