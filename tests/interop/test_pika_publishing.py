"""pika: what goes in comes out. Confirms, returns, bodies of every size, every property, every type of header value."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import Names
from tests.interop.pika_publisher import Confirmation, Returned, published
from tests.interop.pika_stage import Pika, bodies_in, consume, get, publish, ready

MIB = 1 << 20


@pytest.fixture
def queue(channel: Any, names: Names) -> str:
    name = names.queue()
    channel.queue_declare(name)
    return name


def test_a_confirm_means_that_the_queue_has_it(channel: Any, client: Pika, queue: str) -> None:
    publish(channel, queue, b"m", delivery_mode=2)
    assert ready(client.connect().channel(), queue) == 1


def test_every_message_of_a_burst_is_confirmed_once(broker: Broker, channel: Any, queue: str) -> None:
    answers = published(broker, [("", queue, b"%d" % number, True) for number in range(1000)])
    confirmed: list[int] = []
    for each in answers:
        assert isinstance(each, Confirmation) and each.is_ack
        from_ = (max(confirmed, default=0) + 1) if each.multiple else each.tag
        confirmed += [tag for tag in range(from_, each.tag + 1) if tag not in confirmed]
    assert sorted(confirmed) == list(range(1, 1001))
    assert bodies_in(channel, queue) == [b"%d" % number for number in range(1000)]


def test_a_message_that_cannot_be_routed_is_returned_before_its_ack(broker: Broker, channel: Any, queue: str) -> None:
    wanted = [
        ("", queue, b"here", True),
        ("", f"{queue}.none", b"lost", True),
        ("", f"{queue}.none", b"dropped", False),
    ]
    answers = published(broker, wanted)
    returned = Returned(312, "NO_ROUTE", "", f"{queue}.none", b"lost")
    assert [each for each in answers if isinstance(each, Returned)] == [returned]
    behind = answers[answers.index(returned) + 1 :]
    assert any(
        isinstance(each, Confirmation) and (each.tag == 2 or (each.multiple and each.tag > 2)) for each in behind
    )
    assert all(each.is_ack for each in answers if isinstance(each, Confirmation))


def test_nacks_name_the_messages_a_full_queue_refused(broker: Broker, channel: Any, names: Names) -> None:
    """QP-08"""
    queue = names.queue("full")
    channel.queue_declare(queue, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    publish(channel, queue, b"1", b"2", b"3")
    answers = published(broker, [("", queue, b"too much", False) for _ in range(4)])
    assert all(isinstance(each, Confirmation) and not each.is_ack for each in answers)
    assert bodies_in(channel, queue) == [b"1", b"2", b"3"]


def test_of_a_mixed_burst_each_message_has_one_outcome(broker: Broker, channel: Any, names: Names, queue: str) -> None:
    """Acks wait for the disk, nacks do not; neither includes tags of the other."""
    full, durable = names.queue("full"), names.queue("durable")
    channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_declare(durable, durable=True)
    publish(channel, full, b"1")
    body = b"x" * 20_000  # so that they do not come in one piece
    wanted = [("", durable if number % 3 else full, body, False) for number in range(300)]
    result: dict[int, bool] = {}
    for each in published(broker, wanted, delivery_mode=2):
        assert isinstance(each, Confirmation)
        tags = [tag for tag in range(1, each.tag + 1) if tag not in result] if each.multiple else [each.tag]
        assert tags and each.tag not in result
        result.update(dict.fromkeys(tags, each.is_ack))
    assert result == {number + 1: bool(number % 3) for number in range(300)}


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, MIB, 5 * MIB + 3])
def test_a_body_of_any_size_is_the_same_by_get_and_by_consume(channel: Any, queue: str, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    publish(channel, queue, body, body, delivery_mode=2)
    assert get(channel, queue).body == body
    assert consume(channel, queue).wait_for(1)[0].body == body


def test_a_client_of_small_frames_reads_what_one_of_large_frames_wrote(channel: Any, client: Pika, queue: str) -> None:
    body = bytes(range(256)) * 300
    publish(channel, queue, body)
    small = client.connect(frame_max=4096).channel()
    assert get(small, queue).body == body
    small.confirm_delivery()
    publish(small, queue, body)
    assert get(channel, queue).body == body


PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain; charset=utf-8",
    "content_encoding": "gzip",
    "headers": {"käse": "Kräuter"},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "correlation",
    "reply_to": "back",
    "expiration": "3600000",
    "message_id": "message",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "cluster",
}


def test_every_property_comes_back_as_it_was(channel: Any, queue: str) -> None:
    publish(channel, queue, b"m", **PROPERTIES)
    received = get(channel, queue).properties
    assert {name: getattr(received, name) for name in PROPERTIES} == PROPERTIES


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_alone_comes_back_alone(channel: Any, queue: str, name: str) -> None:
    publish(channel, queue, b"m", **{name: PROPERTIES[name]})
    received = get(channel, queue).properties
    assert {each: getattr(received, each) for each in PROPERTIES if getattr(received, each) is not None} == {
        name: PROPERTIES[name]
    }


def test_a_message_without_properties_has_none(channel: Any, queue: str) -> None:
    channel.basic_publish("", queue, b"m")
    received = get(channel, queue).properties
    assert {name for name in PROPERTIES if getattr(received, name) is not None} == set()


HEADERS: dict[str, Any] = {
    "text": "Grüße",
    "empty": "",
    "true": True,
    "false": False,
    "small": 1,
    "negative": -1,
    "large": 2**40,
    "most negative": -(2**63),
    "decimal": decimal.Decimal("12.34"),
    "time": datetime.datetime(2026, 11, 16, 12, 0, tzinfo=datetime.UTC),
    "nothing": None,
    "bytes": b"\x00\xff",
    "list": ["a", 1, [True, None], {"in": "side"}],
    "table": {"deep": {"deeper": {"deepest": ["bottom"]}}},
    "no entries": {},
    "no values": [],
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_of_every_type_comes_back(channel: Any, queue: str, name: str) -> None:
    publish(channel, queue, b"m", headers={name: HEADERS[name]})
    assert get(channel, queue).properties.headers == {name: HEADERS[name]}


def test_many_headers_come_back_together(channel: Any, queue: str) -> None:
    headers = {**HEADERS, **{f"h{number}": "x" * number for number in range(200)}}
    publish(channel, queue, b"m", headers=headers)
    assert get(channel, queue).properties.headers == headers


def test_a_dead_message_keeps_its_properties_and_body(channel: Any, names: Names) -> None:
    queue, dead = names.queue("living"), names.queue("dead")
    channel.queue_declare(dead)
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    body = bytes(range(256)) * 1000
    properties = {**PROPERTIES, "headers": HEADERS}
    publish(channel, queue, body, **properties)
    channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    letter = consume(channel, dead).wait_for(1)[0]
    unchanged = {name: getattr(letter.properties, name) for name in PROPERTIES if name not in ("headers", "expiration")}
    assert unchanged == {name: properties[name] for name in unchanged}
    assert letter.body == body
    assert {name: letter.properties.headers[name] for name in HEADERS} == HEADERS


def test_a_user_id_that_is_true_is_passed_on(channel: Any, queue: str) -> None:
    publish(channel, queue, b"m", user_id="guest")
    assert get(channel, queue).properties.user_id == "guest"
