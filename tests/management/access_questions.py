"""A sequence of requests about users, vhosts, permissions and limits, and RabbitMQ's answers to it.

`python -m tests.management.access_questions` records the answers; `test_access.py` expects the same from Warren. The
requests are sent one behind the other to a server that `ask_server.py` has prepared.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.management.ask_server import _prepare, wait_for, with_management
from tests.management.questions import USERS
from tools.bench.peers import start_rabbitmq

ANSWERS = Path(__file__).with_name("access_answers.json")
PASSWORD = "secret"
ADMINISTRATOR = "administrator-in"
SHA256 = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # RabbitMQ's own example: test12
ODD = "a%2Fb%0A%3Cb%3E%20%25"  # a/b, a line end, markup, a blank and a percent sign
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
TOPIC = {"exchange": "amq.topic", "write": ".*", "read": ".*"}


class Request(NamedTuple):
    method: str
    path: str
    body: Any = None  # bytes are sent as they are
    user: str = ADMINISTRATOR

    @property
    def name(self) -> str:
        body = self.body.decode() if isinstance(self.body, bytes) else json.dumps(self.body)
        return f"{self.user}: {self.method} {self.path}" + ("" if self.body is None else f" {body}")


def _put(path: str, body: Any = None) -> Request:
    return Request("PUT", path, body)


def _get(path: str) -> Request:
    return Request("GET", path)


def _delete(path: str) -> Request:
    return Request("DELETE", path)


_OF_USERS = [
    _put("users/ann", {"password": "x", "tags": "management"}),
    _put("users/ann", {"password": "y", "tags": "management"}),
    _get("users/ann"),
    _put("users/ann", {"password": "x", "tags": ["monitoring", "my tag"]}),
    _get("users/ann"),
    _put("users/ann", {"tags": "administrator, x"}),
    _get("users/ann"),
    _get("users/nobody"),
    _put("users/ben", {"password": "x"}),
    _put("users/ben", {}),
    _put("users/ben"),
    _put("users/ben", b"no json"),
    _put("users/ben", b"[1]"),
    _get("users/ben"),
    _put("users/ben", {"password": "", "tags": ""}),
    _put("users/ben", {"password": "x", "tags": ""}),
    _put("users/cid", {"password_hash": "", "tags": ""}),
    _get("users/cid"),
    _put("users/cid", {"password_hash": "not base64!", "tags": ""}),
    _put("users/cid", {"password_hash": 5, "tags": ""}),
    _put("users/cid", {"password_hash": SHA256, "tags": ""}),
    _get("users/cid"),
    *(
        step
        for algorithm in ("sha512", "md5", "sha256")
        for step in (
            _put(
                "users/cid",
                {"password_hash": SHA256, "tags": "", "hashing_algorithm": f"rabbit_password_hashing_{algorithm}"},
            ),
            _get("users/cid"),
        )
    ),
    _put("users/cid", {"password": "x", "password_hash": SHA256, "tags": ""}),
    _put("users/cid", {"password": "x", "tags": "", "hashing_algorithm": "rabbit_password_hashing_sha512"}),
    _put("users/cid", {"password": "x", "administrator": True}),
    _get("users/cid"),
    _put("users/cid", {"name": "other", "password": "x", "tags": "management"}),
    _get("users/other"),
    _put("users/cid", {"password": 5, "tags": ""}),
    _put("users/cid", {"password": None, "tags": ""}),
    _put("users/cid", {"password": "x", "tags": 5}),
    _put("users/cid", {"password": "x", "tags": None}),
    _put("users/lim", {"password": "x", "tags": "", "limits": {"max-connections": 3}}),
    _get("users/lim"),
    _delete("users/lim"),
    _delete("users/lim"),
    _put(f"users/{ODD}", {"password": "x", "tags": ""}),
    _get(f"users/{ODD}"),
    _delete(f"users/{ODD}"),
    _get("users/without-permissions"),
    _get("users?columns=name,tags"),
    _get("users?sort=name&sort_reverse=true&columns=name"),
    _get("users?page=1&page_size=2"),
    _get("users"),
    Request("POST", "users/bulk-delete", {"users": ["nobody", "ben"]}),
    _get("users/ben"),
    Request("POST", "users/bulk-delete", {"users": ["ben", "cid"]}),
    _get("users/ben"),
    Request("POST", "users/bulk-delete", {"users": []}),
    Request("POST", "users/bulk-delete", {"users": [5]}),
    Request("POST", "users/bulk-delete", {"users": "ann"}),
    Request("POST", "users/bulk-delete", {}),
    Request("POST", "users/bulk-delete"),
    _get("users/bulk-delete"),
    _put("users/bulk-delete", {"password": "x", "tags": ""}),
    Request("POST", "users/ann", {}),
    Request("POST", "users", {}),
]
_OF_VHOSTS = [
    _put("vhosts/v1"),
    _put("vhosts/v1"),
    _put("vhosts/v1", {}),
    _get("vhosts/v1"),
    _get("vhosts/v1/permissions"),
    _put("vhosts/v2", {"description": "a text", "tags": "a, b", "tracing": False, "default_queue_type": "quorum"}),
    _get("vhosts/v2"),
    _put("vhosts/v2", {"description": "another", "tags": ["c"]}),
    _get("vhosts/v2"),
    _put("vhosts/v2", {}),
    _get("vhosts/v2"),
    _put("vhosts/v2", {"tags": "x"}),
    _get("vhosts/v2"),
    _put("vhosts/v2", {"tags": 5}),
    _put("vhosts/v2", {"tracing": "yes"}),
    _put("vhosts/v2", {"tracing": "false"}),
    _put("vhosts/v2", b"no"),
    _put(f"vhosts/{ODD}"),
    _get(f"vhosts/{ODD}"),
    _get(f"vhosts/{ODD}/permissions"),
    _delete(f"vhosts/{ODD}"),
    _get(f"vhosts/{ODD}"),
    _delete("vhosts/v2"),
    _delete("vhosts/v2"),
    _get("vhosts/v2"),
    _get("vhosts/v1/topic-permissions"),
    _get("vhosts/nope/permissions"),
    _get("vhosts/nope/topic-permissions"),
    Request("POST", "vhosts/v1/start/{node}"),
    Request("POST", "vhosts/v1/start/nope@here"),
    Request("POST", "vhosts/nope/start/{node}"),
    _get("vhosts/v1/start/{node}"),
    Request("POST", "vhosts/v1", {}),
]
_OF_PERMISSIONS = [
    _put("permissions/v1/ann", ALL),
    _put("permissions/v1/ann", {"configure": "^a", "write": ".*", "read": ""}),
    _get("permissions/v1/ann"),
    _get("permissions"),
    _get("users/ann/permissions"),
    _get("vhosts/v1/permissions"),
    _get("users/nobody/permissions"),
    _put("permissions/v1/ann", {"configure": "(", "write": ".*", "read": ""}),
    _put("permissions/v1/ann", {"configure": ".*", "write": ".*"}),
    _put("permissions/v1/ann", {"configure": 5, "write": ".*", "read": ""}),
    _put("permissions/v1/ann", {}),
    _get("permissions/v1/ann"),
    _put("permissions/v1/nobody", ALL),
    _put("permissions/nope/ann", ALL),
    _put("permissions/nope/nobody", ALL),
    _get("permissions/%2F/ann"),
    _get("permissions/v1/nobody"),
    _get("permissions/nope/ann"),
    _delete("permissions/v1/ann"),
    _delete("permissions/v1/ann"),
    _delete("permissions/v1/nobody"),
    _delete("permissions/nope/ann"),
    Request("POST", "permissions/v1/ann", {}),
    _put("topic-permissions/v1/ann", TOPIC),
    _put("topic-permissions/v1/ann", TOPIC),
    _put("topic-permissions/v1/ann", {"exchange": "later", "write": "^a", "read": "^{username}"}),
    _put("topic-permissions/v1/ann", {"exchange": "", "write": "^a", "read": "^b"}),
    _get("topic-permissions/v1/ann"),
    _get("topic-permissions"),
    _get("users/ann/topic-permissions"),
    _get("vhosts/v1/topic-permissions"),
    _get("users/nobody/topic-permissions"),
    _put("topic-permissions/v1/ann", {"exchange": "amq.topic", "write": "(", "read": ".*"}),
    _put("topic-permissions/v1/ann", {"exchange": "amq.topic", "write": ".*"}),
    _put("topic-permissions/v1/ann", {"write": ".*", "read": ".*"}),
    _put("topic-permissions/nope/ann", TOPIC),
    _put("topic-permissions/v1/nobody", TOPIC),
    _get("topic-permissions/v1/administrator-in"),
    _get("topic-permissions/v1/nobody"),
    _get("topic-permissions/nope/ann"),
    _get("topic-permissions/v1/ann/later"),
    _get("topic-permissions/v1/ann/nope"),
    _get("topic-permissions/v1/nobody/later"),
    Request("POST", "topic-permissions/v1/ann/later", {}),
    _delete("topic-permissions/v1/ann/nope"),
    _delete("topic-permissions/v1/ann/later"),
    _get("topic-permissions/v1/ann"),
    _delete("topic-permissions/v1/ann"),
    _delete("topic-permissions/v1/ann"),
    _delete("topic-permissions/v1/ann/later"),
    _delete("topic-permissions/v1/nobody"),
    _delete("topic-permissions/nope/ann"),
]
_OF_LIMITS = [
    _get("user-limits"),
    _get("user-limits/ann"),
    _get("user-limits/nobody"),
    _put("user-limits/ann/max-connections", {"value": 5}),
    _put("user-limits/ann/max-connections", {"value": 6}),
    _put("user-limits/ann/max-channels", {"value": 0}),
    _get("user-limits"),
    _get("user-limits/ann"),
    _get("users/ann"),
    *(_put("user-limits/ann/max-connections", {"value": value}) for value in ("x", "7", 1.5, None, -1)),
    _put("user-limits/ann/max-connections", {}),
    _put("user-limits/ann/nope", {"value": 5}),
    _put("user-limits/nobody/max-connections", {"value": 5}),
    _get("user-limits/ann/max-connections"),
    _put("users/ann", {"password": "x", "tags": "management"}),
    _get("user-limits/ann"),
    _delete("user-limits/ann/max-connections"),
    _delete("user-limits/ann/max-connections"),
    _delete("user-limits/ann/nope"),
    _delete("user-limits/nobody/max-connections"),
    _get("user-limits/ann"),
    _delete("user-limits/ann/max-channels"),
    _get("user-limits"),
]
# Sent by every user who is no administrator: none of them changes anything.
_BY_TAG = [
    _get("users"),
    _get("users/without-permissions"),
    _get("users/ann"),
    _get("users/nobody"),
    _put("users/zoe", {"password": "x", "tags": ""}),
    _delete("users/ann"),
    Request("POST", "users/bulk-delete", {"users": ["ann"]}),
    _get("users/ann/permissions"),
    _get("users/ann/topic-permissions"),
    _get("user-limits"),
    _get("user-limits/ann"),
    _get("user-limits/nobody"),
    _put("user-limits/ann/max-channels", {"value": 1}),
    _delete("user-limits/ann/max-channels"),
    _put("vhosts/v9"),
    _delete("vhosts/%2F"),
    _get("vhosts/%2F/permissions"),
    _get("vhosts/nope/permissions"),
    _get("vhosts/%2F/topic-permissions"),
    Request("POST", "vhosts/%2F/start/{node}"),
    _get("permissions"),
    _get("permissions/%2F/ann"),
    _put("permissions/%2F/ann", ALL),
    _put("permissions/%2F/ann", {}),
    _delete("permissions/%2F/ann"),
    _get("topic-permissions"),
    _get("topic-permissions/%2F/ann"),
    _put("topic-permissions/%2F/ann", TOPIC),
    _delete("topic-permissions/%2F/ann"),
    _delete("topic-permissions/%2F/ann/amq.topic"),
]
_OTHERS = [user for user, tag, _ in USERS if tag != "administrator"]
REQUESTS = [
    *_OF_USERS,
    *_OF_VHOSTS,
    *_OF_PERMISSIONS,
    *_OF_LIMITS,
    *(request._replace(user=user) for user in _OTHERS for request in _BY_TAG),
]


def send(client: httpx.Client, request: Request, node: str) -> dict[str, Any]:
    """The answer, without what differs between two servers."""
    content: dict[str, Any] = {}
    if isinstance(request.body, bytes):
        content["content"] = request.body
    elif request.body is not None:
        content["json"] = request.body
    path = f"/api/{request.path.replace('{node}', node)}"
    response = client.request(request.method, path, auth=httpx.BasicAuth(request.user, PASSWORD), **content)
    answer: dict[str, Any] = {"status": response.status_code, "body": None}
    if response.content:
        answer["body"] = _comparable(json.loads(response.content.decode().replace(node, "NODE")))
    if "allow" in response.headers:
        answer["allow"] = response.headers["allow"]
    return answer


def _comparable(value: Any) -> Any:
    """Hashes have a salt, lists may be in any order."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return sorted(map(_comparable, value), key=json.dumps)
    if not isinstance(value, dict):
        return value
    found = {name: _comparable(each) for name, each in value.items()}
    if found.get("password_hash") not in (None, "", SHA256):
        found["password_hash"] = found["hashing_algorithm"] = "of a new password"
    return dict(sorted(found.items()))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, start_rabbitmq(Path(directory)) as peer:
        port = with_management(peer)
        one_request = httpx.Limits(max_keepalive_connections=0)  # RabbitMQ closes connections after some refusals
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=30, trust_env=False, limits=one_request) as client:
            wait_for(client)
            _prepare(client)
            client.delete("/api/users/guest", auth=("guest", "guest")).raise_for_status()
            node = client.get("/api/overview", auth=(ADMINISTRATOR, PASSWORD)).json()["node"]
            answers = [{"request": each.name, **send(client, each, node)} for each in REQUESTS]
    ANSWERS.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    print(f"{ANSWERS}: written")


if __name__ == "__main__":
    main()
