"""`warren serve` is killed behind, and amid, changes of users, vhosts and permissions: what was answered is kept, and a
vhost that was being deleted is whole or gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pika
import pika.exceptions
import pytest

from tests.server.broker_process import BrokerProcess

SECONDS_MAX = 30.0
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
BODY_BYTES, BODY_COUNT = 64 << 10, 400


class Api:
    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def request(self, method: str, path: str, **body: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{self._broker.management_port}/api/{path}"
        return httpx.request(
            method, url, json=body or None, auth=("guest", "guest"), timeout=SECONDS_MAX, trust_env=False
        )

    def put(self, path: str, **body: Any) -> None:
        assert self.request("PUT", path, **body).status_code in (201, 204)

    def delete(self, path: str) -> None:
        assert self.request("DELETE", path).status_code == 204

    def get(self, path: str) -> Any:
        response = self.request("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def connect(self, vhost: str, user: str = "guest", password: str = "guest") -> Any:
        credentials = pika.PlainCredentials(user, password)
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._broker.port, vhost, credentials, heartbeat=0)
        )

    def fill(self, vhost: str, queues: int, body: bytes = b"a", count: int = 1) -> None:
        connection = self.connect(vhost)
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(queues):
            channel.queue_declare(f"q{number}", durable=True)
            for _ in range(count):
                channel.basic_publish("", f"q{number}", body, pika.BasicProperties(delivery_mode=2))
        connection.close()

    def counts(self, vhost: str) -> list[int]:
        return [each["messages"] for each in self.get(f"queues/{vhost}")]


def test_everything_that_was_answered_survives_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        api = Api(broker)
        for vhost in ("kept", "deleted"):
            api.put(f"vhosts/{vhost}", description="a text", tags="a,b")
            api.fill(vhost, 3)
        api.put("users/ann", password="secret", tags="monitoring")
        api.put("users/ben", password="secret", tags="")
        for user in ("ann", "ben"):
            api.put(f"permissions/kept/{user}", **ALL)
        api.put("topic-permissions/kept/ann", exchange="amq.topic", write="^a", read="^b")
        api.put("user-limits/ann/max-connections", value=7)
        api.delete("permissions/kept/ben")
        api.delete("users/ben")
        api.delete("vhosts/deleted")
        paths = ("users", "permissions", "topic-permissions", "user-limits", "vhosts?columns=name,description,tags")
        before = {path: api.get(path) for path in paths}
        broker.kill()
        broker.start()
        assert {path: api.get(path) for path in paths} == before
        assert [each["name"] for each in before["users"]] == ["ann", "guest"]
        assert api.counts("kept") == [1, 1, 1] and api.request("GET", "vhosts/deleted").status_code == 404
        api.connect("kept", "ann", "secret").close()
        api.put("vhosts/deleted")
        assert api.counts("deleted") == []


@pytest.mark.parametrize("delay_seconds", [0.002, 0.01, 0.03, 0.08])
def test_a_vhost_killed_while_it_is_deleted_is_whole_or_gone(tmp_path: Path, delay_seconds: float) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        api = Api(broker)
        api.put("vhosts/shop")
        api.fill("shop", 120)
        deletion = threading.Thread(target=_ignoring_errors, args=(lambda: api.delete("vhosts/shop"),))
        deletion.start()
        deletion.join(delay_seconds)
        broker.kill()
        deletion.join(SECONDS_MAX)
        broker.start()
        if api.request("GET", "vhosts/shop").status_code == 200:
            assert api.counts("shop") == [1] * 120
            api.delete("vhosts/shop")
        api.put("vhosts/shop")
        assert api.counts("shop") == []
        api.fill("shop", 2)
        assert api.counts("shop") == [1, 1] and api.get("overview")["problems"] == []


def test_the_space_of_a_deleted_vhost_is_freed(tmp_path: Path) -> None:
    """Without history: otherwise its files are kept for `retention_seconds`, as those of every deleted queue."""
    data = tmp_path / "data"
    with BrokerProcess(data, "--retention-seconds", "0") as broker:
        api = Api(broker)
        api.put("vhosts/shop")
        api.fill("shop", 1, b"a" * BODY_BYTES, BODY_COUNT)
        full_bytes = _stored_bytes(data)
        assert full_bytes >= BODY_BYTES * BODY_COUNT
        api.delete("vhosts/shop")
        _wait(lambda: _stored_bytes(data) < full_bytes - BODY_BYTES * BODY_COUNT // 2)
        assert api.get("overview")["problems"] == []


def _stored_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() and path.name != "ballast" else 0
        except FileNotFoundError:
            continue
    return total


def _ignoring_errors(call: Callable[[], object]) -> None:
    try:
        call()
    except (httpx.HTTPError, AssertionError):
        return


def _wait(condition: Callable[[], bool]) -> None:
    bell = threading.Event()
    for _ in range(int(SECONDS_MAX / 0.05)):
        if condition():
            return
        bell.wait(0.05)
    raise AssertionError("it does not come true")
