"""Headers exchange: the arguments of a binding are the headers that a message must have.

    x-match      requires                       arguments that begin with x-
    all          all of them (or none)          ignored        (also where x-match is missing)
    any          at least one                   ignored
    all-with-x   all of them                    compared, except x-match itself
    any-with-x   at least one                   compared, except x-match itself

An argument without a value (void) matches any value of that name. Other values are compared as in RabbitMQ, by value
and not by their type on the wire: 1 equals 1 of any width, 1.0, and the time 1; text equals its bytes; but true differs
from 1, and the decimal 1.5 from 1.50. In arrays and tables the type counts too: there 1 differs from 1.0, and text from
bytes.

RabbitMQ differs where the catalog does not keep the difference: in arrays and tables the width of an integer does not
count here, a time equals its number, and the entries of an inner table may be in any order.

Bindings are indexed by a required header, name and value: `any` by each of them, `all` by the one with the fewest other
bindings at the time of binding. So a message is compared only with the bindings that share such a header with it;
bindings without required headers match every message.

Invariants: arguments are parsed once, at the bind, and a header is made comparable at most once per message. An unknown
x-match is refused by `check_arguments`, before it is written; one in an old row counts as all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from warren.amqp.types import Table
from warren.base.ids import BindingId
from warren.broker.exchanges.simple import BadBinding, Destination, destination_of
from warren.catalog.bindings import BindingRow

MATCH = "x-match"
KINDS = ("all", "any", "all-with-x", "any-with-x")


class Headers:
    uses_headers = True

    __slots__ = ("_always", "_indexed", "_keys")

    def __init__(self) -> None:
        self._always: dict[BindingId, Destination] = {}  # bindings without required headers
        self._indexed: dict[str, dict[Hashable | None, _Slot]] = {}  # by name and value; None: any value
        self._keys: dict[BindingId, list[tuple[str, Hashable | None]]] = {}  # the index entries of each binding

    def add(self, binding: BindingRow) -> None:
        self.remove(binding)
        required, to = _required(binding.arguments), destination_of(binding)
        if not required.values and not required.is_any:
            self._always[binding.id] = to
        keys = list(required.values) if required.is_any else sorted(required.values, key=self._binding_count)[:1]
        self._keys[binding.id] = keys
        for name, value in keys:
            self._indexed.setdefault(name, {}).setdefault(value, {})[binding.id] = required, to

    def remove(self, binding: BindingRow) -> None:
        self._always.pop(binding.id, None)
        for name, value in self._keys.pop(binding.id, ()):
            by_value = self._indexed[name]
            del by_value[value][binding.id]
            if not by_value[value]:
                del by_value[value]
            if not by_value:
                del self._indexed[name]

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        values: dict[str, Hashable] = {}
        found = list(self._always.values())
        for name in headers:
            if name in self._indexed:
                candidates = self._candidates(name, headers, values)
                found += [to for required, to in candidates if _matches(required, headers, values)]
        return found

    def _candidates(
        self, name: str, headers: Table, values: dict[str, Hashable]
    ) -> Iterator[tuple[_Required, Destination]]:
        by_value = self._indexed[name]
        yield from by_value.get(None, {}).values()
        if len(by_value) > (None in by_value):
            yield from by_value.get(_value_of(name, headers, values), {}).values()

    def _binding_count(self, key: tuple[str, Hashable | None]) -> int:
        """Number of bindings with this index entry."""
        name, value = key
        return len(self._indexed.get(name, {}).get(value, ()))


def check_arguments(arguments: Table) -> None:
    """Refuse the arguments that RabbitMQ refuses."""
    kind = arguments.get(MATCH, "all")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadBinding(f"x-match is {kind!r}", f"it is text: {', '.join(KINDS)}")


class _Required(NamedTuple):
    is_any: bool
    values: tuple[tuple[str, Hashable | None], ...]  # None: any value


_Slot = dict[BindingId, tuple[_Required, Destination]]


def _required(arguments: Table) -> _Required:
    kind = arguments.get(MATCH, "all")
    if not isinstance(kind, str) or kind not in KINDS:
        kind = "all"
    names = [each for each in arguments if each != MATCH and (kind.endswith("-with-x") or not each.startswith("x-"))]
    values = ((each, None if arguments[each] is None else comparable(arguments[each])) for each in names)
    return _Required(kind.startswith("any"), tuple(values))


def _matches(required: _Required, headers: Table, values: dict[str, Hashable]) -> bool:
    """The message is a candidate: it has at least one of the required headers."""
    return required.is_any or all(_has_value(name, value, headers, values) for name, value in required.values)


def _has_value(name: str, value: Hashable | None, headers: Table, values: dict[str, Hashable]) -> bool:
    if name not in headers:
        return False
    return value is None or _value_of(name, headers, values) == value


def _value_of(name: str, headers: Table, values: dict[str, Hashable]) -> Hashable:
    if name not in values:
        values[name] = comparable(headers[name])
    return values[name]


def comparable(value: Any) -> Hashable:
    """Equal for values that RabbitMQ regards as equal. The depth of tables is limited where they are decoded."""
    match value:
        case None:
            return ("void",)
        case bool():
            return ("bool", value)
        case int() | float():
            return ("number", value)
        case datetime():
            return ("number", int(value.timestamp()))
        case str():
            return ("bytes", value.encode("utf-8", "surrogateescape"))
        case bytes() | bytearray() | memoryview():
            return ("bytes", bytes(value))
        case Decimal():
            return ("decimal", value.as_tuple())
        case Mapping():
            return ("table", frozenset((name, _inside(each)) for name, each in value.items()))
        case list() | tuple():
            return ("array", tuple(_inside(each) for each in value))
    raise BadBinding(f"a table cannot hold a {type(value).__name__}", "use a type of AMQP")


def _inside(value: Any) -> Hashable:
    """In arrays and tables the type is a part of the value."""
    return (isinstance(value, float), isinstance(value, str), comparable(value))
