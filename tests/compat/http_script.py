"""The script of HTTP requests that RabbitMQ and Warren answer, in this order, on a fresh broker.

    STEPS: (method, path, body, user)       body: JSON, or bytes as they are; user: see USERS, None without a login

Later steps meet what earlier ones declared. {node}, {port} and {connection} stand for the names of the broker at hand:
`replay` opens one connection with a channel and a consumer on the queue `consumed` before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

ADMIN = "guest"
PASSWORDS = {"guest": "guest", "monitor": "secret", "maker": "secret", "plain": "secret", "limited": "secret"}


class Step(NamedTuple):
    method: str
    path: str
    body: Any = None
    user: str | None = ADMIN

    @property
    def title(self) -> str:
        who = "" if self.user == ADMIN else f" as {self.user or 'nobody'}"
        return f"{self.method} {self.path}{who}"


def get(*paths: str, user: str | None = ADMIN) -> Iterator[Step]:
    return (Step("GET", f"/api/{path}", None, user) for path in paths)


def put(path: str, body: Any = None, user: str | None = ADMIN) -> Step:
    return Step("PUT", f"/api/{path}", {} if body is None else body, user)


def post(path: str, body: Any = None, user: str | None = ADMIN) -> Step:
    return Step("POST", f"/api/{path}", {} if body is None else body, user)


def delete(*paths: str, user: str | None = ADMIN) -> Iterator[Step]:
    return (Step("DELETE", f"/api/{path}", None, user) for path in paths)


def _server() -> Iterator[Step]:
    yield from get("overview", "overview?columns=node,cluster_name", "nodes", "nodes/{node}", "whoami", "cluster-name")
    yield from get("extensions", "health/checks/alarms", "health/checks/local-alarms", "health/checks/virtual-hosts")
    yield from get("health/checks/port-listener/{port}", "health/checks/port-listener/1")
    yield from get("health/checks/protocol-listener/amqp", "health/checks/protocol-listener/mqtt")
    yield from get("health/checks/node-is-quorum-critical", "aliveness-test/%2F", "aliveness-test/nope")
    yield from get("health/checks/certificate-expiration/4/weeks", "feature-flags", "nope", "queues/nope")
    yield from get("overview", "nodes", "vhosts", "users", user=None)
    yield put("cluster-name", {"name": "renamed"})
    yield from get("cluster-name")


def _vhosts() -> Iterator[Step]:
    yield from get("vhosts", "vhosts/%2F", "vhosts/nope")
    yield put("vhosts/one")
    yield put("vhosts/one")
    yield put("vhosts/two", {"description": "second", "tags": "a,b"})
    yield put("vhosts/three", {"description": "third", "tags": ["x"], "tracing": False})
    yield put("vhosts/a%2Fb")
    yield from get("vhosts", "vhosts/one", "vhosts/two", "vhosts/three", "vhosts/a%2Fb", "vhosts?columns=name")
    yield from get("vhosts/one/permissions", "vhosts/one/topic-permissions", "vhosts/nope/permissions")
    yield from get("vhosts/one/connections", "vhosts/one/channels")
    yield from delete("vhosts/three", "vhosts/three", "vhosts/a%2Fb")
    yield post("vhosts/one/start/{node}")
    yield Step("PUT", "/api/vhosts/bad", b"{not json")
    yield Step("PUT", "/api/vhosts/bad", b"[1]")


def _users() -> Iterator[Step]:
    yield from get("users", "users/guest", "users/nope", "users/without-permissions")
    yield put("users/monitor", {"password": "secret", "tags": "monitoring"})
    yield put("users/maker", {"password": "secret", "tags": ["policymaker", "management"]})
    yield put("users/plain", {"password": "secret", "tags": "management"})
    yield put("users/limited", {"password": "secret", "tags": "management"})
    yield put("users/limited", {"password": "secret", "tags": "management"})
    yield put("users/hashed", {"password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "tags": ""})
    yield put(
        "users/hashed512",
        {
            "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": "rabbit_password_hashing_sha512",
            "tags": "",
        },
    )
    yield put("users/nopassword", {"password_hash": "", "tags": ""})
    yield put("users/bad", {"tags": ""})
    yield put("users/bad", {"password": "x"})
    yield put("users/bad", {"password": "x", "password_hash": "y", "tags": ""})
    yield put("users/bad", {"password_hash": "not base64!", "tags": ""})
    yield put("users/bad", {"password": "x", "tags": "", "hashing_algorithm": "rot13"})
    yield put("users/bad", {"password": 7, "tags": ""})
    yield Step("PUT", "/api/users/bad", b"{not json")
    yield from get("users", "users/monitor", "users/maker", "users/nopassword", "users?columns=name,tags")
    yield from get("users/monitor/permissions", "users/nope/permissions", "users/monitor/topic-permissions")
    yield from get("users/without-permissions", "users", user="monitor")
    yield put("users/doomed1", {"password": "x", "tags": ""})
    yield put("users/doomed2", {"password": "x", "tags": ""})
    yield post("users/bulk-delete", {"users": ["doomed1", "doomed2"]})
    yield post("users/bulk-delete", {"users": ["nope"]})
    yield post("users/bulk-delete", {})
    yield from delete("users/hashed", "users/hashed", "users/nopassword")
    yield from get("whoami", user="plain")


def _permissions() -> Iterator[Step]:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    for user in ("monitor", "maker", "plain"):
        yield put(f"permissions/%2F/{user}", everything)
    yield put("permissions/one/guest", everything)
    yield put("permissions/two/guest", everything)
    yield put("permissions/%2F/limited", {"configure": "^mine-", "write": "^mine-", "read": ""})
    yield put("permissions/%2F/limited", {"configure": "^mine-", "write": "^mine-", "read": "^mine-"})
    yield put("permissions/%2F/plain", {"configure": ".*", "write": ".*"})
    yield put("permissions/%2F/plain", {"configure": "(", "write": ".*", "read": ".*"})
    yield put("permissions/%2F/plain", {"configure": 7, "write": ".*", "read": ".*"})
    yield put("permissions/nope/plain", everything)
    yield put("permissions/%2F/nope", everything)
    yield from get("permissions", "permissions/%2F/plain", "permissions/%2F/nope", "permissions/nope/plain")
    yield from get("users/limited/permissions", "vhosts/%2F/permissions")
    yield from delete("permissions/two/guest", "permissions/two/guest")
    yield put("permissions/two/guest", everything)
    topic = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    yield put("topic-permissions/%2F/plain", topic)
    yield put("topic-permissions/%2F/plain", topic)
    yield put("topic-permissions/%2F/plain", {"exchange": "amq.topic", "write": "("})
    yield put("topic-permissions/%2F/nope", topic)
    yield put("topic-permissions/nope/plain", topic)
    yield from get("topic-permissions", "topic-permissions/%2F/plain", "topic-permissions/%2F/guest")
    yield from get("users/plain/topic-permissions", "vhosts/%2F/topic-permissions")
    yield from delete("topic-permissions/%2F/plain", "topic-permissions/%2F/plain")


def _exchanges() -> Iterator[Step]:
    yield from get("exchanges", "exchanges/%2F", "exchanges/nope", "exchanges/%2F/amq.direct", "exchanges/%2F/nope")
    for kind in ("direct", "fanout", "topic", "headers"):
        yield put(f"exchanges/%2F/x-{kind}", {"type": kind, "durable": True})
    yield put("exchanges/%2F/x-direct", {"type": "direct", "durable": True})
    yield put("exchanges/%2F/x-direct", {"type": "fanout", "durable": True})
    yield put("exchanges/%2F/x-direct", {"type": "direct", "durable": False})
    yield put("exchanges/%2F/x-odd", {"type": "nope"})
    yield put("exchanges/%2F/x-odd", {"durable": True})
    yield put("exchanges/%2F/amq.mine", {"type": "direct"})
    yield put("exchanges/%2F/x-alt", {"type": "direct", "arguments": {"alternate-exchange": "x-fanout"}})
    yield put("exchanges/%2F/x-temp", {"type": "direct", "durable": False, "auto_delete": True, "internal": True})
    yield put("exchanges/%2F/x-text", {"type": "direct", "durable": "true"})
    yield put("exchanges/%2F/x-text2", {"type": "direct", "durable": "maybe"})
    yield put("exchanges/nope/x", {"type": "direct"})
    yield put("exchanges/%2F/theirs", {"type": "direct"}, user="limited")
    yield put("exchanges/%2F/mine-x", {"type": "direct"}, user="limited")
    yield from get("exchanges/%2F", "exchanges/%2F/x-alt", "exchanges/%2F/x-temp", "exchanges?columns=name,type")
    yield from get("exchanges?page=1&page_size=3", "exchanges?page=1&page_size=5&name=x-&use_regex=false")
    yield from get("exchanges?page=1&page_size=5&name=%5Ex-&use_regex=true", "exchanges?sort=name&sort_reverse=true")
    yield from delete("exchanges/%2F/x-temp", "exchanges/%2F/nope", "exchanges/%2F/amq.direct")
    yield from delete("exchanges/%2F/x-headers?if-unused=true", "exchanges/%2F/x-text")
    yield from delete("exchanges/%2F/x-direct", user="limited")


def _queues() -> Iterator[Step]:
    yield put("queues/%2F/q", {"durable": True})
    yield put("queues/%2F/q", {"durable": True})
    yield put("queues/%2F/q", {"durable": False})
    yield put("queues/%2F/q", {"durable": True, "arguments": {"x-max-length": 5}})
    yield put("queues/%2F/q-short", {"durable": True, "arguments": {"x-max-length": 3, "x-overflow": "reject-publish"}})
    yield put("queues/%2F/q-ttl", {"durable": True, "auto_delete": False, "arguments": {"x-message-ttl": 60000}})
    yield put("queues/%2F/q-bad", {"arguments": {"x-message-ttl": -1}})
    yield put("queues/%2F/q-bad", {"arguments": {"x-message-ttl": "soon"}})
    yield put("queues/%2F/q-bad", {"arguments": {"x-overflow": "nope"}})
    yield put("queues/%2F/q-bad", {"arguments": []})
    yield put("queues/%2F/q-bad", {"durable": "maybe"})
    yield put("queues/%2F/amq.mine", {})
    yield put("queues/%2F/q-default")
    yield put("queues/%2F/q-quorum", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    yield put("queues/%2F/q-prio", {"durable": True, "arguments": {"x-max-priority": 5}})
    yield put("queues/%2F/a%2Fb%20c", {"durable": True})
    yield put("queues/nope/q", {})
    yield put("queues/%2F/theirs", {}, user="limited")
    yield put("queues/%2F/mine-q", {}, user="limited")
    yield Step("PUT", "/api/queues/%2F/q-bad", b"not json")
    yield from get("queues", "queues/%2F", "queues/%2F/q", "queues/%2F/nope", "queues/%2F/a%2Fb%20c", "queues/nope/q")
    yield from get("queues?columns=name,messages,nope", "queues?sort=name", "queues?page=1&page_size=2")
    yield from get(
        "queues/%2F?page=1&page_size=10&name=q-&use_regex=false", "queues?page=0", "queues?page=9&page_size=5"
    )
    yield from get(
        "queues/%2F/q/bindings", "queues/%2F/nope/bindings", "queues?disable_stats=true&enable_queue_totals=true"
    )
    yield from delete("queues/%2F/q-default", "queues/%2F/nope", "queues/%2F/q-ttl?if-empty=true&if-unused=true")
    yield from delete("queues/%2F/consumed?if-unused=true", "queues/%2F/nope/contents", "queues/%2F/a%2Fb%20c")
    yield from delete("queues/%2F/q", user="limited")
    yield post("queues/%2F/q/actions", {"action": "sync"})
    yield post("queues/%2F/q/actions", {"action": "nope"})
    yield post("queues/%2F/q/actions", {})


def _bindings() -> Iterator[Step]:
    yield from get("bindings", "bindings/%2F", "bindings/nope", "bindings/%2F/e/x-direct/q/q")
    yield post("bindings/%2F/e/x-direct/q/q", {"routing_key": "key"})
    yield post("bindings/%2F/e/x-direct/q/q", {"routing_key": "key"})
    yield post("bindings/%2F/e/x-direct/q/q", {"routing_key": "key", "arguments": {"a": 1}})
    yield post("bindings/%2F/e/x-direct/q/q", {})
    yield post("bindings/%2F/e/x-direct/q/q", {"routing_key": "odd / key~%"})
    yield post("bindings/%2F/e/x-topic/e/x-fanout", {"routing_key": "a.#"})
    yield post("bindings/%2F/e/x-fanout/q/q", {"routing_key": ""})
    yield post("bindings/%2F/e/nope/q/q", {"routing_key": "k"})
    yield post("bindings/%2F/e/x-direct/q/nope", {"routing_key": "k"})
    yield post("bindings/%2F/e/x-direct/e/nope", {"routing_key": "k"})
    yield post("bindings/%2F/e/x-direct/q/q", {"routing_key": 7})
    yield post("bindings/%2F/e/x-direct/q/q", {"routing_key": "k"}, user="limited")
    yield from get("bindings/%2F/e/x-direct/q/q", "bindings/%2F/e/x-direct/q/q/key", "bindings/%2F/e/x-direct/q/q/~")
    yield from get("bindings/%2F/e/x-direct/q/q/nope", "bindings/%2F/e/x-topic/e/x-fanout")
    yield from get("exchanges/%2F/x-direct/bindings/source", "exchanges/%2F/x-fanout/bindings/destination")
    yield from get(
        "exchanges/%2F/amq.default/bindings/source", "queues/%2F/q/bindings", "exchanges/%2F/nope/bindings/source"
    )
    yield from delete("bindings/%2F/e/x-direct/q/q/key", "bindings/%2F/e/x-direct/q/q/nope")
    yield from delete("bindings/%2F/e/x-topic/e/x-fanout/a.%23", "bindings/%2F/e/amq.default/q/q/q")
    yield from get("bindings/%2F")


def _messages() -> Iterator[Step]:
    def message(**fields: Any) -> dict[str, Any]:
        return {"properties": {}, "routing_key": "q", "payload": "hello", "payload_encoding": "string"} | fields

    path = "exchanges/%2F/amq.default/publish"
    yield post(path, message())
    yield post(path, message(routing_key="nowhere"))
    yield post(path, message(payload="aGk=", payload_encoding="base64"))
    yield post(path, message(payload="!", payload_encoding="base64"))
    yield post(path, message(payload_encoding="rot13"))
    properties = {"delivery_mode": 2, "content_type": "text/plain", "headers": {"a": 1, "b": "two", "c": [1, 2]}}
    yield post(path, message(properties=properties))
    yield post(path, message(properties={"expiration": "60000", "priority": 3, "message_id": "m", "type": "t"}))
    yield post(path, message(properties={"nope": 1}))
    yield post(path, message(properties={"delivery_mode": "x"}))
    yield post(path, {"routing_key": "q"})
    yield post("exchanges/%2F/nope/publish", message())
    yield post(path, message(), user="limited")
    for mode in ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false"):
        yield post("queues/%2F/q/get", {"count": 1, "ackmode": mode, "encoding": "auto"})
    yield post("queues/%2F/q/get", {"count": 9, "ackmode": "ack_requeue_true", "encoding": "base64"})
    yield post("queues/%2F/q/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 2})
    yield post("queues/%2F/q/get", {"count": 1, "ackmode": "nope", "encoding": "auto"})
    yield post("queues/%2F/q/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "nope"})
    yield post("queues/%2F/q/get", {"count": "x", "ackmode": "ack_requeue_true", "encoding": "auto"})
    yield post("queues/%2F/q/get", {"count": 1})
    yield post("queues/%2F/nope/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"})
    yield post("queues/%2F/q/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}, user="limited")
    yield from delete("queues/%2F/q/contents", "queues/%2F/q?if-empty=true")
    yield put("queues/%2F/q", {"durable": True})


def _policies() -> Iterator[Step]:
    ttl = {"pattern": "^q", "definition": {"message-ttl": 1000}, "priority": 1, "apply-to": "queues"}
    for kind in ("policies", "operator-policies"):
        yield from get(kind, f"{kind}/%2F", f"{kind}/%2F/nope", f"{kind}/nope")
        yield put(f"{kind}/%2F/ttl", ttl)
        yield put(f"{kind}/%2F/ttl", ttl | {"priority": 2})
        yield put(f"{kind}/%2F/bad", {"definition": {"message-ttl": 1000}})
        yield put(f"{kind}/%2F/bad", {"pattern": "^q"})
        yield put(f"{kind}/%2F/bad", ttl | {"pattern": "("})
        yield put(f"{kind}/%2F/bad", ttl | {"definition": {}})
        yield put(f"{kind}/%2F/bad", ttl | {"definition": {"nope": 1}})
        yield put(f"{kind}/%2F/bad", ttl | {"definition": {"message-ttl": "x"}})
        yield put(f"{kind}/%2F/bad", ttl | {"definition": {"max-length": -1}})
        yield put(f"{kind}/%2F/bad", ttl | {"apply-to": "nope"})
        yield put(f"{kind}/%2F/bad", ttl | {"priority": "high"})
        yield put(f"{kind}/nope/ttl", ttl)
        yield put(f"{kind}/%2F/ours", ttl, user="maker")
        yield put(f"{kind}/%2F/ours", ttl, user="plain")
        yield from get(kind, f"{kind}/%2F", f"{kind}/%2F/ttl")
        yield from get(kind, user="plain")
        yield from get("queues/%2F/q?columns=policy,operator_policy,effective_policy_definition")
        yield from delete(f"{kind}/%2F/ttl", f"{kind}/%2F/ttl", f"{kind}/%2F/ours")
    yield put(
        "policies/%2F/exchanges",
        {"pattern": "^x", "definition": {"alternate-exchange": "x-fanout"}, "apply-to": "exchanges"},
    )
    yield from get("policies/%2F/exchanges", "exchanges/%2F/x-direct")


def _parameters() -> Iterator[Step]:
    yield from get("parameters", "parameters/federation", "parameters/federation/%2F", "parameters/federation/%2F/nope")
    yield put("parameters/nope/%2F/name", {"value": {"a": 1}})
    yield put("parameters/policy/%2F/name", {"value": {"a": 1}})
    yield from delete("parameters/nope/%2F/name")
    yield from get("global-parameters", "global-parameters/nope")
    yield put("global-parameters/colour", {"value": "red"})
    yield put("global-parameters/shape", {"name": "shape", "value": {"sides": 4, "names": ["square"]}})
    yield put("global-parameters/bad", {})
    yield from get("global-parameters", "global-parameters/shape")
    yield from get("global-parameters", user="plain")
    yield from delete("global-parameters/colour", "global-parameters/colour")


def _limits() -> Iterator[Step]:
    yield from get("vhost-limits", "vhost-limits/%2F", "vhost-limits/nope")
    yield put("vhost-limits/one/max-queues", {"value": 2})
    yield put("vhost-limits/one/max-connections", {"value": 0})
    yield put("vhost-limits/one/max-nope", {"value": 1})
    yield put("vhost-limits/one/max-queues", {"value": "x"})
    yield put("vhost-limits/nope/max-queues", {"value": 1})
    yield from get("vhost-limits", "vhost-limits/one")
    for name in ("l1", "l2", "l3"):
        yield put(f"queues/one/{name}", {})
    yield from delete("vhost-limits/one/max-queues", "vhost-limits/one/max-queues")
    yield put("queues/one/l3", {})
    yield from get("user-limits", "user-limits/plain", "user-limits/nope")
    yield put("user-limits/plain/max-connections", {"value": 5})
    yield put("user-limits/plain/max-channels", {"value": 7})
    yield put("user-limits/plain/max-nope", {"value": 1})
    yield put("user-limits/nope/max-channels", {"value": 1})
    yield from get("user-limits", "user-limits/plain")
    yield from delete("user-limits/plain/max-connections", "user-limits/plain/max-channels")


def _connections() -> Iterator[Step]:
    yield from get("connections", "connections/{connection}", "connections/nope", "connections/username/guest")
    yield from get("connections/{connection}/channels", "channels", "channels/nope", "vhosts/%2F/connections")
    yield from get("vhosts/%2F/channels", "consumers", "consumers/%2F", "consumers/nope", "queues/%2F/consumed")
    yield from get("connections?page=1&page_size=5", "channels?page=1&page_size=5", "connections?columns=name,user")
    yield from get("connections", "channels", "consumers", user="plain")
    yield from get("connections", "channels", "consumers", user="monitor")
    yield from delete("connections/{connection}", user="plain")
    yield from delete("connections/nope", "connections/username/nope")
    yield from delete("connections/{connection}")


def _definitions() -> Iterator[Step]:
    yield from get("definitions", "definitions/%2F", "definitions/nope")
    yield from get("definitions", user="plain")
    document: dict[str, Any] = {
        "users": [
            {"name": "imported", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
        ],
        "vhosts": [{"name": "four"}],
        "permissions": [{"user": "guest", "vhost": "four", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [{"name": "dq", "vhost": "four", "durable": True, "auto_delete": False, "arguments": {}}],
        "exchanges": [
            {
                "name": "dx",
                "vhost": "four",
                "type": "direct",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
        ],
        "bindings": [
            {
                "source": "dx",
                "vhost": "four",
                "destination": "dq",
                "destination_type": "queue",
                "routing_key": "k",
                "arguments": {},
            }
        ],
        "policies": [
            {
                "vhost": "four",
                "name": "p",
                "pattern": "^d",
                "apply-to": "queues",
                "definition": {"max-length": 9},
                "priority": 0,
            }
        ],
    }
    yield post("definitions", document)
    yield post("definitions", document)
    yield from get("queues/four/dq", "exchanges/four/dx", "bindings/four/e/dx/q/dq", "policies/four", "users/imported")
    yield post("definitions", {"queues": [{"name": "dq", "vhost": "four", "durable": False}]})
    yield post("definitions", {"queues": [{"name": "x", "vhost": "nowhere", "durable": True}]})
    yield post("definitions", {"vhosts": "x"})
    yield Step("POST", "/api/definitions", b"{not json")
    part = {"queues": [{"name": "only", "durable": True, "auto_delete": False, "arguments": {}}]}
    yield post("definitions/four", part)
    yield from get("definitions/four", "queues/four/only")
    yield post("definitions", document, user="plain")


def _tags() -> Iterator[Step]:
    """What each tag may read and write."""
    for user in ("monitor", "maker", "plain", "limited"):
        yield from get("overview", "nodes", "vhosts", "users", "permissions", "definitions", "policies", user=user)
        yield from get("queues", "queues/%2F", "queues/one", "exchanges/%2F", "parameters", "vhost-limits", user=user)
        yield put("vhosts/new", user=user)
        yield put("users/new", {"password": "x", "tags": ""}, user=user)


def _end() -> Iterator[Step]:
    yield from delete("vhosts/one", "users/limited", "users/nope", "queues/%2F/q", "exchanges/%2F/x-direct")
    yield from get("queues/one", "users/limited", "permissions")


STEPS: tuple[Step, ...] = (
    *_server(),
    *_vhosts(),
    *_users(),
    *_permissions(),
    *_exchanges(),
    *_queues(),
    *_bindings(),
    *_messages(),
    *_policies(),
    *_parameters(),
    *_limits(),
    *_definitions(),
    *_tags(),
    *_connections(),
    *_end(),
)
