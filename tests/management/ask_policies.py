"""Record RabbitMQ's answers about policies: `python -m tests.management.ask_policies`.

Run it again when a case is added. RabbitMQ shows the policies of a queue by its statistics, which it updates every five
seconds.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pika

from tests.management.ask_server import _wait_for, _with_management
from tests.management.policy_cases import (
    ANSWERS,
    BODIES,
    DEAD,
    DEAD_TOO,
    MERGES,
    QUESTIONS,
    PolicyQuestion,
    policy_of,
)
from tests.management.questions import USERS
from tools.bench.peers import start_rabbitmq

_GUEST = ("guest", "guest")
_SHOWN = ("policy", "operator_policy", "effective_policy_definition")
_SECONDS = 90


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, start_rabbitmq(Path(directory)) as peer:
        port = _with_management(peer)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=30, trust_env=False) as client:
            _wait_for_api(client, port)
            _prepare(client)
            answers: dict[str, Any] = {"questions": [_answer(client, each) for each in QUESTIONS]}
            answers["merges"] = _merges(client, peer.port)
    ANSWERS.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    print(f"{ANSWERS}: written")


def _wait_for_api(client: httpx.Client, port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as plain:
        _wait_for(plain)


def _prepare(client: httpx.Client) -> None:
    def put(path: str, **body: Any) -> None:
        client.put(path, json=body, auth=_GUEST).raise_for_status()

    put("/vhosts/other")
    for user, tag, is_in in USERS:
        put(f"/users/{user}", password="secret", tags=tag)
        if is_in:
            put(f"/permissions/%2F/{user}", configure=".*", write=".*", read=".*")


def _answer(client: httpx.Client, question: PolicyQuestion) -> dict[str, Any]:
    login, headers = (question.user, "secret"), {"connection": "close"}
    response = client.request(question.method, question.path, json=question.body, auth=login, headers=headers)
    body = json.loads(response.content) if response.content else None
    return {"question": question.key, "status": response.status_code, "body": body}


def _merges(client: httpx.Client, port: int) -> dict[str, Any]:
    parameters = pika.ConnectionParameters("127.0.0.1", port, credentials=pika.PlainCredentials(*_GUEST))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in (DEAD, DEAD_TOO):
            channel.exchange_declare(name, "fanout")
            channel.queue_declare(name)
            channel.queue_bind(name, name)
        for number, merge in enumerate(MERGES):
            queue = f"q{number}"
            for kind, policies in (("policies", merge.policies), ("operator-policies", merge.operator)):
                for index, policy in enumerate(policies):
                    path = f"/{kind}/%2F/{kind[0]}{number}-{index}"
                    client.put(path, json=policy_of(policy, queue), auth=_GUEST).raise_for_status()
            channel.queue_declare(queue, durable=True, arguments=dict(merge.arguments))
        outcomes = [_outcome(channel, f"q{number}") for number in range(len(MERGES))]
        return {
            merge.about: {"shown": _shown(client, f"q{number}"), **outcome}
            for number, (merge, outcome) in enumerate(zip(MERGES, outcomes, strict=True))
        }


def _outcome(channel: Any, queue: str) -> dict[str, Any]:
    refused = 0
    for body in BODIES:
        try:
            channel.basic_publish("", queue, body)
        except pika.exceptions.NackError:
            refused += 1
    time.sleep(1)  # expiry, and limits of a quorum queue
    ready = {name: channel.queue_declare(name, passive=True).method.message_count for name in (queue, DEAD, DEAD_TOO)}
    for name in (DEAD, DEAD_TOO):
        channel.queue_purge(name)
    return {"refused": refused, "ready": ready[queue], "dead": ready[DEAD], "dead too": ready[DEAD_TOO]}


def _shown(client: httpx.Client, queue: str) -> Any:
    end = time.monotonic() + _SECONDS
    while True:
        item = client.get(f"/queues/%2F/{quote(queue)}", auth=_GUEST).json()
        if _SHOWN[-1] in item:
            return [item[name] for name in _SHOWN]
        assert time.monotonic() < end, item
        time.sleep(1)


if __name__ == "__main__":
    main()
