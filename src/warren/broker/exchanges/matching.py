"""What every kind of exchange can do: hold bindings, and say which of them a message meets.

    binding (a row of the catalog) ──add / remove──▶ Matcher ──match(routing key, headers)──▶ destinations

A kind of exchange is nothing but such a matcher. It knows neither names nor other exchanges; the walk from exchange to
exchange is routing.py's.

Always true: adding a binding twice is adding it once, what is not there can be removed, and what was removed leaves
nothing behind. One destination may come several times, by several bindings: whoever walks counts it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from warren.amqp.types import Table
from warren.base.ids import ExchangeId, QueueId
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
