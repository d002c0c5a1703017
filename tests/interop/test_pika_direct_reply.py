"""Direct reply-to: a client consumes the pseudo-queue, servers reply to the name that its requests have."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.conftest import Names
from tests.interop.pika_stage import Inbox, Pika, consume, get, refused, wait

PSEUDO_QUEUE = "amq.rabbitmq.reply-to"


def requested(client: Any, server: Any, names: Names, body: bytes = b"request") -> str:
    """Send a request from the client's channel; returns the reply name that the server sees."""
    queue = names.queue("requests")
    server.queue_declare(queue)
    properties = pika.BasicProperties(reply_to=PSEUDO_QUEUE, correlation_id="7")
    client.basic_publish("", queue, body, properties)
    wait(server, lambda: server.queue_declare(queue, passive=True).method.message_count)
    message = get(server, queue)
    assert (message.body, message.properties.correlation_id) == (body, "7")
    return str(message.properties.reply_to)


def test_a_reply_comes_back_on_the_channel_of_the_request(client: Pika, names: Names) -> None:
    requester, server = client.channel(), client.channel()
    inbox = consume(requester, PSEUDO_QUEUE, auto_ack=True)
    name = requested(requester, server, names)
    assert name.startswith(PSEUDO_QUEUE + ".")
    properties = pika.BasicProperties(correlation_id="7", headers={"a": 1})
    for body in (b"first", b"", b"x" * 300_000):
        server.basic_publish("", name, body, properties)
    inbox.wait_for(3)
    assert inbox.bodies == [b"first", b"", b"x" * 300_000]
    first = inbox.messages[0]
    assert (first.method.exchange, first.method.routing_key, first.method.redelivered) == ("", name, False)
    assert (first.method.consumer_tag, first.properties.correlation_id) == (inbox.tag, "7")
    assert first.properties.headers == {"a": 1}


def test_replies_stay_apart_where_two_channels_wait(client: Pika, names: Names) -> None:
    connection, server = client.connect(), client.channel()
    channels = [connection.channel(), connection.channel()]
    inboxes = [consume(channel, PSEUDO_QUEUE, auto_ack=True) for channel in channels]
    reply_names = [requested(channel, server, names) for channel in channels]
    for name in reversed(reply_names):
        server.basic_publish("", name, name.encode())
    for inbox, name in zip(inboxes, reply_names, strict=True):
        inbox.wait_for(1)
        assert inbox.bodies == [name.encode()]


def test_declares_of_pseudo_queue_and_reply_name_say_whether_a_client_waits(client: Pika, names: Names) -> None:
    requester, server = client.channel(), client.channel()
    for passive in (True, False):
        declared = server.queue_declare(PSEUDO_QUEUE, passive=passive).method
        assert (declared.queue, declared.message_count, declared.consumer_count) == (PSEUDO_QUEUE, 0, 1)
    consume(requester, PSEUDO_QUEUE, auto_ack=True)
    name = requested(requester, server, names)
    declared = server.queue_declare(name, passive=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 0, 1)
    requester.close()
    with refused(404, f"no queue '{name}' in vhost '/'"):
        server.queue_declare(name, passive=True)


def test_a_cancelled_consumer_gets_no_replies_and_may_be_followed_by_another(client: Pika, names: Names) -> None:
    requester, server = client.channel(), client.channel()
    old = consume(requester, PSEUDO_QUEUE, auto_ack=True)
    old_name = requested(requester, server, names)
    requester.basic_cancel(old.tag)
    new = consume(requester, PSEUDO_QUEUE, auto_ack=True)
    new_name = requested(requester, server, names)
    assert new_name != old_name
    server.basic_publish("", old_name, b"late")
    server.basic_publish("", new_name, b"in time")
    new.wait_for(1)
    assert (new.bodies, old.bodies) == ([b"in time"], [])


def reply_is_returned(channel: Any, name: str) -> bool:
    """Whether a mandatory reply comes back as unroutable."""
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("", name, b"reply", mandatory=True)
    [message] = caught.value.messages
    return (message.method.reply_code, message.body) == (312, b"reply")


def test_a_mandatory_reply_is_returned_whether_its_client_is_there_or_not(client: Pika, names: Names) -> None:
    requester, server = client.channel(), client.channel()
    inbox = consume(requester, PSEUDO_QUEUE, auto_ack=True)
    name = requested(requester, server, names)
    assert reply_is_returned(server, name)
    inbox.wait_for(1)
    requester.close()
    assert reply_is_returned(server, name)
    if client.broker.is_warren:  # RabbitMQ decodes the name, and its channel fails with 541
        assert reply_is_returned(server, PSEUDO_QUEUE + ".bm9ib2R5.aGVyZQ==")


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [
        (lambda c: c.basic_consume(PSEUDO_QUEUE, print), 406, "reply consumer cannot acknowledge"),
        (
            lambda c: [c.basic_consume(PSEUDO_QUEUE, print, auto_ack=True) for _ in range(2)],
            406,
            "reply consumer already set",
        ),
        (
            lambda c: c.basic_publish("", "any", b"m", pika.BasicProperties(reply_to=PSEUDO_QUEUE)),
            406,
            "fast reply consumer does not exist",
        ),
        (lambda c: c.basic_get(PSEUDO_QUEUE), 404, f"no queue '{PSEUDO_QUEUE}' in vhost '/'"),
        (lambda c: c.queue_bind(PSEUDO_QUEUE, "amq.direct", "k"), 404, f"no queue '{PSEUDO_QUEUE}' in vhost '/'"),
        (lambda c: c.queue_declare(PSEUDO_QUEUE + "x"), 404, f"no queue '{PSEUDO_QUEUE}x' in vhost '/'"),
    ],
)
def test_what_the_pseudo_queue_does_not_allow_is_refused(client: Pika, action: Any, code: int, text: str) -> None:
    channel = client.channel()
    with refused(code, text):
        action(channel)


def test_the_capability_is_announced(client: Pika) -> None:
    connection = client.connect()
    assert connection._impl.server_properties["capabilities"]["direct_reply_to"] is True


def test_requests_with_an_ordinary_reply_to_keep_it(client: Pika, names: Names) -> None:
    requester, server = client.channel(), client.channel()
    consume(requester, PSEUDO_QUEUE, auto_ack=True)
    queue = names.queue()
    server.queue_declare(queue)
    for reply_to in ("mine", PSEUDO_QUEUE[:-1], PSEUDO_QUEUE + "."):
        requester.basic_publish("", queue, b"", pika.BasicProperties(reply_to=reply_to))
        wait(server, lambda: server.queue_declare(queue, passive=True).method.message_count)
        assert get(server, queue).properties.reply_to == reply_to
    assert isinstance(consume(requester, queue), Inbox)
