"""rabbitmqadmin, as Debian ships it with RabbitMQ, asks Warren's management."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from tests.management.stage import PASSWORD, ManagementStage
from tests.server.broker_process import BrokerProcess

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


# Subcommand: its arguments, in an order in which each finds what it needs.
EVERY_SUBCOMMAND = {
    "declare vhost": ["name=v"],
    "declare user": ["name=ann", "password=secret", "tags=management"],
    "declare permission": ["vhost=v", "user=ann", "configure=.*", "write=.*", "read=.*"],
    "declare exchange": ["name=x", "type=direct"],
    "declare queue": ["name=q"],
    "declare binding": ["source=x", "destination=q", "routing_key=k"],
    "declare parameter": ["component=vhost-limits", "name=limits", 'value={"max-queues": 50}'],
    "declare policy": ["name=p", "pattern=^q", 'definition={"max-length": 9}', "apply-to=queues"],
    "declare operator_policy": ["name=o", "pattern=^q", 'definition={"max-length": 5}', "apply-to=queues"],
    "declare vhost_limit": ["vhost=v", "name=max-queues", "value=7"],
    "publish": ["exchange=x", "routing_key=k", "payload=hello"],
    "get": ["queue=q", "ackmode=ack_requeue_true"],
    "list connections": [],
    "list channels": [],
    "list consumers": [],
    "list exchanges": [],
    "list queues": [],
    "list bindings": [],
    "list users": [],
    "list vhosts": [],
    "list permissions": [],
    "list nodes": [],
    "list parameters": [],
    "list policies": [],
    "list operator_policies": [],
    "list vhost_limits": [],
    "show overview": [],
    "export": ["{file}"],
    "import": ["{file}"],
    "purge queue": ["name=q"],
    "close connection": ["name={connection}"],
    "delete binding": ["source=x", "destination_type=queue", "destination=q", "properties_key=k"],
    "delete queue": ["name=q"],
    "delete exchange": ["name=x"],
    "delete vhost_limit": ["vhost=v", "name=max-queues"],
    "delete operator_policy": ["name=o"],
    "delete policy": ["name=p"],
    "delete parameter": ["component=vhost-limits", "name=limits"],
    "delete permission": ["vhost=v", "user=ann"],
    "delete user": ["name=ann"],
    "delete vhost": ["name=v"],
}


def test_every_subcommand_of_its_help_runs_on_a_served_broker(tmp_path: Path) -> None:
    text = subprocess.run(["rabbitmqadmin", "help", "subcommands"], capture_output=True, text=True, check=True).stdout
    offered = {
        " ".join(word for word in line.split()[:2] if re.fullmatch(r"[a-z_]+", word))
        for line in text.splitlines()
        if re.match(r"  (list|show|declare|delete|close|purge|export|import|publish|get) ", line)
    }
    assert offered == set(EVERY_SUBCOMMAND)
    with BrokerProcess(tmp_path / "data") as broker:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("consumed")
        channel.basic_consume("consumed", lambda *arguments: None)
        url = f"http://127.0.0.1:{broker.management_port}/api/connections"
        (shown,) = httpx.get(url, auth=("guest", "guest"), trust_env=False).json()
        names = {"file": str(tmp_path / "definitions.json"), "connection": shown["name"]}
        for subcommand, arguments in EVERY_SUBCOMMAND.items():
            line = ["rabbitmqadmin", "-P", str(broker.management_port), *subcommand.split()]
            for argument in arguments:
                for name, value in names.items():
                    argument = argument.replace(f"{{{name}}}", value)
                line.append(argument)
            finished = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
            assert finished.returncode == 0, f"{subcommand}: {finished.stdout}{finished.stderr}"
        with pytest.raises(ConnectionClosedByBroker):
            connection.process_data_events(10)
