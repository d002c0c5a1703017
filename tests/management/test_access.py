"""Users, vhosts, permissions and limits over HTTP: RabbitMQ's answers to the same requests are expected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.management.access_questions import ANSWERS, REQUESTS, send
from tests.management.questions import LIMITED, QUEUE, USERS
from tests.management.stage import NODE, ManagementStage

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


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Warren shows the message counts of every vhost, RabbitMQ of those with messages."""
    body = answer["body"]
    if isinstance(body, dict) and "cluster_state" in body:
        counts = ("messages", "messages_ready", "messages_unacknowledged")
        body = {name: value for name, value in body.items() if name not in counts}
    return {**answer, "body": body}
