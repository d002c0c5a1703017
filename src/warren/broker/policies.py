"""Policies and limits of a vhost: which policy applies to a queue or an exchange, and what it changes.

    parameters of the catalog ──▶ VhostPolicies (immutable) ──▶ PolicyMatch of a name: policy, operator policy
                                                                  │ merged: `definition`
    the queue's own arguments ──▶ `queue_arguments` ◀─────────────┘

A policy applies to the queues or exchanges of its vhost whose names its pattern matches. Of several matching policies
the one with the highest priority applies, alone; the same holds for operator policies, independently. RabbitMQ leaves
open which of two equal priorities applies; here it is the first by name. A policy with a key that a type of queue does
not have (delivery-limit: classic, queue-mode: quorum) does not apply to queues of that type at all, as in RabbitMQ.

    key in                        policy and operator policy      policy and argument of the queue
    a number: ttl, lengths …      the lower one                   the lower one
    anything else                 the operator's                  the argument

Keys of mirrored queues and of streams are accepted and shown, without an effect: definitions of a cluster can be
imported.

A `ParameterChange` is a change of the catalog. When it is durable `Vhost.apply_policies` brings the running queues in
line with it, one after the other, each in a unit of work under its own lock; only queues whose
effective arguments have changed are touched. Limits are applied at once. A crash after the change is durable leaves
nothing to repair: a queue that starts gets its effective arguments from the catalog, and is brought within its limits.

Texts of refusals are RabbitMQ's, which writes values as Erlang does: `term`. Matching uses `auth/patterns`, so that no
pattern can take too long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from warren.base.errors import Refused
from warren.broker.auth.patterns import compiled, matches
from warren.broker.exchanges.routing import ALTERNATE
from warren.broker.queue_arguments import EXCHANGE, KEY, NUMBER_MAX, TIME_MS_MAX, TYPE, QueueArguments, is_integer
from warren.catalog import parameters
from warren.catalog.catalog import CatalogChange
from warren.catalog.parameters import ParameterRow
from warren.catalog.queues import QueueRow
from warren.catalog.rows import RowWriter

if TYPE_CHECKING:
    from warren.broker.vhost import Vhost

POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = "vhost-limits"
LIMITS: Final = "limits"  # the name of the only parameter of the component
MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
QUEUES, EXCHANGES, ALL = "queues", "exchanges", "all"

Definition = Mapping[str, Any]


class InvalidParameter(Refused):
    """A value that the component does not accept, with RabbitMQ's text."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("Validation failed\n\n" + "".join(f"{reason}\n" for reason in reasons))


# -- values as Erlang writes them ------------------------------------------------------------------------------------


