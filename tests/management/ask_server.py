"""Record the answers of RabbitMQ that tests compare with: `python -m tests.management.ask_server`.

It is started privately with its management plugin. Run it again when a question is added.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import pika

from tests.management import topology_steps
from tests.management.questions import (
    ANSWERS,
    LIMITED,
    QUEUE,
    REFUSED,
    SHOWN,
    USERS,
    VHOSTS,
    ask,
    clients_shown,
    connected,
    kinds,
    refusal,
    walk,
)
from tools.bench.peers import Peer, free_ports, start_rabbitmq

_PASSWORD = "secret"
_STATISTICS_SECONDS = 6  # RabbitMQ updates the numbers of a queue every five


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, start_rabbitmq(Path(directory)) as peer:
        port = with_management(peer)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
            wait_for(client)
            _prepare(client)
            answers = _answers(client, peer.port)
            steps = _topology(client, peer.port)
    for path, found in ((ANSWERS, answers), (topology_steps.ANSWERS, steps)):
        path.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        print(f"{path}: written")


def with_management(peer: Peer) -> int:
    (port,) = free_ports(1)
    (peer.directory / "enabled_plugins").write_text("[rabbitmq_management].\n")
    (peer.directory / "rabbitmq.conf").write_text(f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1\n")
    peer.restart()
    return port


def wait_for(client: httpx.Client) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            client.get("/api/whoami", auth=("guest", "guest")).raise_for_status()
            return
        except httpx.HTTPError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def _prepare(client: httpx.Client) -> None:
    def put(path: str, **body: Any) -> None:
        client.put(f"/api/{path}", json=body, auth=("guest", "guest")).raise_for_status()

    put("vhosts/other")
    for user, tag, is_in in USERS:
        put(f"users/{user}", password=_PASSWORD, tags=tag)
        if is_in:
            put(f"permissions/{VHOSTS['/']}/{user}", configure=".*", write=".*", read=".*")
    put(f"users/{LIMITED}", password=_PASSWORD, tags="management")
    put(f"permissions/{VHOSTS['/']}/{LIMITED}", configure="", write="", read="")
    put(f"queues/%2F/{QUEUE}", durable=True, arguments={"x-max-length": 5})
    published = {"properties": {"delivery_mode": 2}, "routing_key": QUEUE, "payload": "a", "payload_encoding": "string"}
    path = "/api/exchanges/%2F/amq.default/publish"
    client.post(path, json=published, auth=("guest", "guest")).raise_for_status()
    time.sleep(_STATISTICS_SECONDS)


def _answers(client: httpx.Client, amqp_port: int) -> dict[str, Any]:
    node = client.get("/api/overview", auth=("guest", "guest")).json()["node"]
    shown = {}
    for name, path in SHOWN.items():
        response = client.get(path, auth=("administrator-in", _PASSWORD))
        shown[name] = {"status": response.status_code, "kinds": kinds(response.json())}
    statuses = {
        name: {user: client.get(path, auth=(user, _PASSWORD)).status_code for user, _, _ in USERS}
        for name, path in walk(node, amqp_port).items()
    }
    refused = {name: refusal(ask(client, question)) for name, question in REFUSED.items()}
    return {"told": shown, "statuses": statuses, "refused": refused, "clients": _clients(client, amqp_port)}


def _clients(client: httpx.Client, amqp_port: int) -> dict[str, Any]:
    user = "administrator-in"
    with connected(amqp_port, user) as connection:
        connection.sleep(_STATISTICS_SECONDS)
        answers = clients_shown(lambda path: client.get(path, auth=(user, _PASSWORD)).json(), user)
    return {name: kinds(answer) for name, answer in answers.items()}


def _topology(client: httpx.Client, amqp_port: int) -> list[Any]:
    """Name of the step and its answer, in their order."""
    node = client.get("/api/overview", auth=("guest", "guest")).json()["node"]
    for name in (QUEUE, "aliveness-test"):
        client.delete(f"/api/queues/%2F/{name}", auth=("guest", "guest")).raise_for_status()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare(topology_steps.LOCKED, exclusive=True)
        channel.queue_declare(topology_steps.CONSUMED, durable=True)
        channel.basic_consume(topology_steps.CONSUMED, lambda *_: None)
        return [(step.name, topology_steps.answer(client, step, node)) for step in topology_steps.STEPS]


if __name__ == "__main__":
    main()
