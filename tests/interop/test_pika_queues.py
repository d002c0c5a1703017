"""pika: how long queues and their messages live. Names, owners, expiry, limits, priorities, dead letters."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.conftest import Names
from tests.interop.pika_stage import (
    Message,
    Pika,
    bodies_in,
    consume,
    get,
    publish,
    ready,
    refused,
    wait,
    wait_until_ready,
)


def is_there(client: Pika, queue: str) -> bool:
    channel = client.connect().channel()
    try:
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code != 404:
            raise
        return False
    return True


@pytest.mark.parametrize("durable", [False, True])
def test_a_queue_is_declared_again_as_it_was(channel: Any, names: Names, durable: bool) -> None:
    queue = names.queue()
    arguments = {"x-max-length": 10, "x-expires": 60_000}
    channel.queue_declare(queue, durable=durable, arguments=arguments)
    publish(channel, queue, b"a", b"b")
    again = channel.queue_declare(queue, durable=durable, arguments=arguments)
    assert (again.method.queue, again.method.message_count, again.method.consumer_count) == (queue, 2, 0)


def test_a_passive_declare_counts_messages_and_consumers(channel: Any, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue)
    channel.basic_qos(prefetch_count=1)
    inbox = consume(channel, queue)
    publish(channel, queue, b"a", b"b", b"c")
    inbox.wait_for(1)
    result = channel.queue_declare(queue, passive=True).method
    assert (result.message_count, result.consumer_count) == (2, 1)


def test_the_broker_names_a_queue_and_the_channel_remembers_it(channel: Any, names: Names) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    other = channel.queue_declare("", exclusive=True).method.queue
    assert queue.startswith("amq.gen-") and other.startswith("amq.gen-") and queue != other
    publish(channel, other, b"m")
    assert get(channel, "").body == b"m"  # the empty name: the queue declared last
    assert channel.queue_declare(queue, passive=True).method.queue == queue
    with refused(403, f"queue name '{queue}' contains reserved prefix 'amq.*'"):
        channel.queue_declare(queue, exclusive=True)  # such a name is the broker's to give, also a second time


def test_exclusive_queues_go_with_their_connection(client: Pika, names: Names) -> None:
    queue = names.queue()
    connection = client.connect()
    connection.channel().queue_declare(queue, exclusive=True)
    connection.close()
    assert not is_there(client, queue)


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: Any, client: Pika, names: Names) -> None:
    """QP-06: consumers decide over the queue's life."""
    queue = names.queue()
    channel.queue_declare(queue, auto_delete=True)
    one, two = consume(channel, queue), consume(channel, queue)
    channel.basic_cancel(one.tag)
    assert is_there(client, queue)
    channel.basic_cancel(two.tag)
    assert not is_there(client, queue)


def expire(channel: Any, queue: str) -> None:
    """Waits until the queue is gone, by publishing: a passive declare would count as use and make it live longer."""
    with pytest.raises(pika.exceptions.UnroutableError):
        wait(channel, lambda: bool(channel.basic_publish("", queue, b"m", mandatory=True)))


def test_an_unused_queue_expires(channel: Any, client: Pika, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue, arguments={"x-expires": 100, "x-max-length": 1})
    expire(channel, queue)
    assert not is_there(client, queue)


def test_a_queue_with_a_consumer_does_not_expire(channel: Any, names: Names) -> None:
    queue, brief = names.queue(), names.queue("brief")
    channel.queue_declare(queue, arguments={"x-expires": 100})
    inbox = consume(channel, queue)
    channel.queue_declare(brief, arguments={"x-expires": 300, "x-max-length": 1})
    expire(channel, brief)  # three times as long as the other may be unused
    publish(channel, queue, b"still here")
    assert inbox.wait_for(1)[0].body == b"still here"
    inbox.ack(0)


def test_a_queue_expires_after_its_last_consumer_has_departed(channel: Any, client: Pika, names: Names) -> None:
    queue, brief = names.queue(), names.queue("brief")
    channel.queue_declare(queue, arguments={"x-expires": 100, "x-max-length": 1})
    inbox = consume(channel, queue, auto_ack=True)
    channel.queue_declare(brief, arguments={"x-expires": 300, "x-max-length": 1})
    expire(channel, brief)
    channel.basic_cancel(inbox.tag)
    expire(channel, queue)
    assert not is_there(client, queue)


