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
from tests.server.load import until

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


# -- all or nothing --------------------------------------------------------------------------------------------------

POLICY = {"vhost": "/", "name": "p", "pattern": "^a", "definition": {"max-length": 5}, "priority": 0}
PERMISSION = {"user": "admin", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
ENDS = {"source": "amq.topic", "vhost": "/", "destination": "old", "destination_type": "queue", "routing_key": "k"}
BAD: list[tuple[dict[str, Any], Any]] = [
    ({"queues": [of_queue("x", "nowhere")]}, ["no_such_vhost", "nowhere"]),
    ({"queues": [{"name": "x", **FLAGS}]}, ["no_such_vhost", "undefined"]),
    ({"permissions": [{**PERMISSION, "user": "nobody"}]}, ["no_such_user", "nobody"]),
    ({"permissions": [{**PERMISSION, "vhost": "nowhere"}]}, ["no_such_vhost", "nowhere"]),
    ({"permissions": [{**PERMISSION, "read": "["}]}, "user 'admin'"),
    ({"topic_permissions": [{**PERMISSION, "user": "nobody", "exchange": "e"}]}, ["no_such_user", "nobody"]),
    ({"users": [{"name": "x"}]}, "tags_not_present (user: name 'x')"),
    ({"users": [{"name": "x", "tags": "", "password_hash": "%%%"}]}, ["not_base64", "%%%"]),
    ({"users": [{"name": "x", "tags": "", "limits": {"nope": 1}}]}, "user: name 'x'"),
    ({"policies": [{**POLICY, "definition": {"nope": 1}}]}, "are not recognised policy settings\n (//p)"),
    (
        {"parameters": [{"vhost": "/", "component": "nope", "name": "p", "value": 1}]},
        "Validation failed\n\ncomponent nope not found\n (//nope/p)",
    ),
    ({"exchanges": [of_exchange("e", "nope")]}, "invalid exchange type 'nope' of exchange 'e' in vhost '/'"),
    (
        {"exchanges": [of_exchange("amq.topic", "direct")]},
        "inequivalent arg 'type' for exchange 'amq.topic' in vhost '/': received 'direct' but current is 'topic'",
    ),
    (
        {"queues": [of_queue("old", durable=False)]},
        "inequivalent arg 'durable' for queue 'old' in vhost '/': received 'false' but current is 'true'",
    ),
    ({"queues": [of_queue("x"), of_queue("x", auto_delete=True)]}, "inequivalent arg 'auto_delete' for queue 'x'"),
    ({"queues": [of_queue("x", arguments={"x-max-length": -1})]}, "invalid arg 'x-max-length' for queue 'x'"),
    ({"queues": [of_queue("x" * 256)]}, "256 bytes"),
    ({"queues": [{"name": "x", "vhost": "/"}]}, "durable is missing (queue: name 'x', vhost '/')"),
    ({"bindings": {"name": "x"}}, "bindings must be a list"),
    ({"queues": ["x"]}, "queue 3 must be an object"),
    ({"bindings": [of_binding("nope", "old", "k")]}, "no exchange 'nope' in vhost '/'"),
    ({"bindings": [of_binding("amq.topic", "nope", "k")]}, "no queue 'nope' in vhost '/'"),
    ({"bindings": [{**ENDS, "destination_type": "cow"}]}, "destination 'old'"),
    ({"bindings": [{**ENDS, "routing_key": "a\0b"}]}, "routing_key has a zero byte"),
    ({"vhosts": [{}]}, "name is missing (vhost without a name)"),
]


@pytest.mark.parametrize(("fault", "reason"), BAD)
def test_a_fault_refuses_the_whole_document_and_names_the_object(
    stage: ManagementStage, fault: dict[str, Any], reason: Any
) -> None:
    stage.queue("old")
    before, epoch = exported(stage), stage.catalog.applied
    good: dict[str, Any] = {"vhosts": [{"name": "new"}], "queues": [of_queue("good"), of_queue("in new", "new")]}
    document = {**good, **fault}
    if "queues" in fault:
        document["queues"] = good["queues"] + fault["queues"]
    answer = post(stage, document)
    assert answer.status_code == 400
    found = answer.json()["reason"]
    assert found == reason or (isinstance(found, str) and isinstance(reason, str) and reason in found)
    assert exported(stage) == before
    assert stage.catalog.applied == epoch
    assert [vhost.row.name for vhost in stage.vhosts.every()] == ["/"]


def test_a_vhost_gets_no_more_queues_than_it_may_have(stage: ManagementStage) -> None:
    limit = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 2}}
    assert post(stage, {"parameters": [limit], "queues": [of_queue("a")]}).status_code == 204
    answer = post(stage, {"queues": [of_queue("a"), of_queue("b"), of_queue("c")]})
    code, text = answer.json()["reason"]
    assert (answer.status_code, code) == (400, "vhost_limit_exceeded")
    assert 'Adding 2 queue(s) to virtual host "/" would exceed the limit of 2 queue(s).' in text
    assert post(stage, {"queues": [of_queue("b")]}).status_code == 204


# -- a broker that serves --------------------------------------------------------------------------------------------


