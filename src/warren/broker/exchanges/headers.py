"""A headers exchange: a binding's arguments are the headers that it wants.

    x-match      wants                          names that begin with x-
    all          every one of them (or none)    not looked at        (also where x-match is missing)
    any          one of them at least           not looked at
    all-with-x   every one                      looked at, but for x-match itself
    any-with-x   one at least                   looked at, but for x-match itself

An argument of no value (void) is met by any value of that name. Otherwise values are compared as RabbitMQ does, by what
they hold and not by what they are called on the wire: 1 is 1 in whatever width, is 1.0, and is the time 1; text is the
bytes of it; but true is not 1, and the decimals 1.5 and 1.50 differ. Inside of arrays and tables types count too: there
1 is not 1.0, and text is not bytes.

What differs from RabbitMQ, since the catalog keeps neither: in arrays and tables an integer's width does not count, nor
does a time differ from a number, and the entries of an inner table may stand in any order.

Bindings are indexed by a header that they want, name and value: `any` by each of them, `all` by the one that the fewest
others are indexed by at the time it is bound. So a message is compared with the bindings that share such a header with
it, and not with all of them; those that want nothing match every message.

Always true: arguments are read once, when they are bound, and a header is made comparable at most once per message. An
unknown x-match is refused by `check_arguments`, before it is written; one that was written long ago counts as all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from warren.amqp.types import Table
from warren.base.ids import BindingId
from warren.broker.exchanges.errors import BadBinding
from warren.broker.exchanges.simple import Destination, destination_of
from warren.catalog.bindings import BindingRow

MATCH = "x-match"
KINDS = ("all", "any", "all-with-x", "any-with-x")


class Headers:
    looks_at_headers = True

    __slots__ = ("_always", "_indexed", "_places")

    def __init__(self) -> None:
        self._always: dict[BindingId, Destination] = {}  # they want nothing
        self._indexed: dict[str, dict[Hashable | None, _Slot]] = {}  # by name and value; None: whatever the value is
        self._places: dict[BindingId, list[tuple[str, Hashable | None]]] = {}  # where each is indexed

    def add(self, binding: BindingRow) -> None:
        self.remove(binding)
        wanted, to = _wanted(binding.arguments), destination_of(binding)
        if not wanted.values and not wanted.is_any:
            self._always[binding.id] = to
        places = list(wanted.values) if wanted.is_any else sorted(wanted.values, key=self._crowd)[:1]
        self._places[binding.id] = places
        for name, value in places:
            self._indexed.setdefault(name, {}).setdefault(value, {})[binding.id] = wanted, to

    def remove(self, binding: BindingRow) -> None:
        self._always.pop(binding.id, None)
        for name, value in self._places.pop(binding.id, ()):
            by_value = self._indexed[name]
            del by_value[value][binding.id]
            if not by_value[value]:
                del by_value[value]
            if not by_value:
                del self._indexed[name]

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        known: dict[str, Hashable] = {}
        found = list(self._always.values())
        for name in headers:
            if name in self._indexed:
                candidates = self._candidates(name, headers, known)
                found += [to for wanted, to in candidates if _is_met(wanted, headers, known)]
        return found

    def _candidates(
        self, name: str, headers: Table, known: dict[str, Hashable]
    ) -> Iterator[tuple[_Wanted, Destination]]:
        by_value = self._indexed[name]
        yield from by_value.get(None, {}).values()
        if len(by_value) > (None in by_value):
            yield from by_value.get(_value_of(name, headers, known), {}).values()

    def _crowd(self, place: tuple[str, Hashable | None]) -> int:
        """How many bindings are indexed there."""
        name, value = place
        return len(self._indexed.get(name, {}).get(value, ()))


def check_arguments(arguments: Table) -> None:
    """Refuses what RabbitMQ refuses to bind."""
    kind = arguments.get(MATCH, "all")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadBinding(f"x-match is {kind!r}", f"it is text: {', '.join(KINDS)}")


class _Wanted(NamedTuple):
    is_any: bool
    values: tuple[tuple[str, Hashable | None], ...]  # None: whatever the value is


_Slot = dict[BindingId, tuple[_Wanted, Destination]]


def _wanted(arguments: Table) -> _Wanted:
    kind = arguments.get(MATCH, "all")
    if not isinstance(kind, str) or kind not in KINDS:
        kind = "all"
    names = [each for each in arguments if each != MATCH and (kind.endswith("-with-x") or not each.startswith("x-"))]
    values = ((each, None if arguments[each] is None else comparable(arguments[each])) for each in names)
    return _Wanted(kind.startswith("any"), tuple(values))


def _is_met(wanted: _Wanted, headers: Table, known: dict[str, Hashable]) -> bool:
    """By a message that has one of them at least."""
    return wanted.is_any or all(_is_one_met(name, value, headers, known) for name, value in wanted.values)


def _is_one_met(name: str, value: Hashable | None, headers: Table, known: dict[str, Hashable]) -> bool:
    if name not in headers:
        return False
    return value is None or _value_of(name, headers, known) == value


def _value_of(name: str, headers: Table, known: dict[str, Hashable]) -> Hashable:
    if name not in known:
        known[name] = comparable(headers[name])
    return known[name]


def comparable(value: Any) -> Hashable:
    """Equal for values that RabbitMQ takes for equal. Depth is bounded where tables are read."""
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
    raise BadBinding(f"a table cannot hold a {type(value).__name__}", "use what AMQP knows")


def _inside(value: Any) -> Hashable:
    """Within arrays and tables the type is a part of the value."""
    return (isinstance(value, float), isinstance(value, str), comparable(value))
