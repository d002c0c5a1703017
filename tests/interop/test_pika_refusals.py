"""pika: what a broker refuses, with which code, in which words, and what stays usable after it.

Each row is something a client should not do. The words are RabbitMQ's, since programs are known to read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names
from tests.interop.pika_stage import Pika, publish, refused

LOCKED = "cannot obtain exclusive access to locked queue"
Action = Callable[[Any, str, str], object]


def queue_with(**arguments: Any) -> Action:
    names = {name.replace("_", "-"): value for name, value in arguments.items()}
    return lambda channel, queue, _: channel.queue_declare(f"{queue}.other", durable=True, arguments=names)


def published(**properties: Any) -> Action:
    return lambda channel, queue, _: publish(channel, queue, b"", **properties)


# What is done with a channel, a queue and an exchange that are there, neither durable; code; words.
CHANNEL_CLOSED: dict[str, tuple[Action, int, str]] = {
    "a queue that is not there": (
        lambda c, q, x: c.queue_declare(f"{q}.no", passive=True),
        404,
        "NOT_FOUND - no queue",
    ),
    "an exchange that is not there": (lambda c, q, x: c.exchange_declare(f"{x}.no", passive=True), 404, "no exchange"),
    "bind an unknown queue": (lambda c, q, x: c.queue_bind(f"{q}.no", x), 404, "no queue"),
    "bind to an unknown exchange": (lambda c, q, x: c.queue_bind(q, f"{x}.no"), 404, "no exchange"),
    "purge an unknown queue": (lambda c, q, x: c.queue_purge(f"{q}.no"), 404, "no queue"),
    "get from an unknown queue": (lambda c, q, x: c.basic_get(f"{q}.no"), 404, "no queue"),
    "consume an unknown queue": (lambda c, q, x: c.basic_consume(f"{q}.no", print), 404, "no queue"),
    "publish to an unknown exchange": (lambda c, q, x: c.basic_publish(f"{x}.no", "", b""), 404, "no exchange"),
    "the last queue where none was declared": (lambda c, q, x: c.basic_get(""), 404, "no previously declared queue"),
    "a queue of the broker's names": (
        lambda c, q, x: c.queue_declare("amq.mine"),
        403,
        "contains reserved prefix 'amq.*'",
    ),
    "an exchange of the broker's names": (
        lambda c, q, x: c.exchange_declare("amq.mine"),
        403,
        "reserved prefix 'amq.*'",
    ),
    "delete a system exchange": (lambda c, q, x: c.exchange_delete("amq.direct"), 403, "deletion of system exchange"),
    "bind to the default exchange": (
        lambda c, q, x: c.queue_bind(q, "", "k"),
        403,
        "not permitted on the default exchange",
    ),
    "delete the default exchange": (
        lambda c, q, x: c.exchange_delete(""),
        403,
        "not permitted on the default exchange",
    ),
    "durable now": (
        lambda c, q, x: c.queue_declare(q, durable=True),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/': "
        "received 'true' but current is 'false'",
    ),
    "auto-delete now": (
        lambda c, q, x: c.queue_declare(q, auto_delete=True),
        406,
        "inequivalent arg 'auto_delete' for queue '{queue}' in vhost '/': received 'true' but current is 'false'",
    ),
    "a time to live now": (
        lambda c, q, x: c.queue_declare(q, arguments={"x-message-ttl": 5}),
        406,
        "inequivalent arg 'x-message-ttl' for queue '{queue}' in vhost '/': "
        "received the value '5' of type 'signedint' but current is none",
    ),
    "exclusive now": (
        lambda c, q, x: c.queue_declare(q, exclusive=True),
        405,
        f"RESOURCE_LOCKED - {LOCKED} '{{queue}}'",
    ),
    "another type of exchange": (
        lambda c, q, x: c.exchange_declare(x, "fanout"),
        406,
        "inequivalent arg 'type' for exchange '{exchange}' in vhost '/': received 'fanout' but current is 'direct'",
    ),
    "an exchange internal now": (
        lambda c, q, x: c.exchange_declare(x, internal=True),
        406,
        "inequivalent arg 'internal'",
    ),
    "another alternate exchange": (
        lambda c, q, x: c.exchange_declare(x, arguments={"alternate-exchange": "a"}),
        406,
        "inequivalent arg 'alternate-exchange' for exchange '{exchange}' in vhost '/': "
        "received the value 'a' of type 'longstr' but current is none",
    ),
    "a queue type that is unknown": (
        queue_with(x_queue_type="bogus"),
        406,
        "invalid arg 'x-queue-type' for queue '{queue}.other' in vhost '/': \"unsupported queue type 'bogus'\"",
    ),
    "a negative time to live": (queue_with(x_message_ttl=-5), 406, "invalid arg 'x-message-ttl' for queue"),
    "a time to live in letters": (queue_with(x_message_ttl="5"), 406, '"expected integer, got longstr"'),
    "a queue that expires at once": (queue_with(x_expires=0), 406, "{{value_zero,0}}"),
    "too many priorities": (queue_with(x_max_priority=300), 406, "{{max_value_exceeded,300}}"),
    "an unknown overflow": (queue_with(x_overflow="maybe"), 406, "invalid arg 'x-overflow' for queue"),
    "a dead letter's key without exchange": (
        queue_with(x_dead_letter_routing_key="k"),
        406,
        "routing_key_but_no_dlx_defined",
    ),
    "acknowledge what never came": (
        lambda c, q, x: c.basic_ack(17) or c.queue_purge(q),
        406,
        "unknown delivery tag 17",
    ),
    "reject what never came": (lambda c, q, x: c.basic_reject(17) or c.queue_purge(q), 406, "unknown delivery tag 17"),
    "nack what never came": (lambda c, q, x: c.basic_nack(17) or c.queue_purge(q), 406, "unknown delivery tag 17"),
    "another user's id": (
        published(user_id="joe"),
        406,
        "user_id property set to 'joe' but authenticated user was 'guest'",
    ),
    "an expiration in letters": (published(expiration="soon"), 406, "invalid expiration 'soon'"),
    "a CC that is no list": (published(headers={"CC": "x"}), 406, "CC"),
    "an x-match that is unknown": (
        lambda c, q, x: c.queue_bind(q, "amq.headers", "", arguments={"x-match": "some"}),
        406,
        "Invalid x-match field",
    ),
    "a consumer's priority in letters": (
        lambda c, q, x: c.basic_consume(q, print, arguments={"x-priority": "high"}),
        406,
        "invalid arg 'x-priority' for queue",
    ),
}

CONNECTION_CLOSED: dict[str, tuple[Action, int, str]] = {
    "a type of exchange that is unknown": (
        lambda c, q, x: c.exchange_declare(f"{x}.other", "nonsense"),
        503,
        "exchange type 'nonsense'",
    ),
    "a prefetch in bytes": (lambda c, q, x: c.basic_qos(prefetch_size=10), 540, "prefetch_size!=0 (10)"),
    "recover without requeue": (lambda c, q, x: c.basic_recover(requeue=False), 540, "requeue=false"),
    "stop the flow": (lambda c, q, x: c.flow(False), 540, "active=false"),
}


def tried(client: Pika, names: Names, done: tuple[Action, int, str], error: Any) -> Any:
    """Does it on a channel of its own and sees it refused; a queue and an exchange are there for it."""
    connection = client.connect()
    queue, exchange = names.queue(), names.exchange()
    before = connection.channel()
    before.queue_declare(queue)
    before.exchange_declare(exchange)
    action, code, text = done
    channel = connection.channel()
    channel.confirm_delivery()
    with refused(code, text.format(queue=queue, exchange=exchange), error):
        action(channel, queue, exchange)
    return connection


@pytest.mark.parametrize("what", CHANNEL_CLOSED)
def test_a_refusal_closes_the_channel_and_leaves_the_connection_usable(client: Pika, names: Names, what: str) -> None:
    connection = tried(client, names, CHANNEL_CLOSED[what], pika.exceptions.ChannelClosedByBroker)
    assert connection.channel().queue_declare(names.queues[0], passive=True).method.queue == names.queues[0]


@pytest.mark.parametrize("what", CONNECTION_CLOSED)
def test_what_is_not_understood_closes_the_connection(client: Pika, names: Names, what: str) -> None:
    connection = tried(client, names, CONNECTION_CLOSED[what], pika.exceptions.ConnectionClosedByBroker)
    assert connection.is_closed


def test_a_stream_is_refused_with_what_to_use_instead(broker: Broker, client: Pika, names: Names) -> None:
    """RabbitMQ has streams; Warren has none, and refuses the type as RabbitMQ refuses an unknown one."""
    queue = names.queue()
    channel = client.channel()
    arguments = {"x-queue-type": "stream"}
    if not broker.is_warren:
        assert channel.queue_declare(queue, durable=True, arguments=arguments).method.queue == queue
        return
    text = f"invalid arg 'x-queue-type' for queue '{queue}' in vhost '/': \"unsupported queue type 'stream': "
    with refused(406, f'{text}declare a quorum queue for each reader and bind them to one fanout exchange"'):
        channel.queue_declare(queue, durable=True, arguments=arguments)


def test_transactions_are_not_there_yet(broker: Broker, client: Pika) -> None:
    channel = client.connect().channel()
    if not broker.is_warren:
        assert isinstance(channel.tx_select().method, pika.spec.Tx.SelectOk)
        return
    with refused(540, "NOT_IMPLEMENTED", pika.exceptions.ConnectionClosedByBroker):
        channel.tx_select()


def test_what_should_not_be_there_may_be_unbound_and_deleted(channel: Any, names: Names) -> None:
    """Clean-up can be run twice."""
    queue, exchange = names.queue(), names.exchange()
    assert channel.queue_delete(queue).method.message_count == 0
    assert isinstance(channel.exchange_delete(exchange).method, pika.spec.Exchange.DeleteOk)
    channel.queue_declare(queue)
    assert isinstance(channel.queue_unbind(queue, exchange, "k").method, pika.spec.Queue.UnbindOk)
    assert isinstance(channel.queue_unbind(queue, "amq.direct", "k").method, pika.spec.Queue.UnbindOk)


def test_a_second_acknowledgement_of_one_message_is_refused(channel: Any, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue)
    publish(channel, queue, b"once")
    tag = channel.basic_get(queue)[0].delivery_tag
    channel.basic_ack(tag)
    with refused(406, f"unknown delivery tag {tag}"):
        channel.basic_ack(tag)
        channel.queue_purge(queue)


@pytest.mark.parametrize(
    "action",
    [
        lambda channel, queue: channel.queue_declare(queue, passive=True),
        lambda channel, queue: channel.queue_declare(queue, exclusive=True),
        lambda channel, queue: channel.basic_get(queue),
        lambda channel, queue: channel.basic_consume(queue, print),
        lambda channel, queue: channel.queue_purge(queue),
        lambda channel, queue: channel.queue_bind(queue, "amq.direct"),
        lambda channel, queue: channel.queue_delete(queue),
    ],
    ids=["passive", "declare", "get", "consume", "purge", "bind", "delete"],
)
def test_an_exclusive_queue_is_locked_for_other_connections(client: Pika, names: Names, action: Any) -> None:
    queue = names.queue()
    mine = client.channel()
    mine.queue_declare(queue, exclusive=True)
    with refused(405, f"RESOURCE_LOCKED - {LOCKED} '{queue}' in vhost '/'"):
        action(client.channel(), queue)
    mine.queue_delete(queue)