def test_an_import_reaches_clients_that_are_connected(stage: ManagementStage) -> None:
    stage.user("bob", vhost="/")
    stage.queue("old")
    port = stage.serve_amqp()
    login = pika.PlainCredentials("bob", "secret")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, "/", login)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("old", passive=True)
        document = {
            "exchanges": [of_exchange("events")],
            "queues": [of_queue("new"), of_queue("old")],
            "bindings": [of_binding("events", "new", "a.*"), of_binding("events", "old", "#")],
            "policies": [{**POLICY, "pattern": "^old$", "definition": {"max-length": 1}}],
        }
        assert post(stage, document).status_code == 204
        for key in ("a.1", "b.1", "a.2"):
            channel.basic_publish("events", key, key.encode())
        assert [channel.basic_get("new", True)[2] for _ in range(3)] == [b"a.1", b"a.2", None]
        assert [channel.basic_get("old", True)[2] for _ in range(2)] == [b"a.2", None]


def test_queues_with_a_ttl_expire_without_a_client(stage: ManagementStage) -> None:
    expiring = of_queue("x", arguments={"x-expires": 1})
    assert post(stage, {"queues": [expiring, of_queue("stays")]}).status_code == 204
    until(lambda: [each["name"] for each in exported(stage)["queues"]] == ["stays"], "the queue expires")


# -- requests --------------------------------------------------------------------------------------------------------


def test_definitions_of_a_vhost_name_no_vhost(stage: ManagementStage) -> None:
    post(stage, OF_RABBITMQ)
    found = stage.get("/api/definitions/blue").json()
    assert set(found) == {"rabbit_version", "parameters", "policies", "queues", "exchanges", "bindings"}
    assert "vhost" not in found["queues"][0]
    stage.vhost("copy")
    found["policies"] = found["parameters"] = []
    assert post(stage, found, "/copy").status_code == 204
    again = stage.get("/api/definitions/copy").json()
    assert (again["queues"], again["exchanges"]) == (found["queues"], found["exchanges"])
    assert in_order(again["bindings"]) == in_order(found["bindings"])


def test_only_existing_vhosts_have_definitions(stage: ManagementStage) -> None:
    answer = stage.get("/api/definitions/nope")
    assert (answer.status_code, answer.json()["reason"]) == (400, "vhost_not_found")
    answer = post(stage, {}, "/nope")
    assert (answer.status_code, answer.json()["reason"]) == (404, "vhost_not_found")


def test_a_browser_uploads_a_file_and_downloads_one(stage: ManagementStage) -> None:
    file = {"file": ("a.json", json.dumps({"vhosts": [{"name": "up"}]}))}
    with stage.client() as client:
        assert client.post("/api/definitions", files=file).status_code == 204
        answer = client.post("/api/definitions", files=file, data={"redirect": "../#/import-succeeded"})
        assert (answer.status_code, answer.headers["location"]) == (303, "../#/import-succeeded")
        assert "up" in {vhost.row.name for vhost in stage.vhosts.every()}
        answer = client.post("/api/definitions", files={"other": ("a.json", "{}")})
        assert (answer.status_code, answer.json()["reason"]) == (400, "failed_to_parse_json")
        answer = client.get("/api/definitions?download=all.json")
        assert answer.headers["content-disposition"] == "attachment; filename=all.json"
        assert "content-disposition" not in client.get("/api/definitions?download=a%0d%0ab").headers


@pytest.mark.parametrize("body", [b"{not json", b"[1]", b'"x"'])
def test_what_is_no_document_is_refused(stage: ManagementStage, body: bytes) -> None:
    with stage.client() as client:
        answer = client.post("/api/definitions", content=body)
    assert (answer.status_code, answer.json()["reason"]) == (400, "failed_to_parse_json")


def test_a_document_is_nested_only_so_deep(stage: ManagementStage) -> None:
    with stage.client() as client:
        answer = client.post("/api/definitions", content=b'{"queues":' + b"[" * 100_000)
    assert answer.status_code == 400


@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring"])
def test_only_administrators_use_definitions(stage: ManagementStage, tag: str) -> None:
    stage.user("ann", tag, vhost="/")
    with stage.client("ann") as client:
        for answer in (
            client.get("/api/definitions"),
            client.get("/api/definitions/%2F"),
            client.post("/api/definitions", json={}),
            client.post("/api/definitions/%2F", json={}),
        ):
            assert (answer.status_code, answer.json()["reason"]) == (401, "Not administrator user")


# -- passwords -------------------------------------------------------------------------------------------------------


def test_a_scrypt_hash_is_left_out_and_stays_at_an_import(stage: ManagementStage) -> None:
    document = exported(stage)
    assert document["warnings"] == ["user 'admin' is exported without its scrypt hash"]
    assert "password_hash" not in document["users"][0]
    assert post(stage, document).status_code == 204
    assert stage.get("/api/whoami").status_code == 200, "the password is the same"


def test_imported_hashes_are_kept_and_passwords_are_hashed(stage: ManagementStage) -> None:
    hash_ = next(user["password_hash"] for user in OF_RABBITMQ["users"] if user["name"] == "ann")
    plain = {"name": "bob", "password": "secret", "tags": ["management"]}
    hashed = {"name": "ann", "password_hash": hash_, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
    assert post(stage, {"users": [plain, {**hashed, "tags": "management"}]}).status_code == 204
    assert stage.get("/api/whoami", "ann").status_code == stage.get("/api/whoami", "bob").status_code == 200
    assert stage.get("/api/users/ann").json()["password_hash"] == hash_
