"""Definitions over HTTP on a real broker: import, export, refusals, and what clients see of it.

`rabbitmq_definitions.json` was exported by a RabbitMQ 3.10.8 with users, policies, limits and bindings with arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from tests.management.stage import ManagementStage
from warren.management.definitions import BODY_BYTES_MAX

FLAGS = {"durable": True, "auto_delete": False, "arguments": {}}
OF_RABBITMQ = json.loads((Path(__file__).parent / "rabbitmq_definitions.json").read_text())
SECTIONS = [name for name, value in OF_RABBITMQ.items() if isinstance(value, list)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path) as stage:
        yield stage


def post(stage: ManagementStage, document: Any, path: str = "", **how: Any) -> httpx.Response:
    with stage.client() as client:
        return client.post(f"/api/definitions{path}", json=document, **how)


def exported(stage: ManagementStage) -> dict[str, Any]:
    found: dict[str, Any] = stage.get("/api/definitions").json()
    return found


def of_queue(name: str, vhost: str = "/", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": vhost, **FLAGS, **more}


def of_exchange(name: str, type_: str = "topic", vhost: str = "/") -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "type": type_, "internal": False, **FLAGS}


def of_binding(source: str, queue: str, key: str, vhost: str = "/", **arguments: Any) -> dict[str, Any]:
    ends = {"source": source, "vhost": vhost, "destination": queue, "destination_type": "queue"}
    return {**ends, "routing_key": key, "arguments": arguments}


def in_order(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


# -- both ways -------------------------------------------------------------------------------------------------------


def test_what_rabbitmq_exported_is_exported_again_as_it_was(stage: ManagementStage) -> None:
    assert post(stage, OF_RABBITMQ).status_code == 204
    again = exported(stage)
    again["users"] = [user for user in again["users"] if user["name"] != "admin"]
    again["vhosts"] = [{"name": vhost["name"]} for vhost in again["vhosts"]]
    for section in SECTIONS:
        assert in_order(again[section]) == in_order(OF_RABBITMQ[section]), section
    assert again["rabbit_version"] == again["rabbitmq_version"] == "3.10.8"


def test_what_rabbitmq_exported_serves_clients(stage: ManagementStage) -> None:
    assert post(stage, OF_RABBITMQ).status_code == 204
    login = pika.PlainCredentials("ann", "secret")
    port = stage.serve_amqp()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, "blue", login)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        headers = pika.BasicProperties(headers={"colour": "red", "n": 3})
        channel.basic_publish("h", "", b"by headers", headers)
        channel.basic_publish("h", "", b"by alternate", pika.BasicProperties(headers={"colour": "blue"}))
        channel.basic_publish("amq.topic", "a.b.c", b"by key")
        bodies = [channel.basic_get("q1", True)[2] for _ in range(4)]
        assert bodies == [b"by headers", b"by alternate", b"by key", None]
    item = stage.get("/api/queues/blue/q1").json()
    assert item["policy"] == "ttl"
    assert item["operator_policy"] == "cap"


def test_an_export_imports_into_another_broker(stage: ManagementStage, tmp_path: Path) -> None:
    post(stage, OF_RABBITMQ)
    first = exported(stage)
    (tmp_path / "other").mkdir()
    with ManagementStage(tmp_path / "other") as other:
        assert post(other, first).status_code == 204
        assert exported(other) == first


def test_an_import_again_writes_nothing(stage: ManagementStage) -> None:
    post(stage, OF_RABBITMQ)
    before = stage.catalog.applied
    assert post(stage, OF_RABBITMQ).status_code == 204
    assert stage.catalog.applied == before


def test_the_order_of_a_document_does_not_matter(stage: ManagementStage) -> None:
    backwards = {section: OF_RABBITMQ[section][::-1] for section in reversed(SECTIONS)}
    assert post(stage, backwards).status_code == 204
    assert in_order(exported(stage)["bindings"]) == in_order(OF_RABBITMQ["bindings"])


def test_definitions_survive_a_restart(tmp_path: Path) -> None:
    with ManagementStage(tmp_path) as stage:
        post(stage, OF_RABBITMQ)
        before = exported(stage)
    with ManagementStage(tmp_path) as stage:
        assert exported(stage) == before
