"""What every kind of exchange can do: hold bindings, and say which of them a message meets.

    binding (a row of the catalog) ──add / remove──▶ Matcher ──match(routing key, headers)──▶ destinations

A kind of exchange is nothing but such a matcher. It knows neither names nor other exchanges; the walk from exchange to
exchange is routing.py's.

Always true: adding a binding twice is adding it once, what is not there can be removed, and what was removed leaves
nothing behind. One destination may come several times, by several bindings: whoever walks counts it once.

The default exchange: the routing key is the name of a queue.

It has no bindings of its own. Every queue is bound to it by being there, so it looks at the same table of names that
whoever declares and deletes queues keeps.

A direct exchange: the binding's key and the message's are the same text.

A fanout exchange: every binding, whatever the message says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from warren.amqp.types import Table
from warren.base.errors import Misuse
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.catalog.bindings import BindingRow


class Destination(NamedTuple):
    queue: QueueId | None  # one of these two
    exchange: ExchangeId | None


class Matcher(Protocol):
    @property
    def looks_at_headers(self) -> bool:
        """If it does, the routing key alone does not say where a message goes."""
        ...

    def add(self, binding: BindingRow) -> None: ...

    def remove(self, binding: BindingRow) -> None: ...

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]: ...


def destination_of(binding: BindingRow) -> Destination:
    return Destination(binding.queue_id, binding.exchange_id)


class Default:
    looks_at_headers = False

    __slots__ = ("_queues",)

    def __init__(self, queues: Mapping[str, QueueId]) -> None:
        self._queues = queues  # not a copy: names come and go

    def add(self, binding: BindingRow) -> None:
        raise Misuse("the default exchange takes no bindings", "use another exchange")

    def remove(self, binding: BindingRow) -> None:
        raise Misuse("the default exchange has no bindings to remove", "delete the queue")

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        queue = self._queues.get(routing_key)
        return () if queue is None else (Destination(queue, None),)


class Direct:
    looks_at_headers = False

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
    looks_at_headers = False

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound: dict[BindingId, Destination] = {}

    def add(self, binding: BindingRow) -> None:
        self._bound[binding.id] = destination_of(binding)

    def remove(self, binding: BindingRow) -> None:
        self._bound.pop(binding.id, None)

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        return self._bound.values()
