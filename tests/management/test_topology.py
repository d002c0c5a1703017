"""Queues, exchanges and bindings over HTTP: odd names, limits, permissions, restarts. Answers to plain requests are
compared with RabbitMQ's in test_topology_answers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import httpx
import pika
import pytest

from tests.management.stage import ManagementStage
from tests.server.broker_process import BrokerProcess
from warren.broker.queue_arguments import QueueArguments
from warren.catalog import permissions, users
from warren.management.topology import properties_key

NAMES = ("a/b", "<b>&amp;</b>", "quo\"te'", "ü€𝄞", "100%", "%2F", "a b+c", "~", "..", ".", "?x=1#y", "e", "q")


@pytest.fixture(scope="module")
def http(stage: ManagementStage) -> Iterator[httpx.Client]:
    with stage.client() as client:
        client.base_url = httpx.URL(f"{stage.url}/api/")
        stage.user("admin", "administrator", vhost="/")
        yield client


def q(name: str) -> str:
    """In a path. A dot alone would be taken for a directory."""
    return quote(name, safe="").replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def put(http: httpx.Client, path: str, **body: Any) -> int:
    return http.put(path, json=body).status_code


@pytest.mark.parametrize("name", NAMES)
def test_any_name_stays_text_and_one_part_of_the_path(http: httpx.Client, name: str) -> None:
    queue, exchange, key = f"queue {name}", f"exchange {name}", f"key {name}"
    assert put(http, f"queues/%2F/{q(queue)}", durable=True) == 201
    assert put(http, f"exchanges/%2F/{q(exchange)}", type="direct", durable=True) == 201
    between = f"bindings/%2F/e/{q(exchange)}/q/{q(queue)}"
    bound = http.post(between, json={"routing_key": key, "arguments": {name: name}})
    assert bound.status_code == 201
    (item,) = http.get(between).json()
    assert (item["source"], item["destination"], item["routing_key"], item["arguments"]) == (
        *(exchange, queue, key),
        {name: name},
    )
    assert http.get(urljoin(str(bound.request.url), bound.headers["location"])).json() == item
    assert http.get(f"{between}/{q(item['properties_key'])}").json() == item
    message = {
        "properties": {"headers": {name: name}},
        "routing_key": key,
        "payload": name,
        "payload_encoding": "string",
    }
    assert http.post(f"exchanges/%2F/{q(exchange)}/publish", json=message).json() == {"routed": True}
    get = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (got,) = http.post(f"queues/%2F/{q(queue)}/get", json=get).json()
    assert (got["payload"], got["exchange"], got["routing_key"]) == (name, exchange, key)
    assert got["properties"]["headers"] == {name: name}
    assert http.delete(urljoin(str(bound.request.url), bound.headers["location"])).status_code == 204
    assert http.get(between).json() == []
    assert http.delete(f"exchanges/%2F/{q(exchange)}").status_code == 204
    assert http.delete(f"queues/%2F/{q(queue)}").status_code == 204
    assert http.get(f"queues/%2F/{q(queue)}").status_code == 404


def test_names_that_no_database_takes_are_refused(http: httpx.Client) -> None:
    assert http.get("queues/%2F/a%00b").status_code == 404
    assert put(http, "queues/%2F/a%00b") == 404
    assert put(http, "queues/%2F/%FF") == 404
    assert put(http, "exchanges/%2F/%0A") == 400
    assert put(http, "queues/%2F/%0D%0A") == 400
    assert http.put("queues/%2F//", json={}).status_code == 400
    assert put(http, f"exchanges/%2F/{'x' * 256}") == 400
    assert put(http, f"exchanges/%2F/{q('ü' * 128)}") == 400
    assert put(http, f"exchanges/%2F/{'x' * 255}") == 201


def test_a_queue_whose_name_has_a_line_end_is_not_mistaken_for_another(
    stage: ManagementStage, http: httpx.Client
) -> None:
    """Only programs can declare it: AMQP removes line ends, and so would delete the queue `oneline`."""
    stage.vhosts.find("/").declare_queue("one\nline", True, QueueArguments())
    assert put(http, "queues/%2F/oneline") == 201
    assert http.delete("queues/%2F/one%0Aline").status_code == 400
    assert http.get("queues/%2F/oneline").status_code == 200
    assert http.get("queues/%2F/one%0Aline/bindings").json()[0]["destination"] == "one\nline"


@pytest.mark.parametrize(
    "value",
    [1 << 63, -(1 << 63) - 1, 10**30, None, [None], {"a": None}, "\ud800", {"\ud800": 1}],
    ids=repr,
)
@pytest.mark.parametrize("path", ["queues/%2F/refused", "exchanges/%2F/refused"])
def test_arguments_that_amqp_cannot_carry_are_refused(http: httpx.Client, path: str, value: Any) -> None:
    answer = http.put(path, content=escaped_json({"arguments": {"x-mine": value}}))
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert http.get(path).status_code == 404
    bound = http.post("bindings/%2F/e/amq.topic/q/q1", content=escaped_json({"arguments": {"x-mine": value}}))
    assert bound.status_code == 400


def escaped_json(body: Any) -> bytes:
    """With escapes for what UTF-8 cannot hold."""
    return json.dumps(body).encode()


def test_large_numbers_and_infinities_are_kept(http: httpx.Client) -> None:
    for body in ('{"x-a":9223372036854775807,"x-b":-9223372036854775808}', '{"x-a":1e999,"x-b":-1.5}'):
        assert http.put("queues/%2F/numbers", content=f'{{"arguments":{body}}}').status_code == 201
        shown = http.get("queues/%2F/numbers").json()["arguments"]
        assert shown in ({"x-a": (1 << 63) - 1, "x-b": -(1 << 63)}, {"x-a": "inf", "x-b": -1.5})
        assert http.put("queues/%2F/numbers", content=f'{{"arguments":{body}}}').status_code == 204
        http.delete("queues/%2F/numbers")


def test_bindings_that_differ_in_their_arguments_are_told_apart(http: httpx.Client) -> None:
    between = "bindings/%2F/e/amq.topic/q/q1"
    tables: list[dict[str, Any]] = [{}, {"a": 1}, {"a": "1"}, {"a": 1.5}, {"a": True}, {"a": [1]}, {"b": 1, "a": 1}]
    locations = [
        http.post(between, json={"routing_key": "same", "arguments": each}).headers["location"] for each in tables
    ]
    assert len(set(locations)) == len(tables)
    again = http.post(between, json={"routing_key": "same", "arguments": {"a": 1, "b": 1}})
    assert again.headers["location"] == locations[-1]
    for location, table in zip(locations, tables, strict=True):
        path = f"{between.rpartition('/')[0]}/{location}"
        assert http.get(path).json()["arguments"] == table
        assert http.delete(path).status_code == 204
        assert http.get(path).status_code == 404
    assert [each for each in http.get(between).json() if each["routing_key"] == "same"] == []


@pytest.mark.parametrize(
    ("key", "table", "expected"),
    [
        ("", {}, "~"),
        ("a.b", {}, "a.b"),
        ("a b/~", {}, "a+b%2F%7E"),
        ("", {"a": 1}, "~AVq9f1zFei3Z"),
        ("k", {"a": 1}, "k~AVq9f1zFei3Z"),
    ],
)
def test_properties_keys_stay_the_same(key: str, table: dict[str, Any], expected: str) -> None:
    """Clients keep them: a new version must not change them."""
    assert properties_key(key, table) == expected


@pytest.mark.parametrize(
    ("method", "path", "body", "rights"),
    [
        ("PUT", "queues/%2F/granted", {}, "configure"),
        ("PUT", "queues/%2F/granted2", {"arguments": {"x-dead-letter-exchange": "x"}}, "configure read write"),
        ("DELETE", "queues/%2F/theirs", None, "configure"),
        ("DELETE", "queues/%2F/q1/contents", None, "read"),
        ("POST", "queues/%2F/q1/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}, "read"),
        ("PUT", "exchanges/%2F/granted", {}, "configure"),
        ("PUT", "exchanges/%2F/granted2", {"arguments": {"alternate-exchange": "x"}}, "configure read write"),
        ("DELETE", "exchanges/%2F/theirs", None, "configure"),
        ("POST", "bindings/%2F/e/amq.topic/q/q1", {}, "write read"),
        ("POST", "bindings/%2F/e/amq.topic/e/amq.fanout", {}, "write read"),
        ("DELETE", "bindings/%2F/e/amq.topic/q/q1/theirs", None, "write read"),
        ("DELETE", "bindings/%2F/e/amq.topic/e/amq.fanout/theirs", None, "write read"),
        (
            "POST",
            "exchanges/%2F/amq.fanout/publish",
            {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"},
            "write",
        ),
    ],
)
def test_every_operation_needs_the_rights_of_amqp(
    stage: ManagementStage, http: httpx.Client, method: str, path: str, body: Any, rights: str
) -> None:
    stage.user("limited", "management", vhost="/", pattern="")
    put(http, "queues/%2F/theirs")
    put(http, "exchanges/%2F/theirs")
    http.post("bindings/%2F/e/amq.topic/q/q1", json={"routing_key": "theirs"})
    http.post("bindings/%2F/e/amq.topic/e/amq.fanout", json={"routing_key": "theirs"})
    allowed = dict.fromkeys(rights.split(), ".*")

    def ask(**granted: str) -> int:
        patterns = [granted.get(right, "") for right in ("configure", "write", "read")]
        with stage.catalog.reading() as connection:
            user = users.get(connection, "limited")
        assert user is not None
        stage.catalog.change(lambda change: permissions.put(change, user.id, stage.home.id, *patterns))
        with stage.client("limited") as client:
            return client.request(method, f"/api/{path}", json=body).status_code

    refused = 400 if path.endswith("publish") else 401
    for left_out in allowed:
        others = dict.fromkeys({"configure", "write", "read"} - {left_out}, ".*")
        assert ask(**others) == refused, left_out
    assert ask(**allowed) in (200, 201, 204)


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with _api(broker) as http:
            assert put(http, "queues/%2F/kept", durable=True, arguments={"x-max-length": 9}) == 201
            assert put(http, "queues/%2F/gone", durable=True) == 201
            assert put(http, "exchanges/%2F/kept", type="topic", durable=True) == 201
            assert put(http, "exchanges/%2F/gone", type="topic", durable=True) == 201
            for key, table in (("kept.*", {"a": [1]}), ("gone.*", {})):
                bound = http.post("bindings/%2F/e/kept/q/kept", json={"routing_key": key, "arguments": table})
                assert bound.status_code == 201
            assert http.delete("bindings/%2F/e/kept/q/kept/gone.%252A").status_code == 204
            for body in ("gone", "kept"):
                message = {"properties": {"delivery_mode": 2}, "routing_key": "kept.x", "payload": body}
                published = http.post("exchanges/%2F/kept/publish", json={**message, "payload_encoding": "string"})
                assert published.json() == {"routed": True}
            get = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
            assert http.post("queues/%2F/kept/get", json=get).json()[0]["payload"] == "gone"
            assert http.post("queues/%2F/kept/get", json={**get, "ackmode": "ack_requeue_true"}).status_code == 200
            assert http.delete("queues/%2F/gone").status_code == 204
            assert http.delete("exchanges/%2F/gone").status_code == 204
            before = http.get("bindings/%2F").json()
        broker.kill()
        broker.start()
        with _api(broker) as http:
            assert http.get("queues/%2F/kept").json()["arguments"] == {"x-max-length": 9}
            assert http.get("exchanges/%2F/kept").json()["type"] == "topic"
            assert http.get("queues/%2F/gone").status_code == http.get("exchanges/%2F/gone").status_code == 404
            assert http.get("bindings/%2F").json() == before
            assert [each["routing_key"] for each in before] == ["kept", "kept.*"]
            (got,) = http.post("queues/%2F/kept/get", json={**get, "count": 9}).json()
            assert got["payload"] == "kept"
            assert http.delete("queues/%2F/kept/contents").status_code == 204
        broker.kill()
        broker.start()
        with _api(broker) as http:
            assert http.post("queues/%2F/kept/get", json=get).json() == []


def test_queues_of_http_and_of_amqp_are_the_same(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, _api(broker) as http:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            assert put(http, "queues/%2F/both", durable=True, arguments={"x-max-length": 5}) == 201
            channel.queue_declare("both", durable=True, arguments={"x-max-length": 5})
            channel.queue_declare("mine", exclusive=True)
            locked = http.delete("queues/%2F/mine")
            assert (locked.status_code, "locked queue 'mine'" in locked.json()["reason"]) == (400, True)
            channel.exchange_declare("theirs", "headers", auto_delete=True)
            channel.queue_bind("both", "theirs", arguments={"x-match": "any", "n": 7})
            (item,) = http.get("exchanges/%2F/theirs/bindings/source").json()
            assert item["arguments"] == {"x-match": "any", "n": 7}
            channel.basic_consume("both", lambda *_: None)
            assert http.delete("queues/%2F/both?if-unused=true").status_code == 400
            path = f"bindings/%2F/e/theirs/q/both/{item['properties_key']}"
            assert http.delete(path).status_code == 204
            assert http.get("exchanges/%2F/theirs").status_code == 404  # auto-delete
        assert http.get("queues/%2F/mine").status_code == 404


def _api(broker: BrokerProcess) -> httpx.Client:
    url = f"http://127.0.0.1:{broker.management_port}/api/"
    return httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60, trust_env=False)
