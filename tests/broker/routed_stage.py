"""A vhost whose dead letters go through exchanges, and messages of AMQP to send there.

stage = RoutedStage().up()
stage.exchange("dlx", "topic")
stage.queue("dead"); stage.bind("dlx", "dead", "#")
stage.send(wire(b"1"), to="work", exchange="in", key="k")
"""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.broker.exchanges.rows import FIRST_EXCHANGE, VHOST, exchange
from tests.broker.stage import BrokerStage, settling
from warren.amqp.content import Properties, body_of, properties_of, write_content
from warren.base.ids import BindingId, ExchangeId
from warren.base.messages import WIRE, Origin, Publication
from warren.broker.exchanges.routing import Routing
from warren.broker.queue_handle import QueueHandle
from warren.catalog.bindings import BindingRow


class RoutedStage(BrokerStage):
    def __init__(self, **settings: Any) -> None:
        super().__init__(settle_ms=1, **settings)
        self.routing: Routing = Routing()
        self._ids = count(1)
        self._exchanges: dict[str, ExchangeId] = {}
        self.exchange("")

    def up(self) -> RoutedStage:
        super().up()
        return self

    def exchange(self, name: str, kind: str = "direct", **arguments: Any) -> None:
        row = exchange(FIRST_EXCHANGE + len(self._exchanges), kind, name, **arguments)
        self._exchanges[name] = row.id
        self.routing.add_exchange(row)

    def queue(self, name: str, durable: bool = True, **arguments: Any) -> QueueHandle:
        return super().queue(name, durable, **arguments)

    def bind(self, source: str, target: str, key: str = "", **arguments: Any) -> BindingRow:
        to_exchange = self._exchanges.get(target)
        to_queue = self.vhost.find_queue(target).id if to_exchange is None else None
        row = BindingRow(
            BindingId(next(self._ids)), VHOST, self._exchanges[source], to_queue, to_exchange, key, arguments
        )
        self.routing.add_binding(row)
        return row

    def send(self, *contents: bytes, to: str, exchange: str = "", key: str | None = None, **more: Any) -> None:
        """As a channel does."""
        now_ms = self.clock.wall_ns() // 1_000_000
        origin = Origin(exchange, to if key is None else key, "guest", WIRE)
        publication = Publication(list(contents), published_ms=now_ms, origin=origin, **more)
        self.database.log.wait(self.queue_api.put(publication, [self.vhost.find_queue(to)]))

    def reject(self, name: str, count: int = 1) -> None:
        self.queue_api.reject(self.vhost.find_queue(name), settling(self.take(name, count)))

    def read(self, name: str) -> list[tuple[bytes, Properties, Origin]]:
        """Fetch and acknowledge everything: body, properties, and the origin as a consumer sees it."""
        handle = self.vhost.find_queue(name)
        delivery = self.queue_api.get(handle, 1000)
        if delivery is None:
            return []
        self.queue_api.ack(handle, settling(delivery))
        return [
            (body_of(content), properties_of(content), each.slice.run.origin)
            for each in delivery.fetched
            for content in each.slice.contents or []
        ]

    def bodies(self, name: str) -> list[bytes]:
        return [body for body, _, _ in self.read(name)]


def wire(body: bytes, channel: int = 3, frame_max: int = 4096, **properties: Any) -> bytes:
    return write_content(Properties(**properties), body, channel, frame_max)