def term(value: Any) -> str:
    """A JSON value as Erlang prints it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            mantissa, mark, exponent = repr(value).partition("e")
            return f"{mantissa}{'' if '.' in mantissa or not mark else '.0'}{mark}{exponent.removeprefix('+')}"
        case str():
            return f"<<{json.dumps(value, ensure_ascii=False)}>>" if value else "<<>>"
        case list():
            return f"[{','.join(map(term, value))}]"
        case dict():
            return f"#{{{','.join(f'{term(key)} => {term(each)}' for key, each in sorted(value.items()))}}}"
    return str(value)


def _pairs(pairs: Mapping[str, Any]) -> str:
    return f"[{','.join(f'{{{term(key)},{term(pairs[key])}}}' for key in sorted(pairs))}]"


# -- keys ------------------------------------------------------------------------------------------------------------


class PolicyKey(NamedTuple):
    is_valid: Callable[[Any], bool]
    reason: str  # follows the value in the refusal
    not_in: frozenset[str] = frozenset()  # types of queue that do not have it
    is_lower_of: bool = False  # the lower number is in effect; only these may be in an operator policy
    most: int | None = None  # of an argument; higher numbers are taken as this one
    is_argument: bool = False  # has an effect on queues, as the argument x-…


def _is_natural(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_positive(value: Any) -> bool:
    return is_integer(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, bool | float) and value in values


_CLASSIC, _QUORUM = "classic", "quorum"
_ONLY_CLASSIC, _ONLY_QUORUM, _NEITHER = frozenset([_QUORUM]), frozenset([_CLASSIC]), frozenset([_CLASSIC, _QUORUM])
_LOCATORS = ("min-masters", "client-local", "random")
_MIRROR = "is not a valid mirroring setting"


def _number(reason: str, most: int, not_in: frozenset[str] = frozenset(), least: int = 0) -> PolicyKey:
    is_valid = _is_positive if least else _is_natural
    return PolicyKey(is_valid, f"is not a valid {reason}", not_in, is_lower_of=True, most=most, is_argument=True)


def _argument(is_valid: Callable[[Any], bool], reason: str) -> PolicyKey:
    return PolicyKey(is_valid, f"is not a valid {reason}", is_argument=True)


KEYS: Final[Mapping[str, PolicyKey]] = {
    "message-ttl": _number("message TTL", TIME_MS_MAX),
    "expires": _number("queue expiry", TIME_MS_MAX, least=1),
    "max-length": _number("maximum length", NUMBER_MAX),
    "max-length-bytes": _number("maximum length in bytes", NUMBER_MAX),
    "delivery-limit": _number("delivery limit", NUMBER_MAX, _ONLY_QUORUM),
    "consumer-timeout": _number("consumer timeout", TIME_MS_MAX, least=1),
    "overflow": _argument(_one_of("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value"),
    "dead-letter-exchange": _argument(_is_text, "dead letter exchange name"),
    "dead-letter-routing-key": _argument(_is_text, "dead letter routing key"),
    ALTERNATE: PolicyKey(_is_text, "is not a valid alternate exchange name"),
    # shown only
    "queue-mode": PolicyKey(_one_of("default", "lazy"), "is not a valid queue-mode value", _ONLY_CLASSIC),
    "queue-version": PolicyKey(_one_of(1, 2), "is not a valid queue-version value"),
    "dead-letter-strategy": PolicyKey(
        _one_of("at-most-once", "at-least-once"), "is not a valid dead letter strategy", _ONLY_QUORUM
    ),
    "max-in-memory-length": PolicyKey(_is_natural, "is not a valid maximum memory in bytes", is_lower_of=True),
    "max-in-memory-bytes": PolicyKey(_is_natural, "is not a valid maximum memory in bytes", is_lower_of=True),
    "queue-master-locator": PolicyKey(_one_of(*_LOCATORS), "invalid queue-master-locator value", _ONLY_CLASSIC),
    "queue-leader-locator": PolicyKey(
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "is not a valid queue leader locator value",
        _ONLY_QUORUM,
    ),
    "max-age": PolicyKey(_is_text, "is not a valid maximum age", _NEITHER),
    "stream-max-segment-size-bytes": PolicyKey(_is_natural, "is not a valid segment size", _NEITHER),
    "initial-cluster-size": PolicyKey(_is_natural, "is not a valid cluster size", _NEITHER),
    "ha-mode": PolicyKey(_one_of("all", "exactly", "nodes"), "is not a valid ha-mode value", _ONLY_CLASSIC),
    "ha-params": PolicyKey(lambda value: _is_positive(value) or isinstance(value, list), _MIRROR, _ONLY_CLASSIC),
    "ha-sync-mode": PolicyKey(_one_of("manual", "automatic"), _MIRROR, _ONLY_CLASSIC),
    "ha-sync-batch-size": PolicyKey(_is_positive, _MIRROR, _ONLY_CLASSIC),
    "ha-promote-on-shutdown": PolicyKey(_one_of("always", "when-synced"), _MIRROR, _ONLY_CLASSIC),
    "ha-promote-on-failure": PolicyKey(_one_of("always", "when-synced"), _MIRROR, _ONLY_CLASSIC),
}
_NEEDS_MODE: Final = ("ha-params", "ha-sync-mode", "ha-promote-on-shutdown")


# -- validation ------------------------------------------------------------------------------------------------------


def check_policy(value: Any, is_operator: bool = False) -> dict[str, Any]:
    """The value of a policy as it is stored; refused with RabbitMQ's texts, all of them at once."""
    if not isinstance(value, Mapping):
        raise InvalidParameter(f"a policy should be an object but was {term(value)}")
    if missing := [key for key in ("pattern", "definition") if key not in value]:
        raise InvalidParameter(*(f'Key "{key}" not found' for key in missing))
    pattern, definition = value["pattern"], value["definition"]
    priority, apply_to = value.get("priority", 0), value.get("apply-to", ALL)
    reasons = [
        _definition_fault(definition, is_operator),
        _apply_to_fault(apply_to),
        _pattern_fault(pattern),
        "" if _is_number(priority) else f"priority should be a number, actually was {term(priority)}",
    ]
    if any(reasons):
        raise InvalidParameter(*filter(None, reasons))
    return {"pattern": pattern, "definition": dict(definition), "priority": priority, "apply-to": apply_to}


