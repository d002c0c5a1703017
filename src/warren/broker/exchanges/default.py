"""The default exchange: the routing key is the name of a queue.

It has no bindings of its own. Every queue is bound to it by being there, so it looks at the same table of names that
whoever declares and deletes queues keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warren.amqp.types import Table
from warren.base.errors import Misuse
from warren.base.ids import QueueId
from warren.broker.exchanges.matching import Destination
from warren.catalog.bindings import BindingRow


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
