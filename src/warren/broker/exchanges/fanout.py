"""A fanout exchange: every binding, whatever the message says."""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.types import Table
from warren.base.ids import BindingId
from warren.broker.exchanges.matching import Destination, destination_of
from warren.catalog.bindings import BindingRow


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