def test_a_queue_in_use_or_not_empty_is_deleted_only_if_that_is_meant(channel: Any, client: Pika, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue)
    publish(channel, queue, b"a", b"b")
    with refused(406, f"queue '{queue}' in vhost '/' not empty"):
        client.channel().queue_delete(queue, if_empty=True)
    inbox = consume(channel, queue)
    inbox.wait_for(2)
    with refused(406, f"queue '{queue}' in vhost '/' in use"):
        client.channel().queue_delete(queue, if_unused=True)
    channel.basic_cancel(inbox.tag)
    channel.basic_nack(0, multiple=True)
    wait_until_ready(channel, queue, 2)
    assert channel.queue_delete(queue, if_unused=True).method.message_count == 2
    assert not is_there(client, queue)


def test_purge_counts_what_was_ready_and_leaves_what_is_unacknowledged(channel: Any, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue)
    publish(channel, queue, b"held", b"gone", b"gone")
    unacked_tag = channel.basic_get(queue)[0].delivery_tag
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_nack(unacked_tag, requeue=True)
    wait_until_ready(channel, queue, 1)
    assert bodies_in(channel, queue) == [b"held"]


def test_a_message_lives_as_long_as_its_expiration(channel: Any, names: Names) -> None:
    """QP-07"""
    queue = names.queue()
    channel.queue_declare(queue)
    publish(channel, queue, b"brief", expiration="50")
    publish(channel, queue, b"long", expiration="600000")
    wait_until_ready(channel, queue, 1)
    assert get(channel, queue).body == b"long"


def test_messages_live_no_longer_than_the_ttl_of_their_queue(channel: Any, names: Names) -> None:
    """QP-07"""
    queue = names.queue()
    channel.queue_declare(queue, arguments={"x-message-ttl": 50})
    publish(channel, queue, b"a")
    publish(channel, queue, b"b", expiration="600000")
    wait_until_ready(channel, queue, 0)
    assert channel.basic_get(queue) == (None, None, None)


@pytest.mark.parametrize("limit", [{"x-max-length": 3}, {"x-max-length-bytes": 3500}])
def test_a_full_queue_drops_its_oldest_messages(channel: Any, names: Names, limit: dict[str, int]) -> None:
    """QP-08: bytes are counted a little differently by both, so the bodies are large."""
    queue = names.queue()
    channel.queue_declare(queue, arguments=limit)
    bodies = [letter * 1000 for letter in (b"a", b"b", b"c", b"d", b"e")]
    publish(channel, queue, *bodies)
    assert bodies_in(channel, queue) == bodies[2:]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_may_nack_instead(channel: Any, names: Names, overflow: str) -> None:
    """QP-08"""
    queue, dead = names.queue(), names.queue("dead")
    channel.queue_declare(dead)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(queue, arguments={**arguments, "x-max-length": 2, "x-overflow": overflow})
    publish(channel, queue, b"m1", b"m2")
    with pytest.raises(pika.exceptions.NackError):
        publish(channel, queue, b"m3")
    assert bodies_in(channel, queue) == [b"m1", b"m2"]
    wait_until_ready(channel, dead, int(overflow == "reject-publish-dlx"))
    publish(channel, queue, b"m4")
    assert bodies_in(channel, queue) == [b"m4"]


def test_higher_priorities_come_first_and_equal_ones_in_order(channel: Any, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue, arguments={"x-max-priority": 5})
    for body, priority in [(b"low", 1), (b"none", None), (b"high", 5), (b"low2", 1), (b"beyond", 9), (b"middle", 3)]:
        publish(channel, queue, body, priority=priority)
    assert bodies_in(channel, queue) == [b"high", b"beyond", b"middle", b"low", b"low2", b"none"]


class Graveyard:
    """A queue whose dead letters go through an exchange to another queue."""

    def __init__(self, channel: Any, names: Names, **arguments: Any) -> None:
        self.channel, self.queue, self.dead, self.exchange = (
            channel,
            names.queue(),
            names.queue("dead"),
            names.exchange(),
        )
        channel.exchange_declare(self.exchange, "fanout")
        channel.queue_declare(self.dead)
        channel.queue_bind(self.dead, self.exchange)
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        channel.queue_declare(self.queue, arguments={"x-dead-letter-exchange": self.exchange, **named})

    def letter(self) -> Message:
        wait_until_ready(self.channel, self.dead, 1)
        return get(self.channel, self.dead)


def death_of(message: Message) -> dict[str, Any]:
    [death] = message.properties.headers["x-death"]
    return {name: value for name, value in death.items() if name != "time"}


