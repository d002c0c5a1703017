"""A direct exchange: the binding's key and the message's are the same text."""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.types import Table
from warren.base.ids import BindingId
from warren.broker.exchanges.matching import Destination, destination_of
from warren.catalog.bindings import BindingRow


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