def _definition_fault(definition: Any, is_operator: bool) -> str:
    if not isinstance(definition, Mapping):
        return f"definition should be an object but was {term(definition)}"
    if not definition:
        return "no policy provided"
    known = {key: rule for key, rule in KEYS.items() if rule.is_lower_of or not is_operator}
    for key in sorted(definition):
        if key in known and not known[key].is_valid(definition[key]):
            return f"{term(definition[key])} {known[key].reason}"
    unknown = {key: value for key, value in definition.items() if key not in known}
    if unknown:
        return f"{_pairs(unknown)} are not recognised policy settings"
    if "ha-mode" not in definition and any(key in definition for key in _NEEDS_MODE):
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    return ""


def _apply_to_fault(apply_to: Any) -> str:
    if apply_to in (QUEUES, EXCHANGES, ALL):
        return ""
    shown = apply_to if isinstance(apply_to, str) else term(apply_to)
    return f"apply-to '{shown}' unrecognised; should be 'queues', 'exchanges' or 'all'"


def _pattern_fault(pattern: Any) -> str:
    if not isinstance(pattern, str):
        return f"pattern should be a binary but was {term(pattern)}"
    try:
        compiled(pattern)
    except Refused as error:
        return f"pattern should be regular expression but is invalid: {error.what}"
    return ""


def _is_number(value: Any) -> bool:
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def check_limits(value: Any) -> dict[str, int]:
    """The limits of a vhost; below zero: none."""
    if not isinstance(value, Mapping):
        raise InvalidParameter(f"limits not a list {term(value)}")
    for name in (MAX_CONNECTIONS, MAX_QUEUES):
        if name in value and not is_integer(value[name]):
            raise InvalidParameter(f"{name} should be a number, actually was {term(value[name])}")
    unknown = {name: limit for name, limit in value.items() if name not in (MAX_CONNECTIONS, MAX_QUEUES)}
    if unknown:
        raise InvalidParameter(f"Unrecognised terms {_pairs(unknown)} in limits")
    return dict(value)


# -- matching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    pattern: str
    apply_to: str
    priority: float
    definition: Definition

    def applies(self, kind: str, name: str) -> bool:
        """`kind`: queues or exchanges. An empty pattern matches everything, as in RabbitMQ."""
        return self.apply_to in (kind, ALL) and (not self.pattern or matches(self.pattern, name))

    def is_for(self, queue_type: str) -> bool:
        return not any(queue_type in KEYS[key].not_in for key in self.definition if key in KEYS)


class PolicyMatch(NamedTuple):
    """The policies of one queue or exchange."""

    policy: Policy | None = None
    operator_policy: Policy | None = None

    @property
    def definition(self) -> dict[str, Any]:
        """What is in effect, without the arguments of the queue."""
        own = {} if self.policy is None else self.policy.definition
        operator = {} if self.operator_policy is None else self.operator_policy.definition
        return merge_definitions(own, operator)


def merge_definitions(own: Definition, operator: Definition) -> dict[str, Any]:
    merged = dict(own)
    for key, value in operator.items():
        is_lower_of = key in merged and key in KEYS and KEYS[key].is_lower_of
        merged[key] = min(merged[key], value) if is_lower_of else value
    return merged


def merge_arguments(arguments: Mapping[str, Any], definition: Definition) -> dict[str, Any]:
    """Arguments of a queue with those of its policies."""
    merged = dict(arguments)
    for key, value in definition.items():
        rule, name = KEYS.get(key), f"x-{key}"
        if rule is None or not rule.is_argument:
            continue
        declared = merged.get(name)
        if rule.is_lower_of:
            value = value if rule.most is None else min(value, rule.most)
            merged[name] = min(value, declared) if is_integer(declared) else value
        elif declared is None:
            merged[name] = value
    if KEY not in arguments and merged.get(EXCHANGE) is None:  # a policy may have a routing key alone
        merged.pop(KEY, None)
    return merged


