"""pika: where messages go. Exchanges of every type, bindings between exchanges, alternates, CC and BCC."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names
from tests.interop.pika_stage import Pika, bodies_in, get, refused


def exchange_of(channel: Any, names: Names, type_: str, name: str = "exchange", **options: Any) -> str:
    exchange = names.exchange(name)
    channel.exchange_declare(exchange, type_, **options)
    return exchange


def queues_of(channel: Any, names: Names, *wanted: str) -> list[str]:
    queues = [names.queue(name) for name in wanted]
    for queue in queues:
        channel.queue_declare(queue)
    return queues


def routed(channel: Any, exchange: str, key: str, queues: list[str], **properties: Any) -> list[int]:
    """Places of the queues that got a message which was published so."""
    channel.basic_publish(exchange, key, b"m", pika.BasicProperties(**properties))
    return [place for place, queue in enumerate(queues) if bodies_in(channel, queue) == [b"m"]]


def test_the_default_exchange_knows_every_queue_by_name(channel: Any, names: Names) -> None:
    queues = queues_of(channel, names, "a", "b")
    assert routed(channel, "", queues[1], queues) == [1]
    assert routed(channel, "", "somewhere else", queues) == []


def test_a_direct_exchange_compares_keys(channel: Any, names: Names) -> None:
    exchange = exchange_of(channel, names, "direct")
    queues = queues_of(channel, names, "a", "b", "both")
    for queue, key in zip([*queues, queues[2]], ["red", "blue", "red", "blue"], strict=True):
        channel.queue_bind(queue, exchange, key)
    assert routed(channel, exchange, "red", queues) == [0, 2]
    assert routed(channel, exchange, "blue", queues) == [1, 2]
    assert routed(channel, exchange, "green", queues) == []


def test_a_fanout_exchange_ignores_the_key(channel: Any, names: Names) -> None:
    exchange = exchange_of(channel, names, "fanout")
    queues = queues_of(channel, names, "a", "b")
    channel.queue_bind(queues[0], exchange)
    channel.queue_bind(queues[1], exchange, "whatever")
    assert routed(channel, exchange, "anything", queues) == [0, 1]


@pytest.mark.parametrize(
    ("key", "reached"),
    [
        ("a.b.c", [0, 1, 2]),
        ("a.b", [2]),
        ("", [2]),
        ("x.b.c", [0, 2]),
        ("a..c", [1, 2]),
        ("b.c", [2]),
        ("a.b.c.d", [2]),
    ],
)
def test_a_topic_exchange_matches_words(channel: Any, names: Names, key: str, reached: list[int]) -> None:
    exchange = exchange_of(channel, names, "topic")
    queues = queues_of(channel, names, "star", "middle", "hash")
    for queue, pattern in zip(queues, ["*.b.c", "a.*.c", "#"], strict=True):
        channel.queue_bind(queue, exchange, pattern)
    assert routed(channel, exchange, key, queues) == reached


@pytest.mark.parametrize(
    ("headers", "reached"),
    [
        ({"format": "pdf", "pages": 3}, [0, 1, 2]),
        ({"format": "pdf"}, [1, 2]),
        ({"pages": 3}, [1]),
        ({"format": "ps"}, [2]),
        ({"pages": True}, []),
        ({"x-kind": "k"}, [3]),
        (None, []),
    ],
)
def test_a_headers_exchange_matches_headers(
    channel: Any, names: Names, headers: dict[str, Any] | None, reached: list[int]
) -> None:
    exchange = exchange_of(channel, names, "headers")
    queues = queues_of(channel, names, "all", "any", "there", "with x")
    wanted: list[dict[str, Any]] = [
        {"x-match": "all", "format": "pdf", "pages": 3},
        {"x-match": "any", "format": "pdf", "pages": 3},
        {"format": None},
        {"x-match": "any-with-x", "x-kind": "k"},
    ]
    for queue, arguments in zip(queues, wanted, strict=True):
        channel.queue_bind(queue, exchange, "", arguments=arguments)
    assert routed(channel, exchange, "", queues, headers=headers) == reached


def test_a_queue_that_several_bindings_reach_gets_a_message_once(channel: Any, names: Names) -> None:
    exchange = exchange_of(channel, names, "topic")
    [queue] = queues_of(channel, names, "queue")
    for pattern in ("#", "a.*", "a.b"):
        channel.queue_bind(queue, exchange, pattern)
    assert routed(channel, exchange, "a.b", [queue]) == [0]


def test_an_unbound_queue_gets_nothing_more(channel: Any, names: Names) -> None:
    exchange = exchange_of(channel, names, "direct")
    queues = queues_of(channel, names, "a")
    channel.queue_bind(queues[0], exchange, "k")
    assert routed(channel, exchange, "k", queues) == [0]
    channel.queue_unbind(queues[0], exchange, "k")
    assert routed(channel, exchange, "k", queues) == []


def test_exchanges_bound_to_exchanges_hand_messages_on(channel: Any, names: Names) -> None:
    front = exchange_of(channel, names, "topic", "front")
    back = exchange_of(channel, names, "fanout", "back")
    queues = queues_of(channel, names, "a")
    channel.queue_bind(queues[0], back)
    channel.exchange_bind(back, front, "to.#")
    assert routed(channel, front, "to.you", queues) == [0]
    assert routed(channel, front, "from.you", queues) == []
    channel.exchange_unbind(back, front, "to.#")
    assert routed(channel, front, "to.you", queues) == []


def test_exchanges_in_a_circle_deliver_once(channel: Any, names: Names) -> None:
    one, two = (exchange_of(channel, names, "fanout", name) for name in ("one", "two"))
    channel.exchange_bind(one, two)
    channel.exchange_bind(two, one)
    queues = queues_of(channel, names, "a")
    channel.queue_bind(queues[0], one)
    channel.queue_bind(queues[0], two)
    assert routed(channel, one, "", queues) == [0]


def test_an_alternate_exchange_gets_unroutable_messages(channel: Any, names: Names) -> None:
    rest = exchange_of(channel, names, "fanout", "rest")
    front = exchange_of(channel, names, "direct", "front", arguments={"alternate-exchange": rest})
    queues = queues_of(channel, names, "wanted", "unwanted")
    channel.queue_bind(queues[0], front, "k")
    channel.queue_bind(queues[1], rest)
    assert routed(channel, front, "k", queues) == [0]
    assert routed(channel, front, "other", queues) == [1]


def test_what_an_alternate_exchange_takes_is_not_returned(channel: Any, names: Names) -> None:
    rest = exchange_of(channel, names, "fanout", "rest")
    front = exchange_of(channel, names, "direct", "front", arguments={"alternate-exchange": rest})
    [queue] = queues_of(channel, names, "unwanted")
    channel.queue_bind(queue, rest)
    channel.basic_publish(front, "k", b"kept", mandatory=True)
    assert get(channel, queue).body == b"kept"
    channel.queue_delete(queue)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(front, "k", b"lost", mandatory=True)


def test_the_default_exchange_as_an_alternate_finds_queues_in_warren_only(
    broker: Broker, channel: Any, names: Names
) -> None:
    front = exchange_of(channel, names, "direct", arguments={"alternate-exchange": ""})
    [queue] = queues_of(channel, names, "queue")
    if broker.is_warren:
        channel.basic_publish(front, queue, b"m", mandatory=True)
        assert bodies_in(channel, queue) == [b"m"]
        return
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(front, queue, b"m", mandatory=True)


def test_an_internal_exchange_takes_messages_from_exchanges_only(channel: Any, client: Pika, names: Names) -> None:
    inner = exchange_of(channel, names, "fanout", "inner", internal=True)
    outer = exchange_of(channel, names, "fanout", "outer")
    queues = queues_of(channel, names, "a")
    channel.queue_bind(queues[0], inner)
    channel.exchange_bind(inner, outer)
    assert routed(channel, outer, "", queues) == [0]
    with refused(403, f"ACCESS_REFUSED - cannot publish to internal exchange '{inner}' in vhost '/'"):
        client.channel().basic_publish(inner, "", b"")


def test_cc_and_bcc_route_to_more_queues_and_bcc_is_not_seen(channel: Any, names: Names) -> None:
    to, cc, bcc = queues_of(channel, names, "to", "cc", "bcc")
    headers = {"CC": [cc, to], "BCC": [bcc]}
    channel.basic_publish("", to, b"letter", pika.BasicProperties(headers=headers))
    for queue in (to, cc, bcc):
        letter = get(channel, queue)
        assert (letter.body, letter.properties.headers) == (b"letter", {"CC": [cc, to]})
        assert (letter.method.routing_key, bodies_in(channel, queue)) == (to, [])


def test_an_exchange_in_use_is_not_deleted_if_unused(channel: Any, client: Pika, names: Names) -> None:
    exchange = exchange_of(channel, names, "direct")
    [queue] = queues_of(channel, names, "a")
    channel.queue_bind(queue, exchange, "k")
    with refused(406, f"exchange '{exchange}' in vhost '/' in use"):
        client.channel().exchange_delete(exchange, if_unused=True)
    channel.queue_unbind(queue, exchange, "k")
    channel.exchange_delete(exchange, if_unused=True)
    with refused(404, f"no exchange '{exchange}' in vhost '/'"):
        channel.exchange_declare(exchange, passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: Any, names: Names) -> None:
    exchange = exchange_of(channel, names, "fanout", auto_delete=True)
    one, two = queues_of(channel, names, "one", "two")
    channel.queue_bind(one, exchange)
    channel.queue_bind(two, exchange)
    channel.queue_unbind(one, exchange)
    channel.exchange_declare(exchange, passive=True)
    channel.queue_delete(two)
    with refused(404, "no exchange"):
        channel.exchange_declare(exchange, passive=True)


def test_a_deleted_queue_takes_its_bindings_along(channel: Any, names: Names) -> None:
    """A binding does not outlive the queue it leads to."""
    exchange = exchange_of(channel, names, "fanout")
    queues = queues_of(channel, names, "a")
    channel.queue_bind(queues[0], exchange)
    channel.queue_delete(queues[0])
    channel.queue_declare(queues[0])
    assert routed(channel, exchange, "", queues) == []


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers"])
def test_the_standard_exchanges_are_there(channel: Any, type_: str) -> None:
    declared = channel.exchange_declare(f"amq.{type_}", type_, durable=True)
    assert isinstance(declared.method, pika.spec.Exchange.DeclareOk)
