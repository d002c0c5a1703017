"""kombu: the same broker through declared things. Exchanges and queues as objects, producers, consumers, mixins, and
py-amqp below it, which logs in by AMQPLAIN, lets the broker name consumers and asks without waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import amqp.exceptions
import kombu
import pytest
from kombu.mixins import ConsumerProducerMixin

from tests.interop.brokers import Broker
from tests.interop.conftest import Names

SECONDS_MAX = 10.0


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    with kombu.Connection(broker.url, transport_options={"confirm_publish": True}) as opened:
        yield opened


def drain(connection: Any, is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < until, f"not within {SECONDS_MAX} s"
        try:
            connection.drain_events(timeout=0.05)
        except TimeoutError:
            continue


def bodies_in(queue: Any) -> list[Any]:
    found = []
    while fetched := queue.get(no_ack=True):
        found.append(fetched.payload)
    return found


def declared(connection: Any, names: Names, name: str = "queue", **options: Any) -> Any:
    queue = kombu.Queue(names.queue(name), durable=False, channel=connection.default_channel, **options)
    queue.declare()
    return queue


@pytest.mark.parametrize(
    ("type_", "key", "arguments", "reached"),
    [
        ("direct", "a.b", None, True),
        ("direct", "a.c", None, False),
        ("fanout", "", None, True),
        ("topic", "a.#", None, True),
        ("topic", "*", None, False),
        ("headers", "", {"x-match": "all", "kind": "pdf"}, True),
        ("headers", "", {"x-match": "all", "kind": "ps"}, False),
    ],
)
def test_a_declared_queue_gets_what_its_exchange_routes(
    connection: Any, names: Names, type_: str, key: str, arguments: Any, reached: bool
) -> None:
    exchange = kombu.Exchange(names.exchange(), type_, durable=False)
    queue = declared(connection, names, exchange=exchange, routing_key=key, binding_arguments=arguments)
    with connection.Producer() as producer:
        producer.publish({"n": 1}, exchange=exchange, routing_key="a.b", headers={"kind": "pdf"})
    assert bodies_in(queue) == [{"n": 1}] * reached


def test_a_queue_may_have_several_bindings_and_exchanges_too(connection: Any, names: Names) -> None:
    front = kombu.Exchange(names.exchange("front"), "topic", durable=False, channel=connection.default_channel)
    back = kombu.Exchange(names.exchange("back"), "direct", durable=False, channel=connection.default_channel)
    front.declare()
    back.declare()
    back.bind_to(front, routing_key="to.#")
    bindings = [kombu.binding(back, routing_key="to.a"), kombu.binding(front, routing_key="also")]
    queue = kombu.Queue(names.queue(), bindings=bindings, durable=False, channel=connection.default_channel)
    queue.declare()
    with connection.Producer(exchange=front) as producer:
        for key in ("to.a", "also", "to.b"):
            producer.publish(key, routing_key=key)
        assert bodies_in(queue) == ["to.a", "also"]
        back.unbind_from(front, routing_key="to.#")
        producer.publish("gone", routing_key="to.a")
    assert bodies_in(queue) == []


def test_an_alternate_exchange_takes_unroutable_messages(connection: Any, names: Names) -> None:
    rest = kombu.Exchange(names.exchange("rest"), "fanout", durable=False)
    left = declared(connection, names, exchange=rest)
    arguments = {"alternate-exchange": rest.name}
    front = kombu.Exchange(names.exchange("front"), "direct", durable=False, arguments=arguments)
    with connection.Producer(exchange=front) as producer:
        producer.publish("left", routing_key="unbound", declare=[front])
    assert bodies_in(left) == ["left"]


@pytest.mark.parametrize("serializer", ["json", "pickle", "raw"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_payloads_come_back_in_every_serialization(
    connection: Any, names: Names, serializer: str, compression: str | None
) -> None:
    payload: Any = b"x" * (1 << 20) if serializer == "raw" else {"list": [1, 2.5, None, "Grüße"], "text": "y" * 300_000}
    queue = declared(connection, names)
    with connection.Producer(serializer=serializer) as producer:
        producer.publish(payload, routing_key=queue.name, compression=compression)
    fetched = queue.get(no_ack=True, accept=["json", "pickle", "application/data"])
    assert fetched.payload == payload


def test_consumers_alternate_and_acknowledge(connection: Any, names: Names) -> None:
    """QP-06"""
    queue = declared(connection, names)
    seen: dict[str, list[int]] = {"one": [], "two": []}

    def consumer(name: str) -> Any:
        def take(body: int, message: Any) -> None:
            seen[name].append(body)
            message.ack()

        return connection.Consumer(queue, callbacks=[take])

    with consumer("one"), consumer("two"), connection.Producer() as producer:
        for number in range(10):
            producer.publish(number, routing_key=queue.name)
        drain(connection, lambda: sum(map(len, seen.values())) == 10)
    assert {name: len(numbers) for name, numbers in seen.items()} == {"one": 5, "two": 5}
    assert sorted(seen["one"] + seen["two"]) == list(range(10)) and seen["one"] == sorted(seen["one"])
    assert queue.queue_declare(passive=True).message_count == 0


@pytest.mark.parametrize("apply_global", [False, True])
def test_a_prefetch_holds_and_is_changed_under_a_running_consumer(
    broker: Broker, connection: Any, names: Names, apply_global: bool
) -> None:
    """A global prefetch is what Celery changes under running consumers; one per consumer is for the next."""
    queue = declared(connection, names)
    messages: list[Any] = []
    with kombu.Connection(broker.url) as other:
        consumer = other.Consumer(
            kombu.Queue(queue.name, durable=False), callbacks=[lambda _, message: messages.append(message)]
        )
        consumer.qos(prefetch_count=2, apply_global=apply_global)
        consumer.consume()
        with connection.Producer() as producer:
            for number in range(6):
                producer.publish(number, routing_key=queue.name)
        drain(other, lambda: len(messages) == 2)
        assert queue.queue_declare(passive=True).message_count == 4
        if apply_global:
            consumer.qos(prefetch_count=5, apply_global=True)
            drain(other, lambda: len(messages) == 5)
        messages[0].ack()
        drain(other, lambda: len(messages) == (6 if apply_global else 3))
        assert [message.payload for message in messages] == list(range(len(messages)))


def test_rejected_requeued_and_recovered_messages_come_back(connection: Any, names: Names) -> None:
    queue = declared(connection, names)
    with connection.Producer() as producer:
        for number in range(3):
            producer.publish(number, routing_key=queue.name)
    first, second, third = queue.get(), queue.get(), queue.get()
    second.requeue()
    first.reject()
    again = queue.get()
    assert (again.payload, again.delivery_info["redelivered"]) == (1, True)
    connection.default_channel.basic_recover(requeue=True)
    drain(connection, lambda: queue.queue_declare(passive=True).message_count == 2)
    assert bodies_in(queue) == [1, 2]
    assert third.payload == 2


def test_a_queue_has_the_limits_of_its_object(connection: Any, names: Names) -> None:
    """QP-07, QP-08"""
    dead = declared(connection, names, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    brief = declared(connection, names, "brief", message_ttl=0.03, queue_arguments=letters)
    short = declared(connection, names, "short", max_length=1, queue_arguments=letters)
    tight = declared(connection, names, "tight", max_length_bytes=1800)
    ranked = declared(connection, names, "ranked", max_priority=5)
    with connection.Producer(serializer="raw") as producer:
        producer.publish(b"late", routing_key=brief.name)
        drain(connection, lambda: dead.queue_declare(passive=True).message_count == 1)
        producer.publish(b"old", routing_key=short.name)
        producer.publish(b"new", routing_key=short.name)
        drain(connection, lambda: dead.queue_declare(passive=True).message_count == 2)
        for body in (b"8" * 1000, b"5" * 1000):
            producer.publish(body, routing_key=tight.name)
        for priority in (1, 3, 2):
            producer.publish(b"%d" % priority, routing_key=ranked.name, priority=priority)
        producer.publish(b"soon", routing_key=tight.name, expiration=0.02)
    dead_letters = [dead.get(no_ack=True) for _ in range(2)]
    assert [(each.payload, each.headers["x-death"][0]["reason"]) for each in dead_letters] == [
        (b"late", "expired"),
        (b"old", "maxlen"),
    ]
    assert (bodies_in(short), bodies_in(ranked)) == ([b"new"], [b"3", b"2", b"1"])
    assert bodies_in(tight)[:1] == [b"5" * 1000]


def test_exclusive_and_auto_delete_queues_go_when_they_are_unused(
    broker: Broker, connection: Any, names: Names
) -> None:
    own = kombu.Queue(f"{names.queue()}.own", exclusive=True, durable=False, channel=connection.default_channel)
    own.declare()
    with kombu.Connection(broker.url) as other:
        with pytest.raises(amqp.exceptions.ResourceLocked, match="RESOURCE_LOCKED"):
            kombu.Queue(own.name, channel=other.channel()).queue_declare(passive=True)
        brief = declared(other, names, "brief", auto_delete=True)
        with other.Consumer(brief, callbacks=[print]):
            assert brief.queue_declare(passive=True).consumer_count == 1
        with pytest.raises(amqp.exceptions.NotFound, match="NOT_FOUND - no queue"):
            brief.queue_declare(passive=True)


def test_an_unroutable_message_comes_back_and_a_full_queue_is_an_error(connection: Any, names: Names) -> None:
    full = declared(connection, names, max_length=1, queue_arguments={"x-overflow": "reject-publish"})
    returned: list[Any] = []
    with connection.Producer(on_return=lambda *result: returned.append(result)) as producer:
        producer.publish("lost", routing_key=f"{full.name}.none", mandatory=True)
        drain(connection, lambda: bool(returned))
        producer.publish("fits", routing_key=full.name)
        with pytest.raises(amqp.exceptions.MessageNacked):
            producer.publish("too much", routing_key=full.name)
    [(error, exchange, routing_key, message)] = returned
    assert (error.reply_code, error.reply_text, exchange) == (312, "NO_ROUTE", "")
    assert (routing_key, message.body) == (f"{full.name}.none", "lost")


def test_refusals_are_py_amqps_exceptions(broker: Broker, connection: Any, names: Names) -> None:
    queue = declared(connection, names)
    refusals: list[tuple[type[Exception], str, Callable[[Any], object]]] = [
        (amqp.exceptions.NotFound, "no queue", lambda c: c.queue_declare(f"{queue.name}.none", passive=True)),
        (
            amqp.exceptions.PreconditionFailed,
            "inequivalent arg 'durable'",
            lambda c: c.queue_declare(queue.name, durable=True),
        ),
        (amqp.exceptions.AccessRefused, "reserved prefix", lambda c: c.queue_declare("amq.mine")),
        (
            amqp.exceptions.PreconditionFailed,
            "unknown delivery tag 9",
            lambda c: (c.basic_ack(9), c.queue_purge(queue.name)),
        ),
    ]
    for error, text, action in refusals:
        with pytest.raises(error, match=text):
            action(connection.channel())
    with (
        kombu.Connection(broker.url) as other,
        pytest.raises(amqp.exceptions.InvalidCommand, match="exchange type 'nonsense'"),
    ):
        kombu.Exchange(names.exchange("odd"), "nonsense", channel=other.channel()).declare()
    assert queue.queue_declare(passive=True).queue == queue.name


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_both_ways_to_log_in_work(broker: Broker, method: str) -> None:
    with kombu.Connection(broker.url, login_method=method) as connection:
        assert connection.connect().connected
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    with (
        kombu.Connection(wrong, login_method=method) as connection,
        pytest.raises(amqp.exceptions.AccessRefused) as caught,
    ):
        connection.connect()
    assert (caught.value.reply_code, f"using authentication mechanism {method}" in str(caught.value)) == (403, True)


def test_a_vhost_that_is_not_there_is_refused(broker: Broker) -> None:
    with (
        kombu.Connection(broker.url.replace("%2F", "nowhere")) as connection,
        pytest.raises(amqp.exceptions.NotAllowed),
    ):
        connection.connect()


def test_the_broker_names_consumers_and_queues(connection: Any) -> None:
    channel = connection.default_channel
    queue = channel.queue_declare("", exclusive=True).queue
    assert queue.startswith("amq.gen-")
    assert channel.basic_consume(queue, callback=print).startswith("amq.ctag-")


def test_requests_without_waiting_are_executed(connection: Any, names: Names) -> None:
    channel = connection.default_channel
    queue, exchange = names.queue(), names.exchange()
    channel.exchange_declare(exchange, "fanout", nowait=True)
    channel.queue_declare(queue, nowait=True, auto_delete=False)
    channel.queue_bind(queue, exchange, nowait=True)
    seen: list[Any] = []
    channel.basic_consume(queue, consumer_tag="t", callback=seen.append, no_ack=True, nowait=True)
    channel.basic_publish(amqp.Message(b"m"), exchange, "")
    drain(connection, lambda: len(seen) == 1)
    channel.basic_cancel("t", nowait=True)
    channel.basic_publish(amqp.Message(b"n"), exchange, "")
    channel.queue_purge(queue, nowait=True)
    assert channel.queue_declare(queue, passive=True).message_count == 0
    channel.queue_delete(queue, nowait=True)
    channel.exchange_delete(exchange, nowait=True)
    with pytest.raises(amqp.exceptions.NotFound):
        channel.queue_declare(queue, passive=True)


def test_a_consumer_is_notified_when_its_queue_is_deleted(broker: Broker, connection: Any, names: Names) -> None:
    queue = declared(connection, names)
    cancelled: list[str] = []
    channel = connection.default_channel
    channel.basic_consume(queue.name, consumer_tag="t", callback=print, on_cancel=cancelled.append)
    with kombu.Connection(broker.url) as other:
        other.channel().queue_delete(queue.name)
    drain(connection, lambda: bool(cancelled))
    assert cancelled == ["t"]


def test_a_worker_of_mixins_answers_calls(broker: Broker, names: Names) -> None:
    """The loop that Celery-like programs run: reconnecting consumer, replies to exclusive queues."""
    requests = kombu.Queue(names.queue("asked"), durable=False)

    class Worker(ConsumerProducerMixin):  # type: ignore[misc]
        def __init__(self) -> None:
            self.connection = kombu.Connection(broker.url)

        def get_consumers(self, consumer_class: Any, channel: Any) -> list[Any]:
            return [consumer_class([requests], callbacks=[self.work])]

        def work(self, body: int, message: Any) -> None:
            reply = {
                "routing_key": message.properties["reply_to"],
                "correlation_id": message.properties["correlation_id"],
            }
            self.producer.publish(body * 2, exchange="", **reply)
            message.ack()

    worker = Worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    answers: dict[str, int] = {}
    with kombu.Connection(broker.url) as connection:
        reply_queue = kombu.Queue(f"{requests.name}.reply", exclusive=True, durable=False)

        def take(body: int, message: Any) -> None:
            answers[message.properties["correlation_id"]] = body

        with connection.Consumer(reply_queue, callbacks=[take], no_ack=True), connection.Producer() as producer:
            for number in range(5):
                reply = {"reply_to": reply_queue.name, "correlation_id": str(number)}
                producer.publish(number, routing_key=requests.name, declare=[requests], **reply)
            drain(connection, lambda: len(answers) == 5)
    worker.should_stop = True
    thread.join(SECONDS_MAX)
    worker.connection.release()
    assert answers == {str(number): 2 * number for number in range(5)} and not thread.is_alive()


def test_a_simple_queue_puts_and_gets(connection: Any, names: Names) -> None:
    with connection.SimpleQueue(names.queue("simple")) as queue:
        for number in range(3):
            queue.put({"n": number})
        assert queue.qsize() == 3
        fetched = [queue.get(timeout=SECONDS_MAX) for _ in range(3)]
        for message in fetched:
            message.ack()
    assert [message.payload for message in fetched] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_an_idle_connection_lives_by_its_heartbeats(broker: Broker) -> None:
    with kombu.Connection(broker.url, heartbeat=1) as connection:
        connection.connect()
        until = time.monotonic() + 3.2
        while time.monotonic() < until:
            connection.heartbeat_check()
            try:
                connection.drain_events(timeout=0.25)
            except TimeoutError:
                continue
        assert connection.default_channel.queue_declare("", exclusive=True).message_count == 0


def test_transactions_are_not_there_yet(broker: Broker) -> None:
    with kombu.Connection(broker.url) as connection:
        channel = connection.channel()
        if broker.is_warren:
            with pytest.raises(amqp.exceptions.AMQPNotImplementedError):
                channel.tx_select()
        else:
            channel.tx_select()
            assert channel.is_open
