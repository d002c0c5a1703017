"""Requests about policies, and cases of their merging, for both servers: `ask_policies.py` records RabbitMQ's answers.

Both have the vhosts "/" and "other", one user for each tag (`questions.USERS`), and nothing else at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ANSWERS = Path(__file__).with_name("rabbitmq_policies.json")

_ANY = {"pattern": "a", "definition": {"max-length": 1}}


class PolicyQuestion(NamedTuple):
    method: str
    path: str  # below /api
    body: Any = None
    user: str = "administrator-in"

    @property
    def key(self) -> str:
        return f"{self.user} {self.method} {self.path} {self.body}"


def _put(path: str, *bodies: Any) -> list[PolicyQuestion]:
    return [PolicyQuestion("PUT", path, body) for body in bodies]


def _get(*paths: str) -> list[PolicyQuestion]:
    return [PolicyQuestion("GET", path) for path in paths]


def _delete(*paths: str) -> list[PolicyQuestion]:
    return [PolicyQuestion("DELETE", path) for path in paths]


def _definitions(path: str, **values: Sequence[Any]) -> list[PolicyQuestion]:
    return [
        PolicyQuestion("PUT", path, {"pattern": "a", "definition": {key.replace("_", "-"): value}})
        for key, some in values.items()
        for value in some
    ]


_P, _O, _L = "/policies/%2F/p", "/operator-policies/%2F/o", "/vhost-limits/other"
_VALUES: dict[str, Sequence[Any]] = {
    "message_ttl": [-1, "a", 1.5, None, [1], {"a": {"b": [1, "x"]}}, 'a"b<c>&', 0],
    "expires": [0, -1, "a", 5],
    "max_length": [-1, "a", 1.0, True, 0],
    "max_length_bytes": [-1, "x", 5],
    "overflow": ["x", 1, "drop-head", "reject-publish", "reject-publish-dlx"],
    "dead_letter_exchange": [1, {"a": 1}, ""],
    "dead_letter_routing_key": [1, "k"],
    "dead_letter_strategy": ["x", "at-least-once"],
    "delivery_limit": [-1, "a", 0],
    "queue_mode": ["x", 1, "lazy"],
    "queue_version": [3, "2", 2],
    "alternate_exchange": [1, "ae"],
    "max_in_memory_length": ["a", 1],
    "ha_mode": ["x", "all"],
    "unknown": [1, "a"],
    "x_max_length": [1],
    "max_priority": [1],
}
POLICIES = [
    *_get("/policies", "/policies/%2F", _P, "/policies/nope", "/policies/nope/p"),
    *_put(_P, {}, {"pattern": "a"}, {"definition": {"max-length": 1}}, {"pattern": "a", "definition": {}}),
    *_put(_P, {"pattern": 1, "definition": {"max-length": 1}}, [1], "text"),
    *_put(_P, *(_ANY | {"priority": value} for value in ("x", "7", None, True))),
    *_put(_P, _ANY | {"apply-to": "x"}, {"pattern": "a", "definition": {"unknown": 1, "other": 2}}),
    *_put(_P, {"pattern": "a", "definition": {"unknown": 1, "max-length": -1}}),
    *_put(_P, {"pattern": "a", "definition": {"unknown": "<b>"}, "apply-to": "x", "priority": "y"}),
    *_put(_P, _ANY, _ANY | {"priority": 1.5}, _ANY | {"priority": -3, "apply-to": "queues", "name": "z", "more": 1}),
    *_get(_P, "/policies", "/policies/%2F", "/parameters/policy/%2F/p", "/parameters/policy", "/parameters"),
    *_definitions(_P, **_VALUES),
    *_put("/policies/%2F/a%2Fb", {"pattern": "", "definition": {"max-length": 1}}),
    *_get("/policies/%2F/a%2Fb"),
    *_delete("/policies/%2F/a%2Fb", _P, _P),
]
OPERATOR_POLICIES = [
    *_get("/operator-policies", "/operator-policies/%2F", _O, "/operator-policies/nope"),
    *_put(_O, {}, {"pattern": "a", "definition": {}}, _ANY, _ANY | {"apply-to": "queues", "priority": 2}),
    *_get(_O, "/operator-policies", "/parameters/operator_policy", "/parameters"),
    *_put(_O, _ANY | {"priority": "q"}, _ANY | {"apply-to": "<x>"}),
    *_definitions(_O, **_VALUES),
    *_delete(_O, _O),
]
OTHERS = [
    *_get("/vhost-limits", _L, "/vhost-limits/nope", f"{_L}/max-queues"),
    *_put(f"{_L}/max-queues", {"value": 5}, {"value": 6}, {}),
    *_put(f"{_L}/max-connections", *({"value": value} for value in (-1, 0, "a", 1.5, None, True))),
    *_put(f"{_L}/max-nope", {"value": 1}),
    *_get("/vhost-limits", _L, "/parameters/vhost-limits/other", "/parameters/vhost-limits/other/limits"),
    *_delete(f"{_L}/max-connections", f"{_L}/max-connections", f"{_L}/max-nope"),
    *_get(_L),
    *_put("/parameters/vhost-limits/other/limits", *({"value": value} for value in ({"max-queues": "x"}, {"nope": 1}))),
    *_put("/parameters/vhost-limits/other/limits", {"value": 5}, {}, {"value": {"max-queues": 7}}),
    *_put("/parameters/nope/%2F/x", {"value": 1}),
    *_put("/parameters/policy/%2F/x", {"value": _ANY}, {}),
    *_get("/parameters", "/parameters/nope", "/parameters/policy/%2F", "/parameters/policy/nope"),
    *_delete("/parameters/vhost-limits/other/limits", "/parameters/vhost-limits/other/limits"),
    *_delete("/parameters/policy/%2F/x", "/parameters/nope/%2F/x"),
    *_get("/global-parameters/g"),
    *_put(
        "/global-parameters/g", *({"value": value} for value in ("a", 1, None, True, [1, 2], {"a": [1, {"b": 2.5}]}))
    ),
    *_put("/global-parameters/g", {}, [1], {"value": 1, "name": "other", "component": "x"}),
    *_get("/global-parameters/g"),
    *_delete("/global-parameters/g", "/global-parameters/g"),
]

# Who may change what.
TAGGED = [
    PolicyQuestion(method, path, body, user)
    for user in ("none-in", "management-in", "policymaker-in", "policymaker-out", "monitoring-in", "monitoring-out")
    for method, path, body in (
        ("PUT", _P, _ANY),
        ("PUT", _P, {}),
        ("DELETE", "/policies/%2F/nope", None),
        ("PUT", _O, _ANY),
        ("DELETE", "/operator-policies/%2F/nope", None),
        ("PUT", "/vhost-limits/%2F/max-queues", {"value": 1}),
        ("DELETE", "/vhost-limits/%2F/max-queues", None),
        ("GET", "/vhost-limits/%2F", None),
        ("GET", "/vhost-limits/other", None),
        ("PUT", "/global-parameters/g", {}),
        ("DELETE", "/global-parameters/nope", None),
        ("PUT", "/parameters/policy/%2F/x", {}),
        ("DELETE", "/parameters/x/%2F/nope", None),
    )
]
QUESTIONS = [*POLICIES, *OPERATOR_POLICIES, *OTHERS, *TAGGED, *_delete(_P)]


class Merge(NamedTuple):
    """A queue with arguments and policies. `BODIES` are published, one by one, with confirms."""

    about: str
    arguments: Mapping[str, Any] = {}
    policies: Sequence[Mapping[str, Any]] = ()  # definition, or a whole policy without its pattern
    operator: Sequence[Mapping[str, Any]] = ()


BODIES = [b"x"] * 6
DEAD, DEAD_TOO = "dead", "dead too"  # queues; the fanout exchanges of these names lead to them
QUORUM = {"x-queue-type": "quorum"}
_LONG = 100_000_000
MERGES = [
    Merge("no policy"),
    Merge("a length", policies=[{"max-length": 4}]),
    Merge("a lower argument", {"x-max-length": 3}, [{"max-length": 5}]),
    Merge("a lower policy", {"x-max-length": 5}, [{"max-length": 3}]),
    Merge("a lower operator policy", {"x-max-length": 5}, [{"max-length": 4}], [{"max-length": 2}]),
    Merge("an argument below the operator's", {"x-max-length": 2}, [], [{"max-length": 4}]),
    Merge("a policy below the operator's", {}, [{"max-length": 2, "message-ttl": _LONG}], [{"max-length": 4}]),
    Merge("keys of both", {}, [{"max-length": 4}], [{"message-ttl": _LONG, "expires": _LONG}]),
    Merge("a length of zero", {}, [{"max-length": 3}], [{"max-length": 0}]),
    Merge("bytes", {"x-max-length-bytes": 1000}, [{"max-length-bytes": 0}]),
    Merge("overflow", {"x-max-length": 2}, [{"overflow": "reject-publish"}]),
    Merge("overflow of the argument", {"x-max-length": 2, "x-overflow": "drop-head"}, [{"overflow": "reject-publish"}]),
    Merge("overflow, refusing", {"x-overflow": "reject-publish"}, [{"max-length": 4, "overflow": "drop-head"}]),
    Merge("a lower ttl of the argument", {"x-message-ttl": 1}, [{"message-ttl": _LONG}]),
    Merge("a lower ttl of the policy", {"x-message-ttl": _LONG}, [{"message-ttl": 1}]),
    Merge("a lower ttl of the operator", {}, [{"message-ttl": _LONG}], [{"message-ttl": 1}]),
    Merge("dead letters", {"x-max-length": 1}, [{"dead-letter-exchange": DEAD}]),
    Merge(
        "dead letters of the argument",
        {"x-dead-letter-exchange": DEAD},
        [{"dead-letter-exchange": DEAD_TOO, "max-length": 1}],
    ),
    Merge("a routing key alone", {"x-max-length": 2}, [{"dead-letter-routing-key": DEAD}]),
    Merge("exchange and key", {}, [{"dead-letter-exchange": "", "dead-letter-routing-key": DEAD, "max-length": 3}]),
    Merge(
        "a key for the argument's exchange",
        {"x-dead-letter-exchange": "", "x-max-length": 2},
        [{"dead-letter-routing-key": DEAD}],
    ),
    Merge(
        "refused and dead-lettered",
        {"x-dead-letter-exchange": DEAD},
        [{"max-length": 2, "overflow": "reject-publish-dlx"}],
    ),
    Merge(
        "the higher priority",
        {},
        [{"definition": {"max-length": 1}, "priority": 1}, {"definition": {"max-length": 3}, "priority": 2.5}],
    ),
    Merge("not for queues", {}, [{"definition": {"max-length": 1}, "apply-to": "exchanges"}]),
    Merge("for queues", {}, [{"definition": {"max-length": 1}, "apply-to": "queues"}]),
    Merge(
        "a key of quorum queues",
        {},
        [{"definition": {"delivery-limit": 3, "max-length": 1}, "priority": 2}, {"max-length": 4}],
    ),
    Merge("an operator's key of quorum queues", {}, [{"max-length": 3}], [{"delivery-limit": 3, "max-length": 1}]),
    Merge("a quorum queue", QUORUM, [{"delivery-limit": 3, "max-length": 4}], [{"delivery-limit": 2}]),
    Merge("a key of classic queues", QUORUM, [{"queue-mode": "lazy", "max-length": 1}]),
    Merge(
        "keys without effect",
        {},
        [{"queue-mode": "lazy", "ha-mode": "all", "alternate-exchange": "x", "queue-version": 2}],
    ),
]


def policy_of(merge: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The body of a PUT, for one queue."""
    whole = merge if "definition" in merge else {"definition": merge}
    return {"pattern": f"^{queue}$", **whole}
