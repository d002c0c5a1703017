"""pika: how messages leave a queue. Get, consume, cancel, prefetch, acknowledgements, order, fairness."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names
from tests.interop.pika_stage import (
    Inbox,
    Pika,
    bodies_in,
    consume,
    get,
    publish,
    ready,
    refused,
    settle,
    wait,
    wait_until_ready,
)


@pytest.fixture
def queue(channel: Any, names: Names) -> str:
    name = names.queue()
    channel.queue_declare(name)
    return name


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_get_reports_the_remaining_count(channel: Any, queue: str) -> None:
    assert channel.basic_get(queue) == (None, None, None)
    publish(channel, queue, *numbered(3))
    counts = [get(channel, queue).method.message_count for _ in range(3)]
    assert counts == [2, 1, 0]


def test_a_consumer_gets_what_is_there_and_what_comes_in_order(channel: Any, queue: str) -> None:
    """QP-06"""
    publish(channel, queue, *numbered(20))
    inbox = consume(channel, queue, consumer_tag="mine")
    inbox.wait_for(20)
    publish(channel, queue, b"20")
    last = inbox.wait_for(21)[-1].method
    assert inbox.bodies == numbered(21)
    assert [message.method.delivery_tag for message in inbox.messages] == list(range(1, 22))
    assert (last.consumer_tag, last.exchange, last.routing_key, last.redelivered) == ("mine", "", queue, False)
    inbox.ack(-1, multiple=True)
    settle(channel, queue)
    channel.basic_recover(requeue=True)
    assert ready(channel, queue) == 0


def test_without_acknowledgement_a_message_is_gone_when_it_is_sent(channel: Any, client: Pika, queue: str) -> None:
    publish(channel, queue, *numbered(3))
    other = client.channel()
    consume(other, queue, auto_ack=True).wait_for(3)
    other.connection.close()
    assert ready(channel, queue) == 0


def test_a_cancelled_consumer_gets_no_more_and_keeps_what_it_has(channel: Any, queue: str) -> None:
    inbox = consume(channel, queue)
    publish(channel, queue, b"before")
    inbox.wait_for(1)
    assert channel.basic_cancel(inbox.tag) == []
    publish(channel, queue, b"after")
    assert (ready(channel, queue), inbox.bodies) == (1, [b"before"])
    inbox.ack(0)
    assert bodies_in(channel, queue) == [b"after"]


def test_the_broker_cancels_consumers_of_a_deleted_queue(channel: Any, client: Pika, queue: str) -> None:
    """QP-06"""
    cancelled: list[str] = []
    inbox = consume(channel, queue)
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    client.channel().queue_delete(queue)
    wait(channel, lambda: bool(cancelled))
    assert cancelled == [inbox.tag] and channel.is_open


def test_a_prefetch_holds_for_each_new_consumer(channel: Any, queue: str) -> None:
    """QP-06: per consumer, and only for those that come after it."""
    free = consume(channel, queue)
    publish(channel, queue, *numbered(5))
    free.wait_for(5)
    channel.basic_cancel(free.tag)
    channel.basic_qos(prefetch_count=2)
    one, two = consume(channel, queue), consume(channel, queue)
    publish(channel, queue, *numbered(7))
    wait_until_ready(channel, queue, 3)
    settle(channel, queue)
    assert (len(one.messages), len(two.messages)) == (2, 2)
    one.ack(0)
    wait_until_ready(channel, queue, 2)
    wait(channel, lambda: len(one.messages) == 3)
    assert len(two.messages) == 2


def test_a_new_prefetch_of_consumers_that_are_there_counts_in_warren_only(
    broker: Broker, channel: Any, queue: str
) -> None:
    """RabbitMQ keeps it for the next consumer, so a client that wants more has to consume again."""
    channel.basic_qos(prefetch_count=1)
    inbox = consume(channel, queue)
    publish(channel, queue, *numbered(4))
    wait_until_ready(channel, queue, 3)
    channel.basic_qos(prefetch_count=3)
    wait_until_ready(channel, queue, 1 if broker.is_warren else 3)
    settle(channel, queue)
    assert inbox.bodies == numbered(3 if broker.is_warren else 1)


def test_a_global_prefetch_is_shared_by_the_consumers_of_a_channel(channel: Any, queue: str) -> None:
    channel.basic_qos(prefetch_count=3, global_qos=True)
    one, two = consume(channel, queue), consume(channel, queue)
    publish(channel, queue, *numbered(8))
    wait_until_ready(channel, queue, 5)
    settle(channel, queue)
    assert len(one.messages) + len(two.messages) == 3
    (one if one.messages else two).ack(0)
    wait_until_ready(channel, queue, 4)


def test_a_global_prefetch_holds_for_consumers_that_are_there_already(channel: Any, queue: str) -> None:
    inbox = consume(channel, queue)
    channel.basic_qos(prefetch_count=2, global_qos=True)
    publish(channel, queue, *numbered(5))
    wait_until_ready(channel, queue, 3)
    settle(channel, queue)
    assert inbox.bodies == numbered(2)
    channel.basic_qos(prefetch_count=4, global_qos=True)
    wait_until_ready(channel, queue, 1)
    channel.basic_qos(prefetch_count=0, global_qos=True)
    assert [message.body for message in inbox.wait_for(5)] == numbered(5)


def test_a_global_prefetch_is_shared_fairly_by_the_queues_of_a_channel(channel: Any, names: Names) -> None:
    """Each ack releases one credit; no queue takes them all while others have messages."""
    queues = [names.queue(each) for each in ("a", "b", "c")]
    for queue in queues:
        channel.queue_declare(queue)
        publish(channel, queue, *[queue.encode()] * 40)
    channel.basic_qos(prefetch_count=4, global_qos=True)
    inbox = Inbox(channel)
    for queue in queues:
        channel.basic_consume(queue, inbox.take)
    for acked in range(60):
        wait(channel, lambda: len(inbox.messages) > acked)  # noqa: B023 - called at once
        inbox.ack(acked)
    wait(channel, lambda: len(inbox.messages) == 64)
    assert all(inbox.bodies.count(queue.encode()) >= 8 for queue in queues), inbox.bodies


def test_a_consumer_without_acknowledgement_waits_for_a_global_prefetch(channel: Any, names: Names) -> None:
    acked, unacked = names.queue("acked"), names.queue("unacked")
    for queue in (acked, unacked):
        channel.queue_declare(queue)
    channel.basic_qos(prefetch_count=2, global_qos=True)
    inbox, other = consume(channel, acked), consume(channel, unacked, auto_ack=True)
    publish(channel, acked, b"1", b"2")
    inbox.wait_for(2)
    publish(channel, unacked, b"a", b"b", b"c")
    settle(channel, unacked)
    assert other.bodies == []
    inbox.ack(0)
    assert [message.body for message in other.wait_for(3)] == [b"a", b"b", b"c"]


def test_a_message_fetched_by_get_does_not_count_for_a_global_prefetch(channel: Any, queue: str) -> None:
    channel.basic_qos(prefetch_count=2, global_qos=True)
    publish(channel, queue, b"1", b"2", b"3", b"4", b"5")
    channel.basic_get(queue)
    channel.basic_get(queue)
    inbox = consume(channel, queue)
    inbox.wait_for(2)
    settle(channel, queue)
    assert inbox.bodies == [b"3", b"4"]


def test_get_is_not_limited_by_a_prefetch(channel: Any, queue: str) -> None:
    channel.basic_qos(prefetch_count=1, global_qos=True)
    publish(channel, queue, *numbered(3))
    assert [channel.basic_get(queue)[2] for _ in range(3)] == numbered(3)


def test_messages_without_acknowledgement_do_not_count_for_a_prefetch(channel: Any, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    publish(channel, queue, *numbered(5))
    assert len(consume(channel, queue, auto_ack=True).wait_for(5)) == 5


@pytest.mark.parametrize("method_name", ["reject", "nack"])
def test_a_requeued_message_comes_back_to_its_old_place(channel: Any, queue: str, method_name: str) -> None:
    publish(channel, queue, *numbered(4))
    deliveries = [channel.basic_get(queue)[0] for _ in range(3)]
    assert [method.redelivered for method in deliveries] == [False] * 3
    (channel.basic_reject if method_name == "reject" else channel.basic_nack)(deliveries[1].delivery_tag, requeue=True)
    wait_until_ready(channel, queue, 2)
    again, fresh = get(channel, queue), get(channel, queue)
    assert [(each.body, each.method.redelivered) for each in (again, fresh)] == [(b"1", True), (b"3", False)]


def test_many_are_requeued_in_their_old_order(channel: Any, queue: str) -> None:
    publish(channel, queue, *numbered(6))
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(5)]
    channel.basic_nack(tags[3], multiple=True, requeue=True)
    wait_until_ready(channel, queue, 5)
    assert bodies_in(channel, queue) == [b"0", b"1", b"2", b"3", b"5"]


def test_recover_brings_back_everything_unacknowledged(channel: Any, queue: str) -> None:
    publish(channel, queue, *numbered(3))
    channel.basic_ack(channel.basic_get(queue)[0].delivery_tag)
    for _ in range(2):
        channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    wait_until_ready(channel, queue, 2)
    back = [get(channel, queue) for _ in range(2)]
    assert [(message.body, message.method.redelivered) for message in back] == [(b"1", True), (b"2", True)]


@pytest.mark.parametrize("whole", ["channel", "connection"])
def test_unacked_messages_of_a_closed_channel_are_redelivered_to_others(
    channel: Any, client: Pika, queue: str, whole: str
) -> None:
    publish(channel, queue, *numbered(3))
    other = client.channel()
    consume(other, queue).wait_for(3)
    (other if whole == "channel" else other.connection).close()
    inbox = consume(channel, queue)
    assert [(message.body, message.method.redelivered) for message in inbox.wait_for(3)] == [
        (body, True) for body in numbered(3)
    ]


def test_two_consumers_alternate(channel: Any, queue: str) -> None:
    """QP-06: fair round robin."""
    one, two = consume(channel, queue), consume(channel, queue)
    publish(channel, queue, *numbered(10))
    wait(channel, lambda: len(one.messages) + len(two.messages) == 10)
    assert (len(one.messages), len(two.messages)) == (5, 5)
    assert sorted(one.bodies + two.bodies) == numbered(10)
    assert one.bodies == sorted(one.bodies) and two.bodies == sorted(two.bodies)


def test_consumers_of_several_connections_share_a_queue(channel: Any, client: Pika, queue: str) -> None:
    inboxes = []
    for _ in range(3):
        other = client.channel()
        other.basic_qos(prefetch_count=4)
        inboxes.append(consume(other, queue))
    publish(channel, queue, *numbered(12))
    for inbox in inboxes:
        inbox.wait_for(4)
    assert sorted(int(body) for inbox in inboxes for body in inbox.bodies) == list(range(12))


def test_a_consumer_of_higher_priority_is_served_while_it_can_take_more(channel: Any, client: Pika, queue: str) -> None:
    preferred = client.channel()
    preferred.basic_qos(prefetch_count=3)
    low = consume(channel, queue)
    high = consume(preferred, queue, arguments={"x-priority": 10})
    publish(channel, queue, *numbered(5))
    assert [message.body for message in high.wait_for(3)] == numbered(3)
    assert [message.body for message in low.wait_for(2)] == [b"3", b"4"]


def test_an_exclusive_consumer_suffers_no_other(channel: Any, client: Pika, queue: str) -> None:
    in_use = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    inbox = consume(channel, queue, exclusive=True)
    with refused(403, in_use):
        consume(client.channel(), queue)
    channel.basic_cancel(inbox.tag)
    consume(channel, queue)
    with refused(403, in_use):
        consume(client.channel(), queue, exclusive=True)


def test_a_consumer_tag_is_taken_once_in_a_channel(client: Pika, queue: str) -> None:
    channel = client.channel()
    consume(channel, queue, consumer_tag="same")
    consume(client.channel(), queue, consumer_tag="same")  # another channel may use it
    with refused(530, "NOT_ALLOWED - attempt to reuse consumer tag 'same'", pika.exceptions.ConnectionClosedByBroker):
        channel._impl._rpc(pika.spec.Basic.Consume(queue=queue, consumer_tag="same"))
        wait(channel, lambda: False)


def test_one_queue_keeps_its_order_through_a_slow_consumer(channel: Any, client: Pika, queue: str) -> None:
    other = client.channel()
    other.basic_qos(prefetch_count=10)
    inbox = consume(other, queue)
    publish(channel, queue, *numbered(300))
    while len(inbox.messages) < 300:
        inbox.wait_for(min(300, len(inbox.messages) // 10 * 10 + 10))
        inbox.ack(-1, multiple=True)
    assert inbox.bodies == numbered(300)
    assert not any(message.method.redelivered for message in inbox.messages)


def test_all_is_acknowledged_by_tag_zero(channel: Any, client: Pika, queue: str) -> None:
    publish(channel, queue, *numbered(3))
    other = client.channel()
    consume(other, queue).wait_for(3)
    other.basic_ack(0, multiple=True)
    other.connection.close()
    assert ready(channel, queue) == 0


def test_a_tag_belongs_to_its_channel(channel: Any, client: Pika, queue: str) -> None:
    publish(channel, queue, b"m")
    tag = channel.basic_get(queue)[0].delivery_tag
    other = client.channel()
    with refused(406, f"unknown delivery tag {tag}"):
        other.basic_ack(tag)
        other.queue_declare(queue, passive=True)
    channel.basic_ack(tag)
    assert ready(channel, queue) == 0


def test_a_single_active_consumer_is_followed_by_the_next(channel: Any, client: Pika, names: Names) -> None:
    queue = names.queue("single")
    channel.queue_declare(queue, arguments={"x-single-active-consumer": True})
    active, next_ = consume(channel, queue), consume(client.channel(), queue)
    publish(channel, queue, *numbered(3))
    active.wait_for(3)
    active.ack(-1, multiple=True)
    channel.basic_cancel(active.tag)
    publish(channel, queue, b"4")
    assert next_.wait_for(1)[0].body == b"4"


def test_a_quorum_queue_tells_how_often_a_message_came_back(broker: Broker, channel: Any, names: Names) -> None:
    """With a limit of deliveries or without one; the header of the publisher is replaced."""
    for limit in ({}, {"x-delivery-limit": 5}):
        queue = names.queue(f"quorum{len(limit)}")
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", **limit})
        publish(channel, queue, b"m", headers={"a": 1, "x-delivery-count": "mine"})
        inbox = consume(channel, queue)
        for count in range(4):
            message = inbox.wait_for(count + 1)[-1]
            expected = "mine" if count == 0 else count
            assert message.properties.headers == {"a": 1, "x-delivery-count": expected}
            assert message.method.redelivered == (count > 0)
            if count < 3:
                channel.basic_nack(message.method.delivery_tag, requeue=True)
        channel.basic_cancel(inbox.tag)
        inbox.ack(-1)


def test_a_count_of_deliveries_is_in_the_answer_to_get(broker: Broker, channel: Any, names: Names) -> None:
    """Also for the first delivery."""
    queue = names.queue("quorum")
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    publish(channel, queue, b"m")
    for expected in ({"x-delivery-count": 0}, {"x-delivery-count": 1}):
        method, properties, _ = channel.basic_get(queue)
        assert properties.headers == expected
        channel.basic_reject(method.delivery_tag, requeue=True)
        wait_until_ready(channel, queue, 1)
    assert get(channel, queue).properties.headers == {"x-delivery-count": 2}


def test_a_quorum_queue_counts_deliveries_up_to_its_limit(broker: Broker, channel: Any, names: Names) -> None:
    queue, dead = names.queue("quorum"), names.queue("dead")
    channel.queue_declare(dead)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(queue, durable=True, arguments={**arguments, "x-queue-type": "quorum", "x-delivery-limit": 2})
    publish(channel, queue, b"m")
    inbox = consume(channel, queue)
    for times in range(1, 4):
        message = inbox.wait_for(times)[-1]
        assert (message.properties.headers or {}).get("x-delivery-count", 0) == times - 1
        channel.basic_nack(message.method.delivery_tag, requeue=True)
    letter = consume(channel, dead).wait_for(1)[0]
    assert letter.properties.headers["x-death"][0]["reason"] == "delivery_limit"
