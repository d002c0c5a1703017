"""Queues, exchanges, bindings and messages: the answers are RabbitMQ's, to the letter, to the same requests in the same
order. Differences are listed here, with their reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.management.questions import LIMITED, USERS
from tests.management.stage import NODE, ManagementStage
from tests.management.topology_steps import ANSWERS, CONSUMED, LOCKED, STEPS, answer
from warren.amqp.methods import QueueDeclare
from warren.base.errors import WarrenError
from warren.broker.auth.permissions import Access
from warren.broker.declarations.dispatch import Declarations
from warren.broker.vhost import Client, Owner
from warren.queues.backing_queue import Fetched

RABBITMQ: list[tuple[str, dict[str, Any]]] = [(name, found) for name, found in json.loads(ANSWERS.read_text())]


STATISTICS = ("message_stats", "incoming", "outgoing", "user_who_performed_action")


def _bad(reason: str) -> dict[str, Any]:
    return {"status": 400, "body": {"error": "bad_request", "reason": reason}}


_X_MATCH = "Invalid x-match field: x-match is 'nope'; it is text: all, any, all-with-x, any-with-x"
_COPIES = "406 PRECONDITION_FAILED - the header {} is a {}"
_MESSAGE = '"routing_key": "m", "payload": "x", "payload_encoding": "string"} administrator-in'
_PUBLISH = "POST exchanges/%2F/amq.default/publish"
DIFFERENT: dict[str, dict[str, Any]] = {
    # RabbitMQ fails with 500.
    **{
        f'PUT queues/%2F/c {{"arguments": {value}}} administrator-in': _bad("arguments must be a JSON object")
        for value in ('"x"', "5", "null")
    },
    'PUT queues/%2F/not-json "x" administrator-in': _bad("not_json"),
    # RabbitMQ lists a binding to a queue that does not exist.
    "GET queues/%2F/by-user/bindings limited": {"body": []},
    # As by AMQP.
    'POST bindings/%2F/e/amq.headers/q/a {"arguments": {"x-match": "nope"}} administrator-in': _bad(_X_MATCH),
    f'{_PUBLISH} {{"properties": {{"headers": {{"CC": "x"}}}}, {_MESSAGE}': _bad(_COPIES.format("CC", "str")),
    f'{_PUBLISH} {{"properties": {{"headers": {{"BCC": 5}}}}, {_MESSAGE}': _bad(_COPIES.format("BCC", "Long")),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    with ManagementStage(tmp_path_factory.mktemp("topology") / "data") as stage:
        stage.vhost("other")
        for user, tag, is_in in USERS:
            stage.user(user, *([tag] if tag else []), vhost="/" if is_in else None)
        stage.user(LIMITED, "management", vhost="/", pattern="")
        vhost = stage.vhosts.find("/")
        client = Client(Access("a user", "/", ".*", ".*", ".*", {}), Owner("an AMQP client"))
        Declarations(vhost, stage.broker.counts).answer(client, QueueDeclare(queue=LOCKED, exclusive=True))
        stage.queue(CONSUMED).consumers.add(Idle())
        with stage.client(None) as http:
            yield [answer(http, step, NODE) for step in STEPS]


class Idle:
    """A consumer that takes nothing."""

    priority = 0
    is_exclusive = False
    is_auto_ack = False

    def room(self) -> int:
        return 0

    def room_bytes(self) -> int:
        return 0

    def take(self, incarnation: int, fetched: list[Fetched]) -> None:
        raise AssertionError("it has no room")

    def cancelled(self, reason: WarrenError) -> None:
        """The broker stops."""


def test_every_step_has_an_answer_of_rabbitmq() -> None:
    assert [name for name, _ in RABBITMQ] == [step.name for step in STEPS]


@pytest.mark.parametrize("at", range(len(STEPS)), ids=lambda at: f"{at}-{STEPS[at].method}-{STEPS[at].path[:40]}")
def test_answers_are_rabbitmqs(answers: list[dict[str, Any]], at: int) -> None:
    expected = {**RABBITMQ[at][1], **DIFFERENT.get(STEPS[at].name, {})}
    assert _comparable(answers[at]) == _comparable(expected), STEPS[at].name


def test_every_difference_is_one() -> None:
    by_name = dict(RABBITMQ)
    assert [name for name, ours in DIFFERENT.items() if {**by_name[name], **ours} == by_name[name]] == []


def _comparable(found: dict[str, Any]) -> dict[str, Any]:
    """RabbitMQ keeps statistics of exchanges, and who declared them. It reports most missing permissions without
    naming them, and names their kind since 3.11 only."""
    body = found["body"]
    if isinstance(body, dict) and found["status"] == 401 and body["reason"].startswith("ACCESS_REFUSED - "):
        body = {**body, "reason": "Access refused."}
    if isinstance(body, dict) and isinstance(body.get("reason"), str):
        body = {**body, "reason": re.sub("(configure|read|write) access to", "access to", body["reason"])}
    return {**found, "body": _without_statistics(body)}


def _without_statistics(body: Any) -> Any:
    if isinstance(body, list):
        return [_without_statistics(each) for each in body]
    if not isinstance(body, dict):
        return body
    return {name: value for name, value in body.items() if name not in STATISTICS}
