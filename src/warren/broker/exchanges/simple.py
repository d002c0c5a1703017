"""Errors of exchanges, for publishers and for declarations.

The matcher protocol of exchange types, and the simple types: default, direct and fanout.

    binding (a row of the catalog) ──add / remove──▶ Matcher ──match(routing key, headers)──▶ destinations

An exchange type is a matcher: it holds the bindings of one exchange, and finds those that a message matches. It knows
no names and no other exchanges; `routing` walks from exchange to exchange. `topic` and `headers` have modules of their
own.

Invariants: adding a binding twice is the same as adding it once; removing an unknown one does nothing; a removed one
leaves nothing behind. A destination may occur several times, by several bindings; `routing` counts it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from warren.amqp.types import Table
from warren.base.errors import Misuse, Refused
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.catalog.bindings import BindingRow


class UnknownExchange(Refused):
    """The exchange does not exist (AMQP: 404)."""

    def __init__(self, which: object) -> None:
        super().__init__(f"there is no exchange {which!r}", "declare it first")


class UnknownExchangeType(Refused):
    """There is no exchange type of this name (AMQP: 503)."""

    def __init__(self, type_: str) -> None:
        super().__init__(f"there is no exchange type {type_!r}", "use direct, fanout, topic or headers")


class InternalExchange(Refused):
    """Only other exchanges may route to it (AMQP: 403)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"exchange {name!r} is internal", "publish to an exchange that is bound to it")


class BadBinding(Refused):
    """The arguments are invalid for this exchange type (AMQP: 406)."""


class BadCopies(Refused):
    """The CC or BCC header is not an array (AMQP: 406)."""


class Destination(NamedTuple):
    queue: QueueId | None  # one of these two
    exchange: ExchangeId | None


class Matcher(Protocol):
    @property
    def uses_headers(self) -> bool:
        """Whether the routing key alone does not determine the destinations."""
        ...

    def add(self, binding: BindingRow) -> None: ...

    def remove(self, binding: BindingRow) -> None: ...

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]: ...


def destination_of(binding: BindingRow) -> Destination:
    return Destination(binding.queue_id, binding.exchange_id)


class Default:
    """Every queue is bound by its name, without a row: the matcher reads the routing's table of queue names."""

    uses_headers = False

    __slots__ = ("_queues",)

    def __init__(self, queues: Mapping[str, QueueId]) -> None:
        self._queues = queues  # shared with the routing, not a copy

    def add(self, binding: BindingRow) -> None:
        raise Misuse("the default exchange takes no bindings", "use another exchange")

    def remove(self, binding: BindingRow) -> None:
        raise Misuse("the default exchange has no bindings to remove", "delete the queue")

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        queue = self._queues.get(routing_key)
        return () if queue is None else (Destination(queue, None),)


class Direct:
    """The binding key equals the routing key."""

    uses_headers = False

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, dict[BindingId, Destination]] = {}

    def add(self, binding: BindingRow) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding.id] = destination_of(binding)

    def remove(self, binding: BindingRow) -> None:
        bound = self._by_key.get(binding.routing_key, {})
        bound.pop(binding.id, None)
        if not bound:
            self._by_key.pop(binding.routing_key, None)

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        return self._by_key.get(routing_key, {}).values()


class Fanout:
    """All bindings match every message."""

    uses_headers = False

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound: dict[BindingId, Destination] = {}

    def add(self, binding: BindingRow) -> None:
        self._bound[binding.id] = destination_of(binding)

    def remove(self, binding: BindingRow) -> None:
        self._bound.pop(binding.id, None)

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        return self._bound.values()
