"""Messages over HTTP: get and publish, beside AMQP clients, up to their limits, and over a kill."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import amqp
import httpx
import pika
import pytest

from tests.management.stage import ManagementStage
from tests.server.broker_process import BrokerProcess
from warren.catalog import permissions, users
from warren.management import messages
from warren.management.broker_facts import Alarm

GET = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
DEFAULT = "exchanges/%2F/amq.default/publish"


@pytest.fixture
def http(stage: ManagementStage) -> Iterator[httpx.Client]:
    """With an empty queue `q`."""
    stage.user("admin", "administrator", vhost="/")
    with stage.client() as client:
        client.base_url = httpx.URL(f"{stage.url}/api/")
        client.delete("queues/%2F/q")
        assert client.put("queues/%2F/q", json={"durable": True}).status_code == 201
        yield client


def publish(http: httpx.Client, *payloads: str, **change: Any) -> None:
    for payload in payloads:
        answer = http.post(DEFAULT, json={**MESSAGE, "payload": payload, **change})
        assert answer.json() == {"routed": True}, answer.text


def get(http: httpx.Client, queue: str = "q", **change: Any) -> list[dict[str, Any]]:
    answer = http.post(f"queues/%2F/{queue}/get", json={**GET, **change})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def payloads(items: list[dict[str, Any]]) -> list[str]:
    return [item["payload"] for item in items]


# -- get ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ack_requeue_true", "reject_requeue_true"])
def test_requeued_messages_return_to_their_positions(http: httpx.Client, mode: str) -> None:
    publish(http, *"abcde")
    first = get(http, count=2, ackmode=mode)
    assert payloads(first) == ["a", "b"]
    assert [(each["redelivered"], each["message_count"]) for each in first] == [(False, 4), (False, 3)]
    publish(http, "f")
    again = get(http, ackmode=mode)
    assert payloads(again) == list("abcdef")
    assert [each["redelivered"] for each in again] == [True, True, False, False, False, False]
    assert [each["message_count"] for each in again] == [5, 4, 3, 2, 1, 0]
    assert http.get("queues/%2F/q").json()["messages_ready"] == 6


def test_acknowledged_messages_are_gone(http: httpx.Client) -> None:
    publish(http, *"abc")
    assert payloads(get(http, count=2, ackmode="ack_requeue_false")) == ["a", "b"]
    assert payloads(get(http)) == ["c"]


def test_rejected_messages_are_dead_lettered(http: httpx.Client) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    assert http.put("queues/%2F/rejecting", json={"durable": True, "arguments": arguments}).status_code == 201
    publish(http, *"abc", routing_key="rejecting")
    assert payloads(get(http, "rejecting", count=2, ackmode="reject_requeue_false")) == ["a", "b"]
    dead = get(http)
    assert payloads(dead) == ["a", "b"]
    assert dead[0]["properties"]["headers"]["x-death"][0]["reason"] == "rejected"
    assert payloads(get(http, "rejecting", ackmode="ack_requeue_false")) == ["c"]


def test_a_text_that_is_cut_inside_a_character_is_base64(http: httpx.Client) -> None:
    publish(http, "aü€")
    found = {size: get(http, truncate=size)[0] for size in (1, 2, 3, 6, 100)}
    assert {size: (each["payload"], each["payload_encoding"]) for size, each in found.items()} == {
        1: ("a", "string"),
        2: (base64.b64encode("aü".encode()[:2]).decode(), "base64"),
        3: ("aü", "string"),
        6: ("aü€", "string"),
        100: ("aü€", "string"),
    }
    assert {each["payload_bytes"] for each in found.values()} == {6}


def test_one_get_is_limited(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(http, *["x" * 1000] * 5)
    monkeypatch.setattr(messages, "GET_MESSAGES_MAX", 3)
    assert len(get(http, count=10**30)) == len(get(http, count=-1)) == 3
    monkeypatch.setattr(messages, "GET_BYTES_MAX", 2500)
    assert len(get(http)) == 2
    monkeypatch.setattr(messages, "GET_BYTES_MAX", 10)
    assert len(get(http)) == 1  # at least one, however large
    assert http.get("queues/%2F/q").json()["messages_ready"] == 5


def test_messages_of_programs_are_shown_as_persistent(stage: ManagementStage, http: httpx.Client) -> None:
    vhost = stage.vhosts.find("/")
    stage.put(vhost, vhost.find_queue("q"), b"\xff\x00")
    (item,) = get(http)
    assert (item["payload"], item["payload_encoding"], item["payload_bytes"]) == ("/wA=", "base64", 2)
    assert item["properties"] == {"delivery_mode": 2}


@pytest.mark.parametrize("change", [{"count": 1e999}, {"count": True}, {"truncate": -1}, {"ackmode": ["x"]}], ids=str)
def test_requests_that_rabbitmq_fails_on_are_refused(http: httpx.Client, change: dict[str, Any]) -> None:
    publish(http, "a")
    content = json.dumps({**GET, **change}).replace("Infinity", "1e999")
    answer = http.post("queues/%2F/q/get", content=content)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert http.get("queues/%2F/q").json()["messages_ready"] == 1


# -- publish -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [
        None,
        [],
        "x",
        {"headers": 5},
        {"headers": {"a": None}},
        {"headers": {"a": 1 << 63}},
        {"headers": {"\ud800": 1}},
        {"priority": 256},
        {"timestamp": -1},
        {"timestamp": 1 << 64},
        {"content_type": "x" * 256},
        {"content_type": "ü" * 128},
        {"expiration": "-1"},
        {"expiration": "soon"},
        {"user_id": "somebody else"},
        {"user_id": "\ud800"},
    ],
    ids=lambda each: repr(each)[:40],
)
def test_properties_that_amqp_cannot_carry_are_refused(http: httpx.Client, properties: Any) -> None:
    answer = http.post(DEFAULT, content=json.dumps({**MESSAGE, "properties": properties}))
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert get(http) == []


@pytest.mark.parametrize(
    "change",
    [{"payload": "\ud800"}, {"routing_key": "x" * 256}, {"routing_key": 5}, {"routing_key": "\ud800"}],
    ids=lambda each: repr(each)[:40],
)
def test_texts_that_amqp_cannot_carry_are_refused(http: httpx.Client, change: dict[str, Any]) -> None:
    answer = http.post(DEFAULT, content=json.dumps({**MESSAGE, **change}))
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def test_base64_may_have_line_ends(http: httpx.Client) -> None:
    text = base64.encodebytes(bytes(range(256))).decode()
    publish(http, text, payload_encoding="base64")
    assert base64.b64decode(get(http)[0]["payload"]) == bytes(range(256))


def test_a_full_queue_rejects_its_copy_only(http: httpx.Client) -> None:
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    assert http.put("queues/%2F/full", json={"arguments": arguments}).status_code == 201
    answer = http.post(DEFAULT, json={**MESSAGE, "routing_key": "full", "properties": {"headers": {"CC": ["q"]}}})
    assert (answer.status_code, answer.json()["reason"]) == (
        400,
        "rejected Unable to publish message. Check queue limits.",
    )
    assert len(get(http)) == 1
    assert get(http, "full") == []


def test_expired_messages_are_not_fetched(http: httpx.Client) -> None:
    publish(http, "expired", properties={"expiration": "0"})
    publish(http, "kept", properties={"expiration": "600000"})
    assert payloads(get(http)) == ["kept"]


def test_priorities_count(http: httpx.Client) -> None:
    http.delete("queues/%2F/levels")
    assert http.put("queues/%2F/levels", json={"arguments": {"x-max-priority": 5}}).status_code == 201
    for priority in (1, 5, 3):
        publish(http, str(priority), routing_key="levels", properties={"priority": priority})
    assert payloads(get(http, "levels")) == ["5", "3", "1"]


def test_routing_keys_of_topics_need_a_permission(stage: ManagementStage, http: httpx.Client) -> None:
    stage.user("limited", "management", vhost="/")
    with stage.catalog.reading() as connection:
        user = users.get(connection, "limited")
    assert user is not None
    row = user.id, stage.home.id
    stage.catalog.change(lambda change: permissions.put_topic(change, *row, "amq.topic", "^ours", "^ours"))
    with stage.client("limited") as limited:
        path = "/api/exchanges/%2F/amq.topic/publish"
        assert limited.post(path, json={**MESSAGE, "routing_key": "ours"}).json() == {"routed": False}
        refused = limited.post(path, json={**MESSAGE, "routing_key": "theirs"})
        assert (refused.status_code, "403 ACCESS_REFUSED" in refused.json()["reason"]) == (400, True)
        path = "/api/bindings/%2F/e/amq.topic/q/q"
        assert limited.post(path, json={"routing_key": "theirs"}).status_code == 401
        assert limited.post(path, json={"routing_key": "ours"}).status_code == 201


def test_nothing_is_published_while_publishers_are_blocked(stage: ManagementStage, http: httpx.Client) -> None:
    stage.broker.alarms = (Alarm.DISK,)
    try:
        answer = http.post(DEFAULT, json=MESSAGE)
    finally:
        stage.broker.alarms = ()
    assert (answer.status_code, answer.json()["reason"]) == (503, "publishers are blocked: disk")
    assert get(http) == []


def test_sixteen_mebibytes_can_be_published(http: httpx.Client) -> None:
    text, raw = "x" * (16 << 20), bytes(range(256)) * (1 << 16)
    publish(http, text, properties={"delivery_mode": 2})
    publish(http, base64.b64encode(raw).decode(), payload_encoding="base64")
    (first,), (second,) = (get(http, count=1, ackmode="ack_requeue_false") for _ in range(2))
    assert (first["payload_bytes"], first["payload"] == text) == (16 << 20, True)
    assert base64.b64decode(second["payload"]) == raw


def test_larger_requests_are_not_read(http: httpx.Client) -> None:
    answer = http.post(DEFAULT, json={**MESSAGE, "payload": "x" * messages.PUBLISH_BYTES_MAX})
    assert (answer.status_code, answer.json()["error"]) == (413, "payload_too_large")
    answer = http.put("queues/%2F/q", json={"unknown": "x" * (1 << 20)})
    assert answer.status_code == 413


def test_a_message_is_at_most_as_large_as_for_amqp(stage: ManagementStage, http: httpx.Client) -> None:
    settings = stage.broker.settings
    stage.broker.settings = replace(settings, message_bytes_max=10)
    try:
        publish(http, "x" * 10)
        answer = http.post(DEFAULT, json={**MESSAGE, "payload": "x" * 11})
    finally:
        stage.broker.settings = settings
    reason = "406 PRECONDITION_FAILED - message size 11 is larger than configured max size 10"
    assert (answer.status_code, answer.json()["reason"]) == (400, reason)


def test_the_local_socket_may_do_everything(stage: ManagementStage, http: httpx.Client) -> None:
    with stage.local() as local:
        assert local.post(f"/api/{DEFAULT}", json=MESSAGE).json() == {"routed": True}
        assert payloads(local.post("/api/queues/%2F/q/get", json=GET).json()) == ["x"]


# -- beside AMQP -------------------------------------------------------------------------------------------------

HEADERS = {
    "int": 7,
    "long": 1 << 40,
    "negative": -1,
    "float": 1.5,
    "text": "ü",
    "flag": True,
    "list": [1, "a", [2.5], {"k": False}],
    "table": {"k": {"deep": [1]}},
    "empty": {},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("messages") / "data") as process:
        yield process


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with _api(broker) as client:
        client.delete("queues/%2F/q")
        assert client.put("queues/%2F/q", json={"durable": True}).status_code == 201
        yield client


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        yield connection.channel()


@pytest.fixture
def typed(broker: BrokerProcess) -> Iterator[Any]:
    """A channel of py-amqp, which has all types of headers; pika lacks floating point."""
    with amqp.Connection(f"127.0.0.1:{broker.port}") as connection:
        yield connection.channel()


def test_an_amqp_client_gets_what_http_published(api: httpx.Client, typed: Any) -> None:
    properties = {"headers": HEADERS, "delivery_mode": 2, "priority": 4, "timestamp": 1_700_000_000, "app_id": "ü"}
    publish(api, "text <b>ü\n", properties=properties)
    publish(api, "x" * 300_000)  # several frames
    got = typed.basic_get("q", no_ack=True)
    assert (got.body.decode(), got.headers) == ("text <b>ü\n", HEADERS)
    found = [got.properties[name] for name in ("delivery_mode", "priority", "timestamp", "app_id")]
    assert found == [2, 4, 1_700_000_000, "ü"]
    got = typed.basic_get("q", no_ack=True)
    assert [got.delivery_info[name] for name in ("exchange", "routing_key", "redelivered")] == ["", "q", False]
    assert (len(got.body), got.properties) == (300_000, {})


def test_http_shows_what_an_amqp_client_published(api: httpx.Client, typed: Any) -> None:
    time = datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None)
    headers = {**HEADERS, "time": time, "decimal": Decimal("1.5"), "nothing": None, "bytes": b"\xff"}
    properties = {"expiration": "600000", "user_id": "guest", "reply_to": "back"}
    typed.basic_publish(amqp.Message(b"\xff\x00", application_headers=headers, **properties), "", "q")
    typed.basic_publish(amqp.Message(b""), "", "q")
    typed.queue_declare("q", passive=True)  # both have arrived
    first, second = get(api)
    shown = first["properties"].pop("headers")
    assert first["properties"] == properties
    assert shown == {**HEADERS, "time": 1_700_000_000, "decimal": 1.5, "nothing": None, "bytes": "/w=="}
    assert (first["payload"], first["payload_encoding"]) == ("/wA=", "base64")
    assert (second["payload"], second["payload_encoding"], second["properties"]) == ("", "string", [])


def test_consumers_get_published_and_requeued_messages(api: httpx.Client, channel: Any) -> None:
    publish(api, "before")
    channel.basic_qos(prefetch_count=1)
    deliveries = channel.consume("q", inactivity_timeout=20)
    method, _, body = next(deliveries)
    assert body == b"before"
    publish(api, *"ab")
    assert payloads(get(api)) == ["a", "b"]
    received = []
    for _ in range(2):
        channel.basic_ack(method.delivery_tag)
        method, _, body = next(deliveries)
        received.append((body, method.redelivered))
    assert received == [(b"a", True), (b"b", True)]


def test_a_broker_that_is_killed_during_gets_loses_no_message(tmp_path: Path) -> None:
    """Clients fetch and requeue all the time: some messages are pending when the kill comes."""
    expected = [str(number) for number in range(20)]
    with BrokerProcess(tmp_path / "data") as broker:
        with _api(broker) as http:
            assert http.put("queues/%2F/q", json={"durable": True}).status_code == 201
            publish(http, *expected, properties={"delivery_mode": 2})
        has_begun = threading.Barrier(3)
        modes = ("ack_requeue_true", "reject_requeue_true")
        clients = [threading.Thread(target=_fetch_until_killed, args=(broker, mode, has_begun)) for mode in modes]
        for client in clients:
            client.start()
        has_begun.wait(60)
        broker.kill()
        for client in clients:
            client.join(60)
        broker.start()
        with _api(broker) as http:
            assert payloads(get(http)) == expected


def test_a_persistent_message_is_durable_before_the_answer(tmp_path: Path) -> None:
    """Nothing else follows that would make it so."""
    with BrokerProcess(tmp_path / "data") as broker:
        with _api(broker) as http:
            assert http.put("queues/%2F/q", json={"durable": True}).status_code == 201
        for number in range(3):
            with _api(broker) as http:
                publish(http, str(number), properties={"delivery_mode": 2})
            broker.kill()
            broker.start()
        with _api(broker) as http:
            assert payloads(get(http)) == ["0", "1", "2"]


def _fetch_until_killed(broker: BrokerProcess, mode: str, has_begun: threading.Barrier) -> None:
    with _api(broker) as http, suppress(httpx.TransportError):
        get(http, count=15, ackmode=mode)
        has_begun.wait(60)
        while True:
            get(http, count=15, ackmode=mode)


def _api(broker: BrokerProcess) -> httpx.Client:
    url = f"http://127.0.0.1:{broker.management_port}/api/"
    return httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60, trust_env=False)