_NO_MATCH: Final = PolicyMatch()
_CACHED_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class VhostPolicies:
    """Policies and limits of a vhost at one moment. Any thread may use it."""

    policies: tuple[Policy, ...] = ()  # the highest priority first
    operator_policies: tuple[Policy, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # rows that this version cannot use
    _cached: dict[tuple[str, str], PolicyMatch] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[ParameterRow]) -> VhostPolicies:
        """Rows are checked again: they may be from another version."""
        found: dict[str, list[Policy]] = {POLICY: [], OPERATOR_POLICY: []}
        limits: dict[str, int] = {}
        problems: list[str] = []
        for row in rows:
            try:
                if row.component in found:
                    found[row.component].append(_policy(row))
                elif (row.component, row.name) == (VHOST_LIMITS, LIMITS):
                    limits = check_limits(row.value)
            except InvalidParameter as error:
                problems.append(f"{row.component} {row.name!r} is not used: {' '.join(error.what.split())}")
        return cls(_ranked(found[POLICY]), _ranked(found[OPERATOR_POLICY]), limits, tuple(problems))

    def of_queue(self, row: QueueRow) -> PolicyMatch:
        if not self.policies and not self.operator_policies:
            return _NO_MATCH
        return self._match(QUEUES, row.name, str(row.arguments.get(TYPE) or _CLASSIC))

    def of_exchange(self, name: str) -> PolicyMatch:
        """An operator policy has no key for exchanges."""
        return PolicyMatch(self._match(EXCHANGES, name, "").policy)

    def queue_arguments(self, row: QueueRow) -> QueueArguments:
        """The arguments in effect."""
        return QueueArguments.from_table(merge_arguments(row.arguments, self.of_queue(row).definition))

    def alternate_exchange(self, name: str) -> str | None:
        """Of an exchange that names none itself; the default exchange has none."""
        if not self.policies or not name:
            return None
        policy = self.of_exchange(name).policy
        return None if policy is None else policy.definition.get(ALTERNATE)

    def limit(self, name: str) -> int | None:
        limit = self.limits.get(name)
        return None if limit is None or limit < 0 else limit

    def _match(self, kind: str, name: str, queue_type: str) -> PolicyMatch:
        key = queue_type or EXCHANGES, name
        found = self._cached.get(key)
        if found is None:
            found = PolicyMatch(
                _first(self.policies, kind, name, queue_type), _first(self.operator_policies, kind, name, queue_type)
            )
            if len(self._cached) >= _CACHED_MAX:  # of queues that were deleted, mostly
                self._cached.clear()
            self._cached[key] = found
        return found


def _policy(row: ParameterRow) -> Policy:
    value = check_policy(row.value, row.component == OPERATOR_POLICY)
    return Policy(row.name, value["pattern"], value["apply-to"], value["priority"], value["definition"])


def _ranked(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    return tuple(sorted(policies, key=lambda policy: (-policy.priority, policy.name)))


def _first(policies: Iterable[Policy], kind: str, name: str, queue_type: str) -> Policy | None:
    return next((each for each in policies if each.is_for(queue_type) and each.applies(kind, name)), None)


# -- changes ---------------------------------------------------------------------------------------------------------


class ParameterChange(CatalogChange):
    """A parameter of a vhost is set, or cleared. The vhost has the new policies as soon as it is durable; running
    queues follow by `Vhost.apply_policies`."""

    existed = False

    def __init__(self, vhost: Vhost, component: str, name: str, change: Callable[[Any], Any]) -> None:
        """`change`: from the present value to the new one; None: no parameter. May refuse."""
        self._vhost = vhost
        self._component = component
        self._name = name
        self._change = change
        self._rows: list[ParameterRow] = []

    def write(self, writer: RowWriter) -> None:
        vhost_id = self._vhost.row.id
        found = parameters.get(writer.connection, vhost_id, self._component, self._name)
        self.existed = found is not None
        value = self._change(None if found is None else found.value)
        if value is not None:
            parameters.put(writer, vhost_id, self._component, self._name, value)
        else:
            parameters.clear(writer, vhost_id, self._component, self._name)
        self._rows = parameters.every(writer.connection, vhost_id)

    def update_routing(self) -> None:
        self._vhost.set_policies(VhostPolicies.of(self._rows))
