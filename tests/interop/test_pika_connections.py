"""pika: coming and going. Credentials, vhosts, capabilities, heartbeats, many channels."""

from __future__ import annotations

import threading
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names
from tests.interop.pika_stage import SECONDS_MAX, Pika, bodies_in, consume, get, publish, refused, wait

CAPABILITIES = {
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
}


def refusal_of(client: Pika, **parameters: Any) -> str:
    with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
        client.connect(**parameters)
    return repr(caught.value)


@pytest.mark.parametrize("user", ["guest", "unknown"])
def test_a_wrong_password_is_refused_without_a_word_about_the_user(client: Pika, user: str) -> None:
    result = refusal_of(client, credentials=pika.PlainCredentials(user, "wrong"))
    assert result.startswith("ProbableAuthenticationError")
    assert "(403) 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN." in result


def test_a_vhost_that_is_not_there_is_refused(client: Pika) -> None:
    assert "(530) 'NOT_ALLOWED - vhost nowhere not found'" in refusal_of(client, virtual_host="nowhere")


def test_the_broker_names_what_it_can_do(client: Pika) -> None:
    result = client.connect()._impl.server_properties
    assert {name for name, can in result["capabilities"].items() if can} >= CAPABILITIES
    assert {"product", "version", "platform"} <= set(result)


def test_both_sides_agree_on_sizes(client: Pika) -> None:
    agreed = client.connect(channel_max=10, frame_max=8192, heartbeat=33)._impl.params
    assert (agreed.channel_max, agreed.frame_max, agreed.heartbeat) == (10, 8192, 33)


def test_an_idle_connection_lives_by_its_heartbeats(client: Pika, names: Names) -> None:
    """With a heartbeat of one second either side would have closed after two, had the other been silent."""
    connection = client.connect(heartbeat=1)
    over = threading.Event()
    connection.call_later(3.2, over.set)
    while not over.is_set():
        connection.process_data_events(time_limit=SECONDS_MAX)
    assert connection.is_open and connection.channel().queue_declare(names.queue()).method.message_count == 0


def test_a_client_without_heartbeats_is_closed(client: Pika, names: Names) -> None:
    """A client that negotiated heartbeats and sends none; its unacknowledged messages are requeued."""
    queue = names.queue()
    channel = client.channel()
    channel.queue_declare(queue)
    silent = client.connect(heartbeat=1).channel()
    inbox = consume(silent, queue)
    publish(channel, queue, b"m")
    inbox.wait_for(1)
    received = consume(channel, queue)  # the silent one is not read from here on, nor does pika write for it
    assert received.wait_for(1)[0].method.redelivered
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        silent.queue_declare(queue, passive=True)


def test_channels_are_closed_and_opened_by_themselves(client: Pika, names: Names) -> None:
    connection = client.connect()
    queue = names.queue()
    connection.channel(7).queue_declare(queue)
    one = connection.channel(8)
    with refused(404):
        one.queue_declare(f"{queue}.none", passive=True)
    again = connection.channel(8)
    assert again.queue_declare(queue, passive=True).method.queue == queue
    again.close()
    assert connection.channel(8).queue_declare(queue, passive=True).method.queue == queue


def test_many_channels_work_side_by_side(client: Pika, names: Names) -> None:
    connection = client.connect()
    queues = [names.queue(str(number)) for number in range(100)]
    channels = [connection.channel() for _ in queues]
    inboxes = []
    for channel, queue in zip(channels, queues, strict=True):
        channel.queue_declare(queue, exclusive=True)
        inboxes.append(consume(channel, queue))
    for channel, queue in zip(reversed(channels), queues, strict=True):
        publish(channel, queue, queue.encode())
    for inbox, queue in zip(inboxes, queues, strict=True):
        assert inbox.wait_for(1)[0].body == queue.encode()
    connection.close()


def test_many_connections_work_side_by_side(client: Pika, names: Names) -> None:
    queue = names.queue()
    channels = [client.channel() for _ in range(30)]
    channels[0].queue_declare(queue)
    for number, channel in enumerate(channels):
        publish(channel, queue, b"%d" % number)
    assert [int(get(channel, queue).body) for channel in channels] == list(range(30))


def test_a_closing_connection_leaves_what_was_confirmed(client: Pika, names: Names) -> None:
    queue = names.queue()
    channel = client.channel()
    channel.queue_declare(queue)
    publish(channel, queue, b"a", b"b")
    channel.connection.close()
    assert bodies_in(client.channel(), queue) == [b"a", b"b"]


def test_what_was_published_before_a_clean_close_is_not_lost(client: Pika, names: Names) -> None:
    """Without confirms: the close is answered behind the messages."""
    queue = names.queue()
    watching = client.channel()
    watching.queue_declare(queue)
    connection = client.connect()
    channel = connection.channel()
    for number in range(100):
        channel.basic_publish("", queue, b"%d" % number)
    connection.close()
    inbox = consume(watching, queue)
    assert [message.body for message in inbox.wait_for(100)] == [b"%d" % number for number in range(100)]


def test_a_url_is_all_that_a_client_needs(broker: Broker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        wait(connection.channel(), lambda: connection.is_open)
        assert connection.is_open
