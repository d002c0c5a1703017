"""Policies over HTTP, each answer as RabbitMQ's; and their effect on running queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.management.policy_cases import ANSWERS as RECORDED
from tests.management.policy_cases import BODIES, DEAD, DEAD_TOO, MERGES, QUESTIONS, Merge, policy_of
from tests.management.questions import USERS
from tests.management.stage import ManagementStage
from warren.amqp.methods import ExchangeDeclare, QueueBind
from warren.broker.auth.permissions import Access
from warren.broker.declarations.dispatch import Declarations
from warren.broker.errors import QueueFull
from warren.broker.vhost import Client, Owner

RABBITMQ: dict[str, Any] = json.loads(RECORDED.read_text())

# Where Warren answers otherwise, and why: status and body by the question.
_NOT_JSON = 400, {"error": "bad_request", "reason": "not_json"}
_OUT = 401, {"error": "not_authorised", "reason": "User not authorised to access virtual host"}
DIFFERENT: dict[str, tuple[int, Any]] = {
    "administrator-in PUT /policies/%2F/p text": _NOT_JSON,  # RabbitMQ guesses how the text came about
    # RabbitMQ has the text for a missing tag, where a permission in the vhost is missing
    "policymaker-out PUT /policies/%2F/p {'pattern': 'a', 'definition': {'max-length': 1}}": _OUT,
    "policymaker-out PUT /policies/%2F/p {}": _OUT,
    "policymaker-out DELETE /policies/%2F/nope None": _OUT,
    "policymaker-out PUT /parameters/policy/%2F/x {}": _OUT,
    "policymaker-out DELETE /parameters/x/%2F/nope None": _OUT,
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ManagementStage]:
    with ManagementStage(tmp_path / "data") as stage:
        yield stage


def test_every_answer_about_policies_and_parameters_is_rabbitmqs(stage: ManagementStage) -> None:
    stage.vhost("other")
    for user, tag, is_in in USERS:
        stage.user(user, *([tag] if tag else []), vhost="/" if is_in else None)
    differing = []
    with httpx.Client(base_url=f"{stage.url}/api", timeout=30, trust_env=False) as client:
        for question, recorded in zip(QUESTIONS, RABBITMQ["questions"], strict=True):
            assert recorded["question"] == question.key, "record them again: python -m tests.management.ask_policies"
            answer = client.request(question.method, question.path, json=question.body, auth=(question.user, "secret"))
            found = answer.status_code, json.loads(answer.content) if answer.content else None
            expected = DIFFERENT.get(question.key, (recorded["status"], recorded["body"]))
            if found != expected:
                differing.append((question.key, found, expected))
    assert not differing, "\n".join(map(str, differing))


def declare(stage: ManagementStage, *methods: Any) -> None:
    client = Client(Access("a user", "/", ".*", ".*", ".*", {}), Owner("a test"))
    for method in methods:
        Declarations(stage.vhosts.find("/"), stage.broker.counts).answer(client, method)


def dead_letter_queues(stage: ManagementStage) -> None:
    for name in (DEAD, DEAD_TOO):
        stage.queue(name)
        declare(stage, ExchangeDeclare(exchange=name, type="fanout"), QueueBind(queue=name, exchange=name))


def put_policy(stage: ManagementStage, kind: str, name: str, policy: Any) -> None:
    with stage.client() as client:
        answer = client.put(f"/api/{kind}/%2F/{name}", json=policy)
        assert answer.status_code in (201, 204), answer.text


def publish(stage: ManagementStage, queue: str, bodies: list[bytes]) -> int:
    """One by one; how many were refused."""
    vhost, refused = stage.vhosts.find("/"), 0
    for body in bodies:
        try:
            stage.put(vhost, vhost.find_queue(queue), body)
        except QueueFull:
            refused += 1
    return refused


def expire(stage: ManagementStage, queue: str) -> int:
    """Messages that are ready, behind those that expire now."""
    vhost = stage.vhosts.find("/")
    handle = vhost.find_queue(queue)
    vhost.check_queue(handle.id)
    return len(handle.serving().backing)


@pytest.mark.parametrize("merge", MERGES, ids=lambda merge: merge.about)
def test_policies_merge_with_each_other_and_with_arguments_as_in_rabbitmq(stage: ManagementStage, merge: Merge) -> None:
    number = MERGES.index(merge)
    dead_letter_queues(stage)
    for kind, policies in (("policies", merge.policies), ("operator-policies", merge.operator)):
        for index, policy in enumerate(policies):
            put_policy(stage, kind, f"{kind[0]}{number}-{index}", policy_of(policy, f"q{number}"))
    table = {name.removeprefix("x-").replace("-", "_"): value for name, value in merge.arguments.items()}
    stage.queue(f"q{number}", **table)
    refused = publish(stage, f"q{number}", BODIES)
    item = stage.get(f"/api/queues/%2F/q{number}").json()
    shown = [item[name] for name in ("policy", "operator_policy", "effective_policy_definition")]
    found = {
        name: expire(stage, queue) for name, queue in (("ready", f"q{number}"), (DEAD, DEAD), (DEAD_TOO, DEAD_TOO))
    }
    assert {"shown": shown, "refused": refused, **found} == RABBITMQ["merges"][merge.about]


@pytest.mark.parametrize(
    "path",
    [
        *("vhost-limits", "vhost-limits/%2F", "policies", "policies/%2F", "operator-policies", "parameters"),
        *("parameters/vhost-limits", "parameters/vhost-limits/%2F", "global-parameters", "nodes"),
    ],
)
def test_lists_without_pages_in_rabbitmq_have_none(stage: ManagementStage, path: str) -> None:
    stage.user("operator", "administrator")
    with stage.client("operator") as client:
        client.put("/api/vhost-limits/%2F/max-queues", json={"value": 500}).raise_for_status()
        whole = client.get(f"/api/{path}", params={"columns": "name,vhost"}).json()
        page = client.get(f"/api/{path}", params={"columns": "name,vhost", "page": "1", "name": "x"})
    assert (page.status_code, page.json()) == (200, whole)
    assert isinstance(whole, list)