@pytest.mark.parametrize("method_name", ["reject", "nack"])
def test_a_rejected_message_is_dead_lettered(channel: Any, names: Names, method_name: str) -> None:
    grave = Graveyard(channel, names)
    publish(channel, grave.queue, b"m", headers={"mine": 1}, message_id="id")
    tag = channel.basic_get(grave.queue)[0].delivery_tag
    (channel.basic_reject if method_name == "reject" else channel.basic_nack)(tag, requeue=False)
    letter = grave.letter()
    assert (letter.body, letter.properties.message_id, letter.properties.headers["mine"]) == (b"m", "id", 1)
    assert death_of(letter) == {
        "reason": "rejected",
        "queue": grave.queue,
        "count": 1,
        "exchange": "",
        "routing-keys": [grave.queue],
    }
    first = {name: letter.properties.headers[f"x-first-death-{name}"] for name in ("reason", "queue", "exchange")}
    assert first == {"reason": "rejected", "queue": grave.queue, "exchange": ""}
    assert (letter.method.exchange, letter.method.routing_key) == (grave.exchange, grave.queue)


def test_entries_of_x_death_that_a_client_wrote_are_merged(channel: Any, names: Names) -> None:
    """By queue and reason; without a count they are counted. Newest first in Warren; RabbitMQ 3.10 turns the order of
    all but the first round at each death."""
    grave = Graveyard(channel, names)
    deaths = [{"queue": queue, "reason": "expired"} for queue in ("a", "b", "a", "c")]
    publish(channel, grave.queue, b"m", headers={"x-death": deaths})
    channel.basic_reject(channel.basic_get(grave.queue)[0].delivery_tag, requeue=False)
    first, *others = grave.letter().properties.headers["x-death"]
    assert (first["queue"], first["count"]) == (grave.queue, 1)
    assert {each["queue"]: each["count"] for each in others} == {"a": 2, "b": 1, "c": 1}
    assert [each["queue"] for each in others] in (["a", "b", "c"], ["c", "b", "a"])


def test_an_expired_message_is_dead_lettered_without_its_expiration(channel: Any, names: Names) -> None:
    """QP-07"""
    grave = Graveyard(channel, names, dead_letter_routing_key="late")
    publish(channel, grave.queue, b"m", expiration="20")
    letter = grave.letter()
    death = death_of(letter)
    assert (death["reason"], death["original-expiration"], death["routing-keys"]) == ("expired", "20", [grave.queue])
    assert (letter.properties.expiration, letter.method.routing_key) == (None, "late")


def test_what_a_full_queue_drops_is_dead_lettered(channel: Any, names: Names) -> None:
    """QP-08"""
    grave = Graveyard(channel, names, max_length=1)
    publish(channel, grave.queue, b"old", b"new")
    letter = grave.letter()
    assert (letter.body, death_of(letter)["reason"]) == (b"old", "maxlen")
    assert bodies_in(channel, grave.queue) == [b"new"]


def test_deaths_of_one_kind_are_counted(channel: Any, names: Names) -> None:
    queue = names.queue()
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": ""})  # back to where it was: a retry loop
    publish(channel, queue, b"m")
    for count in range(1, 4):
        channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
        wait_until_ready(channel, queue, 1)
        method, properties, _ = channel.basic_get(queue)
        assert death_of(Message(method, properties, b""))["count"] == count
        channel.basic_nack(method.delivery_tag, requeue=True)
        wait_until_ready(channel, queue, 1)


def test_a_message_that_only_expires_in_circles_is_dropped(channel: Any, names: Names) -> None:
    queue, other = names.queue(), names.queue("other")
    for name, back in ((queue, other), (other, queue)):
        arguments = {"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": back}
        channel.queue_declare(name, arguments=arguments)
    publish(channel, queue, b"m")
    wait(channel, lambda: ready(channel, queue) == ready(channel, other) == ready(channel, queue) == 0)
    assert bodies_in(channel, queue) == bodies_in(channel, other) == []


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_of_a_known_type_holds_messages(channel: Any, names: Names, kind: str) -> None:
    queue = names.queue()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    publish(channel, queue, b"a", b"b", delivery_mode=2)
    inbox = consume(channel, queue)
    assert [message.body for message in inbox.wait_for(2)] == [b"a", b"b"]
    inbox.ack(0, 1)


def test_a_quorum_queue_must_be_durable(channel: Any, names: Names) -> None:
    queue = names.queue()
    with refused(406, f"invalid property 'non-durable' for queue '{queue}' in vhost '/'"):
        channel.queue_declare(queue, arguments={"x-queue-type": "quorum"})
