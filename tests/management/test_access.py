"""Users, vhosts, permissions and limits over HTTP: RabbitMQ's answers to the same requests are expected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.management.access_questions import ANSWERS, REQUESTS, send
from tests.management.questions import LIMITED, QUEUE, USERS
from tests.management.stage import NODE, PASSWORD, ManagementStage
from warren.base.errors import OutOfRoom
from warren.broker.vhosts import Vhosts
from warren.catalog.vhosts import VhostRow

# By the end of the request's name: what Warren answers instead, and why.
A_SENTENCE = "a pattern is refused with a sentence; RabbitMQ shows the codes of the characters of one"
A_TYPE = "a value of a wrong type is refused; RabbitMQ fails, or stores it"
OURS: dict[str, tuple[int, str]] = {
    'PUT users/cid {"password": 5, "tags": ""}': (400, A_TYPE),
    'PUT users/cid {"password": null, "tags": ""}': (400, A_TYPE),
    'PUT users/cid {"password": "x", "tags": 5}': (400, A_TYPE),
    'PUT users/cid {"password": "x", "tags": null}': (400, A_TYPE),
    'PUT vhosts/v2 {"tags": 5}': (400, A_TYPE),
    'POST users/bulk-delete {"users": "ann"}': (400, A_TYPE),
    'PUT permissions/v1/ann {"configure": 5, "write": ".*", "read": ""}': (400, A_TYPE),
    'PUT permissions/v1/ann {"configure": "(", "write": ".*", "read": ""}': (400, A_SENTENCE),
    'PUT topic-permissions/v1/ann {"exchange": "amq.topic", "write": "(", "read": ".*"}': (400, A_SENTENCE),
    "DELETE user-limits/nobody/max-connections": (404, "RabbitMQ fails"),
}


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagementStage]:
    """As `ask_server.py` prepares RabbitMQ."""
    with ManagementStage(tmp_path_factory.mktemp("access") / "data") as stage:
        stage.vhost("other")
        for user, tag, is_in in USERS:
            stage.user(user, *([tag] if tag else []), vhost="/" if is_in else None)
        stage.user(LIMITED, "management", vhost="/", pattern="")
        stage.queue(QUEUE, "/", b"a", max_length=5)
        with stage.client() as client:
            client.delete("/api/users/admin").raise_for_status()
        yield stage


def test_every_request_is_answered_as_by_rabbitmq(stage: ManagementStage) -> None:
    expected = json.loads(ANSWERS.read_text())
    assert [each["request"] for each in expected] == [each.name for each in REQUESTS]
    different, seen = [], set()
    with stage.client(None) as client:
        for request, theirs in zip(REQUESTS, expected, strict=True):
            ours = {"request": request.name, **send(client, request, NODE)}
            name = request.name.partition(": ")[2]
            if name in OURS and theirs["status"] != 401:
                seen.add(name)
                assert ours["status"] == OURS[name][0] and ours["body"]["reason"], ours
            elif _comparable(ours) != _comparable(theirs):
                different.append((ours, theirs))
    assert not different, json.dumps(different, indent=1)
    assert seen == OURS.keys(), "a difference that is none any more"


def test_a_password_that_was_put_logs_in_and_its_hash_is_shown(stage: ManagementStage) -> None:
    with stage.client("administrator-in") as client:
        assert client.put("/api/users/zoe", json={"password": PASSWORD, "tags": "management"}).status_code == 201
        shown = client.get("/api/users/zoe").json()
        assert shown["hashing_algorithm"] == "warren_password_hashing_scrypt"
        assert shown["password_hash"].startswith("scrypt$ln=14,r=8,p=1$")
        copy = {name: shown[name] for name in ("password_hash", "hashing_algorithm")}
        assert client.put("/api/users/copy", json={**copy, "tags": "management"}).status_code == 201
        assert client.get("/api/users/copy").json() == {**shown, "name": "copy"}
    for user in ("zoe", "copy"):
        assert stage.get("/api/whoami", user).json() == {"name": user, "tags": ["management"]}


def test_new_passwords_are_hashed_as_the_option_says(stage: ManagementStage) -> None:
    stage.broker.settings = replace(stage.broker.settings, password_hashing="sha256")
    with stage.client("administrator-in") as client:
        client.put("/api/users/zoe", json={"password": PASSWORD, "tags": "management"})
        assert client.get("/api/users/zoe").json()["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert stage.get("/api/whoami", "zoe").status_code == 200


@pytest.mark.parametrize("body", [{"password": ""}, {"password_hash": ""}, {}])
def test_a_user_without_a_password_cannot_log_in(stage: ManagementStage, body: dict[str, str]) -> None:
    with stage.client("administrator-in") as client:
        assert client.put("/api/users/zoe", json={**body, "tags": "administrator"}).status_code == 201
        assert client.get("/api/users/zoe").json()["password_hash"] == ""
        for password in ("", PASSWORD):
            assert client.get("/api/whoami", auth=("zoe", password)).status_code == 401


def test_who_creates_a_vhost_over_the_socket_is_no_user_and_gets_no_permission(stage: ManagementStage) -> None:
    with stage.local() as client:
        assert client.put("/api/vhosts/new", json={"description": "a text"}).status_code == 201
        assert client.get("/api/vhosts/new/permissions").json() == []
        assert client.get("/api/vhosts/new").json()["description"] == "a text"
        assert client.delete("/api/vhosts/new").status_code == 204


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (f"users/{'x' * 256}", {"password": "x", "tags": ""}, "has 256 bytes"),
        ("users/zoe", {"password": "x" * 1025, "tags": ""}, "a password cannot have 1025 bytes"),
        ("users/zoe", {"password": "x", "tags": [5]}, "tags must be text"),
        ("users/zoe", {"password": "x", "tags": ["x" * 256]}, "the tag"),
        ("users/zoe", {"password": "x", "tags": "", "limits": {"nope": 1}}, "Unrecognised terms"),
        ("users/zoe", {"password": "x", "tags": "", "limits": {"max-channels": True}}, "should be a number"),
        ("users/zoe", {"password": "x", "tags": "", "limits": 5}, "limits must be an object"),
        ("users/zoe", {"password_hash": "AAAA", "hashing_algorithm": "rot13", "tags": ""}, "no password hashing"),
        (
            "users/zoe",
            {"password_hash": "AAAA", "hashing_algorithm": "warren_password_hashing_scrypt", "tags": ""},
            "password_hash is not a hash by scrypt",
        ),
        (f"vhosts/{'x' * 256}", {}, "the vhost"),
        ("vhosts/new", {"description": 5}, "description must be text"),
        ("permissions/%2F/limited", {"configure": "^(a+)+$", "write": "", "read": ""}, "could take too long"),
        ("topic-permissions/%2F/limited", {"exchange": "x" * 256, "write": "", "read": ""}, "the exchange"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_sentence(
    stage: ManagementStage, path: str, body: dict[str, Any], reason: str
) -> None:
    with stage.client("administrator-in") as client:
        response = client.put(f"/api/{path}", json=body)
        names = {each["name"] for each in client.get("/api/users").json() + client.get("/api/vhosts").json()}
    assert response.status_code == 400
    assert reason in response.json()["reason"]
    assert not names & {"zoe", "new"}


@pytest.mark.parametrize(
    ("path", "body"),
    [("users/bulk-delete", {"users": ["\ud800"]}), ("warren/authenticate", {"username": "\ud800", "password": "x"})],
)
def test_a_name_that_is_not_valid_unicode_is_refused(stage: ManagementStage, path: str, body: dict[str, Any]) -> None:
    with stage.client("administrator-in") as client:
        response = client.post(f"/api/{path}", content=json.dumps(body).encode())
    assert (response.status_code, response.json()["reason"]) == (400, "a text is not valid Unicode")


def test_a_vhost_is_started_again_if_its_first_start_failed(
    stage: ManagementStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is durable by then, so the answer is an error and the vhost exists."""

    def fail(self: Vhosts, row: VhostRow) -> None:
        raise OutOfRoom("no space left")

    with stage.client("administrator-in") as client:
        with monkeypatch.context() as patch:
            patch.setattr(Vhosts, "open", fail)
            assert client.put("/api/vhosts/new").status_code == 503
        assert client.get("/api/health/checks/virtual-hosts").status_code == 503
        assert client.post(f"/api/vhosts/new/start/{NODE}").status_code == 204
        assert client.get("/api/vhosts/new").status_code == 200


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Warren shows the message counts of every vhost, RabbitMQ of those with messages."""
    body = answer["body"]
    if isinstance(body, dict) and "cluster_state" in body:
        counts = ("messages", "messages_ready", "messages_unacknowledged")
        body = {name: value for name, value in body.items() if name not in counts}
    return {**answer, "body": body}
