"""amqpstorm: the same broker from threads. Message objects, consumers named by the broker, a channel a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import amqpstorm
import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names

SECONDS_MAX = 10.0


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., Any]]:
    connections: list[Any] = []

    def connect(**options: Any) -> Any:
        given = {"username": broker.user, "password": broker.password, "port": broker.port, **options}
        connections.append(amqpstorm.Connection(broker.host, **given))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


@pytest.fixture
def storm(connect: Callable[..., Any]) -> Any:
    """A channel with confirms."""
    channel = connect().channel()
    channel.confirm_deliveries()
    return channel


def wait(is_done: Callable[[], bool], channel: Any) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < until, f"not within {SECONDS_MAX} s"
        if channel.consumer_tags:
            channel.process_data_events()


def declared(channel: Any, names: Names, name: str = "queue", **options: Any) -> str:
    queue = names.queue(name)
    channel.queue.declare(queue, **options)
    return queue


def publish(channel: Any, queue: str, *bodies: str, **properties: Any) -> None:
    for body in bodies:
        assert channel.basic.publish(body, queue, properties=properties)


def ready(channel: Any, queue: str) -> int:
    count: int = channel.queue.declare(queue, passive=True)["message_count"]
    return count


def bodies_in(channel: Any, queue: str) -> list[str]:
    found = []
    while fetched := channel.basic.get(queue, no_ack=True):
        found.append(fetched.body)
    return found


def refusal(action: Callable[[], object], error: Any = amqpstorm.AMQPChannelError) -> tuple[int, str]:
    with pytest.raises(error) as caught:
        action()
    return caught.value.error_code, str(caught.value)


@pytest.mark.parametrize(
    ("type_", "key", "arguments", "reached"),
    [
        ("direct", "a.b", None, True),
        ("direct", "a", None, False),
        ("fanout", "", None, True),
        ("topic", "*.b", None, True),
        ("topic", "a.b.#.c", None, False),
        ("headers", "", {"x-match": "any", "n": 1, "m": 2}, True),
        ("headers", "", {"x-match": "all", "n": 1, "m": 2}, False),
    ],
)
def test_every_type_of_exchange_routes(
    storm: Any, names: Names, type_: str, key: str, arguments: Any, reached: bool
) -> None:
    exchange, queue = names.exchange(), declared(storm, names)
    storm.exchange.declare(exchange, type_)
    storm.queue.bind(queue, exchange, key, arguments=arguments)
    storm.basic.publish("m", "a.b", exchange, properties={"headers": {"n": 1}})
    assert bodies_in(storm, queue) == ["m"] * reached
    storm.queue.unbind(queue, exchange, key, arguments=arguments)
    storm.basic.publish("m", "a.b", exchange, properties={"headers": {"n": 1}})
    assert bodies_in(storm, queue) == []


def test_exchanges_are_bound_to_exchanges_and_have_alternates(storm: Any, names: Names) -> None:
    front, back, rest = (names.exchange(name) for name in ("front", "back", "rest"))
    storm.exchange.declare(rest, "fanout")
    storm.exchange.declare(back, "fanout")
    storm.exchange.declare(front, "direct", arguments={"alternate-exchange": rest})
    wanted, unwanted = declared(storm, names, "wanted"), declared(storm, names, "unwanted")
    storm.exchange.bind(back, front, "k")
    storm.queue.bind(wanted, back)
    storm.queue.bind(unwanted, rest)
    for key in ("k", "other"):
        storm.basic.publish(key, key, front)
    assert (bodies_in(storm, wanted), bodies_in(storm, unwanted)) == (["k"], ["other"])
    storm.exchange.unbind(back, front, "k")
    storm.basic.publish("k", "k", front)
    assert (bodies_in(storm, wanted), bodies_in(storm, unwanted)) == ([], ["k"])


def test_confirms_report_the_outcome_of_a_message(storm: Any, names: Names) -> None:
    full = declared(storm, names, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert storm.basic.publish("fits", full) is True
    assert storm.basic.publish("too much", full) is False
    with pytest.raises(amqpstorm.AMQPMessageError, match="not delivered: NO_ROUTE"):
        storm.basic.publish("lost", f"{full}.none", mandatory=True)
    assert bodies_in(storm, full) == ["fits"]


def test_a_consumer_gets_messages_in_order_and_acknowledges_them(storm: Any, names: Names) -> None:
    """QP-06"""
    queue = declared(storm, names)
    publish(storm, queue, *map(str, range(50)))
    storm.basic.qos(10)
    seen: list[str] = []

    def take(message: Any) -> None:
        seen.append(message.body)
        message.ack()

    tag = storm.basic.consume(take, queue)
    wait(lambda: len(seen) == 50, storm)
    assert seen == [str(number) for number in range(50)] and tag.startswith("amq.ctag-")
    assert storm.basic.cancel(tag)["consumer_tag"] == tag
    assert ready(storm, queue) == 0


def test_threads_with_a_channel_each_publish_and_consume_at_once(connect: Callable[..., Any], names: Names) -> None:
    connection = connect()
    main = connection.channel()
    queues = [declared(main, names, str(number)) for number in range(5)]
    counts: dict[str, int] = {}

    def work(queue: str) -> None:
        channel = connection.channel()
        channel.confirm_deliveries()
        publish(channel, queue, *map(str, range(40)))
        counts[queue] = len(bodies_in(channel, queue))
        channel.close()

    threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts == dict.fromkeys(queues, 40)


@pytest.mark.parametrize(("is_global", "taken"), [(False, 4), (True, 2)])
def test_a_prefetch_limits_each_consumer_and_a_global_one_the_channel(
    storm: Any, names: Names, is_global: bool, taken: int
) -> None:
    queue = declared(storm, names)
    storm.basic.qos(2, global_=is_global)
    messages: list[Any] = []
    for _ in range(2):
        storm.basic.consume(messages.append, queue)
    publish(storm, queue, *map(str, range(6)))
    wait(lambda: len(messages) == taken, storm)
    assert ready(storm, queue) == 6 - taken
    messages[0].ack()
    wait(lambda: len(messages) == taken + 1, storm)
    assert [message.body for message in messages] == [str(number) for number in range(taken + 1)]


def test_rejected_nacked_and_recovered_messages_come_back(storm: Any, names: Names) -> None:
    queue = declared(storm, names)
    publish(storm, queue, *map(str, range(5)))
    messages = [storm.basic.get(queue) for _ in range(4)]
    messages[0].ack()
    messages[2].nack(requeue=True)
    messages[1].reject(requeue=True)
    wait(lambda: ready(storm, queue) == 3, storm)
    again = storm.basic.get(queue)
    assert (again.body, again.redelivered, messages[0].redelivered) == ("1", True, False)
    storm.basic.recover(requeue=True)
    wait(lambda: ready(storm, queue) == 4, storm)
    assert bodies_in(storm, queue) == ["1", "2", "3", "4"]


def test_rejected_expired_and_dropped_messages_are_dead_lettered(storm: Any, names: Names) -> None:
    """QP-07, QP-08"""
    dead = declared(storm, names, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = declared(storm, names, arguments={**letters, "x-max-length": 2})
    brief = declared(storm, names, "brief", arguments={**letters, "x-message-ttl": 20})
    publish(storm, queue, "dropped", "refused", "kept")
    storm.basic.get(queue).reject(requeue=False)
    publish(storm, brief, "late")
    wait(lambda: ready(storm, dead) == 3, storm)
    found = {}
    while fetched := storm.basic.get(dead, no_ack=True):
        found[fetched.body] = fetched.properties["headers"]["x-death"][0]["reason"]
    assert found == {"dropped": "maxlen", "refused": "rejected", "late": "expired"}


def test_priorities_come_first(storm: Any, names: Names) -> None:
    queue = declared(storm, names, arguments={"x-max-priority": 3})
    for priority in (0, 2, 1, 3):
        publish(storm, queue, str(priority), priority=priority)
    assert bodies_in(storm, queue) == ["3", "2", "1", "0"]


def test_queues_of_every_lifetime(storm: Any, connect: Callable[..., Any], names: Names) -> None:
    own = storm.queue.declare("", exclusive=True)["queue"]
    assert own.startswith("amq.gen-")
    code, text = refusal(lambda: connect().channel().queue.declare(own, passive=True))
    assert (code, "RESOURCE_LOCKED" in text) == (405, True)
    brief = declared(storm, names, "brief", auto_delete=True)
    storm.basic.cancel(storm.basic.consume(print, brief))
    assert refusal(lambda: storm.queue.declare(brief, passive=True))[0] == 404


def test_purge_and_delete_count(storm: Any, connect: Callable[..., Any], names: Names) -> None:
    queue = declared(storm, names)
    publish(storm, queue, "a", "b", "c")
    code, text = refusal(lambda: connect().channel().queue.delete(queue, if_empty=True))
    assert (code, "not empty" in text) == (406, True)
    assert storm.queue.purge(queue)["message_count"] == 3
    publish(storm, queue, "d")
    assert storm.queue.delete(queue)["message_count"] == 1


def test_bodies_properties_and_headers_come_back(storm: Any, names: Names) -> None:
    queue = declared(storm, names)
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"n": 1, "real": 1.5, "text": "Grüße", "true": True, "list": [1, "two"], "table": {"in": "side"}},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "message_type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    for body in (b"", b"\x00\xff" * (1 << 19)):
        message = amqpstorm.Message.create(storm, body, dict(properties))
        assert message.publish(queue)
        fetched = storm.basic.get(queue, no_ack=True)
        assert fetched.body == body
        assert {name: fetched.properties[name] for name in properties} == properties


def test_a_refusal_closes_the_channel_and_leaves_the_connection_usable(
    connect: Callable[..., Any], names: Names
) -> None:
    connection = connect()
    channel = connection.channel()
    queue = declared(channel, names)
    refusals: list[tuple[int, str, Callable[[Any], object]]] = [
        (404, "no queue", lambda c: c.queue.declare(f"{queue}.none", passive=True)),
        (406, "inequivalent arg 'durable'", lambda c: c.queue.declare(queue, durable=True)),
        (403, "reserved prefix", lambda c: c.exchange.declare("amq.mine")),
        (
            406,
            "unsupported queue type 'bogus'",
            lambda c: c.queue.declare(f"{queue}.b", arguments={"x-queue-type": "bogus"}),
        ),
    ]
    for code, words, action in refusals:
        result, text = refusal(lambda action=action: action(connection.channel()))  # type: ignore[misc]
        assert (result, words in text) == (code, True), text
    assert connection.is_open and ready(channel, queue) == 0


def test_an_exclusive_consumer_suffers_no_other(storm: Any, connect: Callable[..., Any], names: Names) -> None:
    queue = declared(storm, names)
    storm.basic.consume(print, queue, exclusive=True)
    code, text = refusal(lambda: connect().channel().basic.consume(print, queue))
    assert (code, "in exclusive use" in text) == (403, True)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda channel: channel.exchange.declare("any", "nonsense"), "exchange type"),
        (lambda channel: channel.basic.qos(prefetch_size=1), "prefetch_size!=0"),
        (lambda channel: channel.basic.publish("m", "k", immediate=True), "immediate=true"),
    ],
    ids=["type", "prefetch size", "immediate"],
)
def test_what_is_not_understood_closes_the_connection(connect: Callable[..., Any], action: Any, text: str) -> None:
    channel = connect().channel()
    channel.confirm_deliveries()
    assert text in refusal(lambda: action(channel), amqpstorm.AMQPConnectionError)[1]


def test_unknown_users_are_refused_with_a_reason(connect: Callable[..., Any]) -> None:
    for options, text in (({"password": "wrong"}, "ACCESS_REFUSED"), ({"virtual_host": "nowhere"}, "NOT_ALLOWED")):
        assert text in refusal(lambda options=options: connect(**options), amqpstorm.AMQPConnectionError)[1]  # type: ignore[misc]


def test_an_idle_connection_lives_by_its_heartbeats(connect: Callable[..., Any], names: Names) -> None:
    connection = connect(heartbeat=1)
    assert not threading.Event().wait(3.2)
    assert ready(connection.channel(), declared(connection.channel(), names)) == 0
    assert connection.server_properties["capabilities"]["connection.blocked"]


def test_transactions_are_not_there_yet(broker: Broker, connect: Callable[..., Any], names: Names) -> None:
    channel = connect().channel()
    if broker.is_warren:
        assert "NOT_IMPLEMENTED" in refusal(channel.tx.select, amqpstorm.AMQPConnectionError)[1]
        return
    queue = declared(channel, names)
    with channel.tx:
        channel.basic.publish("m", queue)
    assert bodies_in(channel, queue) == ["m"]
