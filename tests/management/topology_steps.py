"""Requests that change queues, exchanges, bindings and messages, in this order, on a broker without any.

`ask_server.py` records the answers of RabbitMQ to them (topology_answers.json), test_topology_answers.py compares. Both
have the users of questions.py, and in "/" the exclusive queue `locked` and the queue `consumed` of an AMQP client.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ANSWERS = Path(__file__).with_name("topology_answers.json")
LOCKED = "locked"
CONSUMED = "consumed"
ADMINISTRATOR = "administrator-in"
LONG = "x" * 256
ODD = "%3Cb%3E%2F%C3%BC%22%25"  # <b>/ü"%
ODD_KEY = "a~b/c d\nü%<>?#+"
_HASH = re.compile(r"~[\w-]{6,12}(?=$|\")")


class Step(NamedTuple):
    method: str
    path: str  # below /api/
    body: Any = None
    user: str = ADMINISTRATOR

    @property
    def name(self) -> str:
        body = "" if self.body is None else f" {self.body if isinstance(self.body, str) else json.dumps(self.body)}"
        return f"{self.method} {self.path}{body} {self.user}".replace(LONG, "xxx…")


def _steps() -> list[Step]:
    steps: list[Step] = []

    def add(method: str, path: str, *bodies: Any, user: str = ADMINISTRATOR) -> None:
        steps.extend(Step(method, path, body, user) for body in bodies or (None,))

    _add_queues(add)
    _add_exchanges(add)
    _add_bindings(add)
    _add_publishes(add)
    _add_gets(add)
    _add_deletions(add)
    return steps


def _add_queues(add: Any) -> None:
    durable = {"durable": True}
    add("PUT", "queues/%2F/a", durable, durable, {"durable": False}, {**durable, "auto_delete": True})
    add("PUT", "queues/%2F/a", {**durable, "arguments": {"x-max-length": 5}})
    add("PUT", "queues/%2F/b", None, {}, {"durable": "false", "auto_delete": "false", "unknown": 1})
    wrongs: list[Any] = ["yes", 1, None, [], {}]
    for wrong in wrongs:
        add("PUT", "queues/%2F/c", {"durable": wrong}, {"auto_delete": wrong})
    add("PUT", "queues/%2F/c", {"arguments": []}, {"arguments": "x"}, {"arguments": 5}, {"arguments": None})
    for name, value in (
        *(("x-max-length", wrong) for wrong in ("5", -5, 5.5, True)),
        *(("x-dead-letter-exchange", 5), ("x-queue-type", "nope"), ("x-overflow", "nope"), ("x-nope", None)),
        *(("x-message-ttl", "1"), ("x-expires", 0), ("x-max-priority", 256), ("x-nope", {"a": [None]})),
    ):
        add("PUT", "queues/%2F/d", {**durable, "arguments": {name: value}})
    every_kind = {"i": 1, "big": 1 << 40, "f": 1.5, "s": "ü", "t": True, "l": [1, "a", [2.5], {"k": 1}], "o": {"z": 1}}
    add("PUT", "queues/%2F/e", {**durable, "arguments": every_kind})
    add("GET", "queues/%2F/e?columns=arguments,name,durable,exclusive,auto_delete,vhost")
    add("PUT", "queues/%2F/f", {**durable, "node": "nope@x"})
    add("PUT", "queues/%2F/quorum", {**durable, "arguments": {"x-queue-type": "quorum"}})
    add("PUT", "queues/%2F/quorum2", {"arguments": {"x-queue-type": "quorum"}})
    add("PUT", "queues/%2F/amq.mine", durable)
    for name in (LONG, "%0Anew%0Dline", ODD, "a+b%20c~d", "temporary"):
        add("PUT", f"queues/%2F/{name}", {})
    add("GET", "queues/%2F?columns=name&sort=name")
    for body in ("{", "[]", "5", '"x"', "nope"):
        add("PUT", "queues/%2F/not-json", body)
    add("PUT", f"queues/%2F/{LOCKED}", {}, {"exclusive": True})
    for user in ("limited", "none-in", "management-out", "management-in"):
        add("PUT", "queues/%2F/by-user", durable, user=user)
        add("PUT", "queues/nope/by-user", durable, user=user)
        add("DELETE", "queues/%2F/temporary/contents", user=user)
        add("GET", "queues/%2F/by-user/bindings", user=user)
    for action in ({"action": "sync"}, {"action": "cancel_sync"}, {"action": "nope"}, {"action": 5}, {}):
        add("POST", "queues/%2F/a/actions", action)
    add("POST", "queues/%2F/a/actions", {"action": "sync"}, user="management-in")
    for path in ("a", "a/contents", "a/actions", "a/get", "a/bindings"):
        add("OPTIONS", f"queues/%2F/{path}")
        add("PATCH", f"queues/%2F/{path}")


def _add_exchanges(add: Any) -> None:
    add("PUT", "exchanges/%2F/x", {"type": "direct"}, {"type": "direct"}, {}, {"type": "fanout"}, {"durable": True})
    add("PUT", "exchanges/%2F/x", {"internal": True}, {"durable": 5}, {"internal": "x"}, {"auto_delete": None})
    add(
        "PUT", "exchanges/%2F/y", {"type": "none"}, {"arguments": {"alternate-exchange": 5}}, {"arguments": {"a": None}}
    )
    everything = {"type": "topic", "durable": True, "internal": True, "arguments": {"alternate-exchange": "x"}}
    add("PUT", "exchanges/%2F/y", everything, {"type": "topic", "durable": True}, {**everything, "arguments": {}})
    add("PUT", "exchanges/%2F/amq.mine", {})
    add("PUT", "exchanges/%2F/amq.direct", {"type": "direct", "durable": True}, {"type": "direct"})
    add("PUT", "exchanges/%2F/amq.default", {"type": "direct", "durable": True})
    add("PUT", f"exchanges/%2F/{ODD}", {"type": "headers", "auto_delete": True})
    add("PUT", "exchanges/%2F/%0Anew%0Dline", {})
    for kind in ("direct", "fanout", "topic", "headers"):
        add("PUT", f"exchanges/%2F/of-{kind}", {"type": kind, "durable": True})
    for user in ("limited", "none-in", "management-out", "management-in"):
        add("PUT", "exchanges/%2F/by-user", {}, user=user)
        add("PUT", "exchanges/nope/by-user", {}, user=user)
        add("GET", "exchanges/%2F/by-user", user=user)
        add("GET", "exchanges/nope/by-user", user=user)
        add("GET", "exchanges/nope", user=user)
        add("GET", "exchanges?columns=name,vhost", user=user)
        add("DELETE", "exchanges/%2F/by-user", user=user)
    add("GET", "exchanges")
    add("GET", "exchanges/%2F")
    add("GET", "exchanges/other?columns=name,type,durable,internal,auto_delete,arguments")
    for name in ("x", "y", "amq.default", "amq.match", ODD, "nope"):
        add("GET", f"exchanges/%2F/{name}")
    add("GET", "exchanges/%2F?page=1&page_size=2&name=of&columns=name")
    for path in ("x", "x/publish", "x/bindings/source", "x/bindings/destination"):
        add("OPTIONS", f"exchanges/%2F/{path}")
        add("PATCH", f"exchanges/%2F/{path}")


def _add_bindings(add: Any) -> None:
    to_a = "bindings/%2F/e/x/q/a"
    add("POST", to_a, {"routing_key": "rk", "arguments": {}}, {"routing_key": "rk"}, {"routing_key": ""}, {}, None)
    add("POST", to_a, {"routing_key": "rk", "arguments": {"a": 1, "b": "x"}}, {"arguments": {"a": [1, {"k": 1.5}]}})
    for key in (ODD_KEY, "~", "!*'()$&,;=:@[]", "-_.~A9", " ", "ü"):
        add("POST", to_a, {"routing_key": key})
    add("POST", f"bindings/%2F/e/{ODD}/q/{ODD}", {"routing_key": "k"})
    add("POST", "bindings/%2F/e/x/e/y", {"routing_key": "ee"}, {"routing_key": "ee", "arguments": {"z": True}})
    add("POST", "bindings/%2F/e/amq.headers/q/a", {"arguments": {"x-match": "nope"}}, {"arguments": {"x-match": "all"}})
    for path in (to_a, "bindings/%2F/e/x/e/y", f"bindings/%2F/e/{ODD}/q/{ODD}", "bindings/%2F/e/amq.default/q/a"):
        add("GET", path)
    for path in ("e/x/q/nope", "e/nope/q/a", "e/amq.direct/q/a", "e//q/a", "e/x/e/nope", "e/x/e/x"):
        add("GET", f"bindings/%2F/{path}")
    for key in ("rk", "~", "nope", "%257E", "+", "a%257Eb%252Fc%2Bd%250A%25C3%25BC%2525%253C%253E%253F%2523%252B"):
        add("GET", f"{to_a}/{key}")
    add("GET", "bindings/%2F/e/amq.default/q/a/a")
    add("GET", "bindings/%2F/e/x/e/y/ee")
    add("POST", "bindings/%2F/e/nope/q/a", {})
    add("POST", "bindings/%2F/e/x/q/nope", {})
    add("POST", "bindings/%2F/e/x/e/nope", {})
    add("POST", "bindings/%2F/e/amq.default/q/a", {})
    add("POST", "bindings/%2F/e/x/e/amq.default", {})
    add("POST", f"bindings/%2F/e/x/q/{LOCKED}", {})
    add("GET", "queues/%2F/a/bindings")
    add("GET", "queues/%2F/a/bindings?columns=source,routing_key&page=1&page_size=1")
    add("GET", "exchanges/%2F/x/bindings/source")
    add("GET", "exchanges/%2F/y/bindings/destination")
    add("GET", "exchanges/%2F/amq.default/bindings/source")
    add("GET", "exchanges/%2F/nope/bindings/source")
    add("GET", "exchanges/%2F/nope/bindings/destination")
    add("GET", "bindings")
    add("GET", "bindings/%2F")
    add("GET", "bindings/other")
    add("GET", "bindings/nope")
    add("GET", "bindings?columns=source,destination&sort=destination&sort_reverse=true")
    for user in ("limited", "none-in", "management-out", "management-in"):
        add("POST", "bindings/%2F/e/x/q/b", {"routing_key": "by-user"}, user=user)
        add("POST", "bindings/nope/e/x/q/b", {"routing_key": "by-user"}, user=user)
        add("GET", "bindings/%2F/e/x/q/b", user=user)
        add("GET", "bindings?columns=source,destination", user=user)
        add("DELETE", "bindings/%2F/e/x/q/b/by-user", user=user)
    for path in (to_a, f"{to_a}/rk"):
        add("OPTIONS", path)
        add("PATCH", path)
    add("DELETE", f"{to_a}/rk")
    add("DELETE", f"{to_a}/rk")
    add("DELETE", f"{to_a}/rk~nothash")
    add("DELETE", f"{to_a}/~")
    add("DELETE", f"{to_a}/a%257Eb%252Fc%2Bd%250A%25C3%25BC%2525%253C%253E%253F%2523%252B")
    add("DELETE", "bindings/%2F/e/amq.default/q/a/a")
    add("DELETE", "bindings/%2F/e/x/e/y/ee")
    add("DELETE", "bindings/%2F/e/nope/q/a/rk")
    add("DELETE", f"bindings/%2F/e/{ODD}/q/{ODD}/k")
    add("GET", f"exchanges/%2F/{ODD}")  # auto-delete
    add("GET", "bindings/%2F")


def _add_publishes(add: Any) -> None:
    to_default = "exchanges/%2F/amq.default/publish"
    add("PUT", "queues/%2F/m", {"durable": True})
    message = {"properties": {}, "routing_key": "m", "payload": "x", "payload_encoding": "string"}
    for left_out in (*message, *([*message][:at] for at in (2, 3, 4))):
        add("POST", to_default, {name: value for name, value in message.items() if name not in left_out})
    not_texts: list[Any] = [5, None, {}, ["a"]]
    changes: list[dict[str, Any]] = [
        *({"payload_encoding": wrong} for wrong in ("nope", None, 5)),
        *({"payload": wrong} for wrong in not_texts),
        *({"payload": wrong, "payload_encoding": "base64"} for wrong in ("@@@", 5)),
        *({"properties": {"delivery_mode": wrong}} for wrong in ("2", 0, 3, 300, -1, None, 1.5, True)),
        *({"properties": {"priority": wrong}} for wrong in ("2", None, 1.5)),
        *({"properties": {"expiration": wrong}} for wrong in (1000, None)),
        *({"properties": {name: 5}} for name in ("content_type", "correlation_id", "app_id", "type", "message_id")),
        *({"properties": {"headers": wrong}} for wrong in ({"a": None}, {"CC": "x"}, {"BCC": 5})),
        {"properties": {"user_id": "guest"}},
        {"routing_key": "nowhere"},
        {"routing_key": "nowhere", "mandatory": True},
        {"payload": "", "payload_encoding": "base64"},
        {"payload": "/wA=", "payload_encoding": "base64"},
        {"payload": "ü\n<b>"},
        {"properties": {"headers": []}},
        {"properties": {"unknown": 5, "headers": {}}},
        {"properties": {"headers": {"CC": ["nowhere", "m"]}}, "routing_key": "b"},
        {"properties": {"headers": {"BCC": ["m"]}}, "routing_key": "nowhere"},
        {"properties": _properties()},
    ]
    for change in changes:
        add("POST", to_default, {**message, **change})
    add("POST", "exchanges/%2F/nope/publish", message)
    add("POST", "exchanges/%2F/y/publish", message)  # internal
    add("POST", "exchanges/%2F/of-fanout/publish", message)
    for kind, key in (("fanout", ""), ("topic", "a.*"), ("direct", "a.b")):
        add("POST", f"bindings/%2F/e/of-{kind}/q/m", {"routing_key": key})
        add("POST", f"exchanges/%2F/of-{kind}/publish", {**message, "routing_key": "a.b"})
    add("POST", "bindings/%2F/e/of-headers/q/m", {"arguments": {"i": 1, "s": "x", "x-match": "all"}})
    for headers in ({"i": 1, "s": "x"}, {"i": 1}, {"i": 1.0, "s": "x"}):
        add("POST", "exchanges/%2F/of-headers/publish", {**message, "properties": {"headers": headers}})
    for user in ("limited", "none-in", "management-out", "management-in"):
        add("POST", to_default, message, user=user)
    add("PUT", "queues/%2F/full", {"arguments": {"x-max-length": 1, "x-overflow": "reject-publish"}})
    full = {**message, "routing_key": "full"}
    add("POST", to_default, full, full)


def _properties() -> dict[str, Any]:
    headers = {"i": 1, "big": 1 << 40, "f": 1.5, "s": "ü", "b": True, "l": [1, "a", {"k": 2}], "t": {"z": [1]}}
    texts = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "app_id")
    numbers = {"delivery_mode": 2, "priority": 3, "timestamp": 1_700_000_000, "expiration": "600000"}
    return {**{name: f"the {name} ü" for name in texts}, **numbers, "user_id": ADMINISTRATOR, "headers": headers}


def _add_gets(add: Any) -> None:
    from_m = "queues/%2F/m/get"
    get = {"count": 2, "ackmode": "ack_requeue_true", "encoding": "auto"}
    for left_out in (*get, [*get]):
        add("POST", from_m, {name: value for name, value in get.items() if name not in left_out})
    changes: list[dict[str, Any]] = [
        *({"count": wrong} for wrong in ("x", None)),
        *({"encoding": wrong} for wrong in ("nope", None)),
        {"truncate": "a"},
        *({"count": count} for count in (0, "1", 1.5, 3, -1)),
        *({"ackmode": mode} for mode in ("reject_requeue_true", "ack_requeue_true")),
        *({"truncate": size, "count": 4} for size in (0, 1, "2")),
        {"encoding": "base64", "count": 100},
        {"count": 100},
        {"ackmode": "ack_requeue_false"},
        {"ackmode": "reject_requeue_false"},
        {"count": 100},
    ]
    for change in changes:
        add("POST", from_m, {**get, **change})
    for name in (LOCKED, "nope", "b", "full"):
        add("POST", f"queues/%2F/{name}/get", get)
    for user in ("limited", "none-in", "management-out", "management-in"):
        add("POST", from_m, get, user=user)
    add("DELETE", "queues/%2F/m?if-empty=true")
    add("DELETE", "queues/%2F/m/contents")
    add("POST", from_m, get)


def _add_deletions(add: Any) -> None:
    for name in ("nope", LOCKED, f"{CONSUMED}?if-unused=true", "%0Anew%0Dline"):
        add("DELETE", f"queues/%2F/{name}")
    for name in ("nope", LOCKED):
        add("DELETE", f"queues/%2F/{name}/contents")
    add("DELETE", "queues/nope/a")
    for user in ("limited", "none-in", "management-out", "management-in"):
        add("DELETE", "queues/%2F/temporary", user=user)
        add("DELETE", "queues/%2F/nope", user=user)
        add("DELETE", "exchanges/%2F/of-topic", user=user)
    for name in ("nope", "amq.direct", "amq.default", "x?if-unused=true", "y?if-unused=true", "x", "x"):
        add("DELETE", f"exchanges/%2F/{name}")
    add("DELETE", "exchanges/nope/x")
    for name in ("m?if-empty=true&if-unused=true", "a?if-empty=nope", "b", "b", ODD, "newline"):
        add("DELETE", f"queues/%2F/{name}")
    add("GET", "queues/%2F?columns=name&sort=name")
    add("GET", "bindings/%2F")


STEPS: list[Step] = _steps()


def answer(client: httpx.Client, step: Step, node: str) -> dict[str, Any]:
    """The answer as it is compared: the name of the node and hashes of arguments are masked."""
    content = step.body if isinstance(step.body, str) or step.body is None else json.dumps(step.body)
    auth = httpx.BasicAuth(step.user, "secret")
    headers = {"connection": "close"}  # RabbitMQ closes it after 100 requests
    response = client.request(step.method, f"/api/{step.path}", content=content, auth=auth, headers=headers)
    text = response.text.replace(node, "the-node")
    found: dict[str, Any] = {"status": response.status_code, "body": _masked(json.loads(text)) if text else None}
    for header in ("location", "allow"):
        if header in response.headers:
            found[header] = _HASH.sub("~hash", response.headers[header])
    return found


def _masked(value: Any) -> Any:
    match value:
        case dict():
            found = {name: _masked(each) for name, each in value.items()}
            if "properties_key" in found:
                found["properties_key"] = _HASH.sub("~hash", found["properties_key"])
            return found
        case list():
            return [_masked(each) for each in value]
    return value
