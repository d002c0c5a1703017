"""rabbitmqadmin, as Debian ships it with RabbitMQ, asks Warren's management."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from tests.management.stage import PASSWORD, ManagementStage

RABBITMQ_HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # of test12
PATTERNS = ["configure=", "write=^a", "read=.*"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path_factory.mktemp("rabbitmqadmin") / "data") as new_stage:
        new_stage.vhost("a/b")
        new_stage.user("admin", "administrator", vhost="/")
        new_stage.queue("orders", "/", b"a", b"b")
        new_stage.queue("bills", "a/b", b"c")
        yield new_stage


def admin(stage: ManagementStage, *words: str) -> subprocess.CompletedProcess[str]:
    host, port = stage.serving.addresses["http"]
    command = ["rabbitmqadmin", "-H", host, "-P", str(port), "-u", "admin", "-p", PASSWORD, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def listed(stage: ManagementStage, *words: str) -> Any:
    done = admin(stage, "-f", "raw_json", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def done(stage: ManagementStage, *words: str) -> str:
    """What it prints, if it succeeds."""
    finished = admin(stage, *words)
    assert finished.returncode == 0, finished.stderr + finished.stdout
    return finished.stdout.strip()


def test_queues_are_listed(stage: ManagementStage) -> None:
    found = listed(stage, "list", "queues", "vhost", "name", "messages", "consumers")
    assert [(each["vhost"], each["name"], each["messages"]) for each in found] == [
        ("/", "orders", 2),
        ("a/b", "bills", 1),
    ]
    (one,) = listed(stage, "-V", "a/b", "list", "queues", "name")
    assert one["name"] == "bills"


def test_the_server_shows_itself(stage: ManagementStage) -> None:
    (overview,) = listed(stage, "show", "overview")
    assert (overview["queue_totals"]["messages"], overview["object_totals"]["queues"]) == (3, 2)
    assert [each["name"] for each in listed(stage, "list", "vhosts")] == ["/", "a/b"]
    assert listed(stage, "list", "nodes")[0]["running"] is True


def test_a_table_is_drawn(stage: ManagementStage) -> None:
    done = admin(stage, "list", "queues", "name", "messages")
    assert done.returncode == 0
    assert "| orders | 2        |" in done.stdout


def test_users_vhosts_and_permissions_are_declared_listed_and_deleted(stage: ManagementStage) -> None:
    declared = [
        (["declare", "vhost", "name=shop"], "vhost declared"),
        (["declare", "user", "name=ann", "password=secret", "tags=monitoring"], "user declared"),
        (["declare", "user", "name=ben", f"password_hash={RABBITMQ_HASH}", "tags="], "user declared"),
        (
            ["declare", "permission", "vhost=shop", "user=ann", "configure=", "write=^a", "read=.*"],
            "permission declared",
        ),
        (["declare", "user", "name=ann", "password=other", "tags=management"], "user declared"),
    ]
    for words, expected in declared:
        done = admin(stage, *words)
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    users = {each["name"]: each for each in listed(stage, "list", "users")}
    assert (users["ann"]["tags"], users["ben"]["password_hash"]) == (["management"], RABBITMQ_HASH)
    assert "shop" in [each["name"] for each in listed(stage, "list", "vhosts")]
    found = [each for each in listed(stage, "list", "permissions") if each["user"] == "ann"]
    assert found == [{"user": "ann", "vhost": "shop", "configure": "", "write": "^a", "read": ".*"}]
    deleted = [
        (["delete", "permission", "vhost=shop", "user=ann"], "permission deleted"),
        (["delete", "user", "name=ann"], "user deleted"),
        (["delete", "user", "name=ben"], "user deleted"),
        (["delete", "vhost", "name=shop"], "vhost deleted"),
    ]
    for words, expected in deleted:
        done = admin(stage, *words)
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    assert [each["name"] for each in listed(stage, "list", "users")] == ["admin"]
    assert [each["name"] for each in listed(stage, "list", "vhosts")] == ["/", "a/b"]
    done = admin(stage, "delete", "user", "name=ann")
    assert done.returncode != 0 and "Not found: /api/users/ann" in done.stderr


def test_a_wrong_password_is_reported_as_such(stage: ManagementStage) -> None:
    done = admin(stage, "-p", "wrong", "list", "queues")
    assert done.returncode != 0
    assert "Access refused" in done.stdout + done.stderr


def test_exchanges_and_bindings_are_listed(stage: ManagementStage) -> None:
    names = [each["name"] for each in listed(stage, "list", "exchanges", "vhost", "name", "type")]
    assert names.count("") == names.count("amq.topic") == 2  # one in each vhost
    found = listed(stage, "-V", "a/b", "list", "bindings")
    assert [(each["source"], each["destination"], each["routing_key"]) for each in found] == [("", "bills", "bills")]


def test_queues_exchanges_and_bindings_are_declared_and_deleted(stage: ManagementStage) -> None:
    queue = ("name=a queue/<b>", "durable=true", 'arguments={"x-max-length":5}')
    exchange = ("name=an exchange", "type=topic", "durable=false", "internal=false", "auto_delete=true")
    binding = ("source=an exchange", "destination=a queue/<b>", "destination_type=queue", "routing_key=a.* ü")
    assert done(stage, "declare", "queue", *queue) == "queue declared"
    assert done(stage, "declare", "queue", *queue) == "queue declared"
    assert done(stage, "declare", "exchange", *exchange) == "exchange declared"
    assert done(stage, "declare", "binding", *binding) == "binding declared"
    assert done(stage, "declare", "binding", *binding[:3], 'arguments={"a":1}') == "binding declared"
    found = [each for each in listed(stage, "-V", "/", "list", "bindings") if each["source"] == "an exchange"]
    assert [(each["routing_key"], each["arguments"]) for each in found] == [("", {"a": 1}), ("a.* ü", {})]
    for each in found:
        key = f"properties_key={each['properties_key']}"
        assert done(stage, "delete", "binding", *binding[:3], key) == "binding deleted"
    names = [each["name"] for each in listed(stage, "-V", "/", "list", "exchanges")]
    assert "an exchange" not in names  # auto-delete
    assert done(stage, "declare", "exchange", "name=another", "type=fanout") == "exchange declared"
    assert done(stage, "delete", "exchange", "name=another") == "exchange deleted"
    assert done(stage, "delete", "queue", "name=a queue/<b>") == "queue deleted"
    assert [each["name"] for each in listed(stage, "-V", "/", "list", "queues")] == ["orders"]


def test_messages_are_published_fetched_and_purged(stage: ManagementStage, tmp_path: Path) -> None:
    assert done(stage, "declare", "queue", "name=letters") == "queue declared"
    assert done(stage, "publish", "routing_key=letters", "payload=ü <b>") == "Message published"
    properties = 'properties={"delivery_mode":2,"headers":{"k":[1,"a"]}}'
    assert done(stage, "publish", "exchange=amq.default", "routing_key=letters", "payload=2", properties)
    assert done(stage, "publish", "routing_key=nowhere", "payload=x") == "Message published but NOT routed"
    first, second = listed(stage, "get", "queue=letters", "count=5")
    assert (first["payload"], first["message_count"], first["redelivered"]) == ("ü <b>", 1, False)
    assert second["properties"] == {"delivery_mode": 2, "headers": {"k": [1, "a"]}}
    path = tmp_path / "payload"
    done(stage, "get", "queue=letters", "ackmode=ack_requeue_false", f"payload_file={path}")
    assert path.read_text() == "ü <b>"
    assert done(stage, "purge", "queue", "name=letters") == "queue purged"
    assert listed(stage, "get", "queue=letters") == []
    assert done(stage, "delete", "queue", "name=letters") == "queue deleted"


def test_refusals_are_printed(stage: ManagementStage) -> None:
    refused = admin(stage, "declare", "queue", "name=orders", "durable=false")
    assert refused.returncode != 0
    assert "inequivalent arg 'durable' for queue 'orders' in vhost '/'" in refused.stdout + refused.stderr


def test_clients_are_listed_and_closed(stage: ManagementStage) -> None:
    stage.user("worker", vhost="/")
    credentials = pika.PlainCredentials("worker", PASSWORD)
    parameters = pika.ConnectionParameters("127.0.0.1", stage.serve_amqp(), credentials=credentials)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("jobs", exclusive=True)
    channel.basic_consume("jobs", lambda *arguments: None)
    (listed_connection,) = listed(stage, "list", "connections", "name", "user", "channels")
    name = listed_connection.pop("name")
    assert listed_connection == {"user": "worker", "channels": 1}
    assert listed(stage, "list", "channels", "name") == [{"name": f"{name} (1)"}]
    assert listed(stage, "list", "consumers", "queue.name", "ack_required") == [
        {"queue": {"name": "jobs"}, "ack_required": True}
    ]
    done = admin(stage, "close", "connection", f"name={name}")
    assert (done.returncode, done.stdout) == (0, "connection closed\n")
    with pytest.raises(ConnectionClosedByBroker):
        connection.process_data_events(10)
    assert listed(stage, "list", "connections") == []
