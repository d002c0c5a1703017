"""rabbitmqadmin, as Debian ships it with RabbitMQ, asks Warren's management."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from tests.management.stage import PASSWORD, ManagementStage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path_factory.mktemp("rabbitmqadmin") / "data") as new_stage:
        new_stage.vhost("a/b")
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


def test_a_wrong_password_is_reported_as_such(stage: ManagementStage) -> None:
    done = admin(stage, "-p", "wrong", "list", "queues")
    assert done.returncode != 0
    assert "Access refused" in done.stdout + done.stderr


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
