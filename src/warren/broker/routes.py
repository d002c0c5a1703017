"""Where messages of one kind go: looked up once, and good until a row of the routing changes.

    (exchange, routing key, user) ──▶ Route: the queues, and what their story says of them

Messages with the same route are one run, whoever sent them: equal routes are one object. Only where an exchange looks
at headers, or a message names further keys (CC, BCC), has each message to be looked at by itself.
"""

from __future__ import annotations

from warren.amqp.types import Table
from warren.base.ids import ExchangeId, QueueId
from warren.base.runs import WIRE, Origin
from warren.broker.errors import UnknownQueue
from warren.broker.exchanges.copies import Copies
from warren.broker.exchanges.errors import UnknownExchange
from warren.broker.exchanges.routing import RoutingResult
from warren.broker.realm import Vhost
from warren.broker.supervisor import QueueHandle
from warren.catalog.catalog import DeletedObjects

ROUTES_MAX = 16_384


class Route:
    """Compared by identity."""

    __slots__ = ("children", "looks_at_headers", "origin", "version")

    def __init__(self, children: tuple[QueueHandle, ...], origin: Origin, version: int, looks_at_headers: bool) -> None:
        self.children = children
        self.origin = origin
        self.version = version
        self.looks_at_headers = looks_at_headers


class RouteCache:
    """Of one vhost. Used by one thread."""

    def __init__(self, realm: Vhost) -> None:
        self._realm = realm
        self._version = -1
        self._known: dict[tuple[str, str, str], Route] = {}
        self._by_queues: dict[tuple[tuple[QueueId, ...], str, str, str], Route] = {}

    def find(self, exchange: str, routing_key: str, user: str) -> Route:
        """For messages without headers; refused if there is no such exchange, or nobody may publish to it."""
        self._follow()
        key = (exchange, routing_key, user)
        route = self._known.get(key)
        if route is None:
            with self._realm.lock:
                id_ = self._exchange(exchange)
                routed = self._realm.routing.publish(id_, routing_key)
                is_known = self._realm.routing.is_remembered(id_, routing_key)
            route = self._known[key] = self._route(routed, exchange, routing_key, user, not is_known)
        return route

    def find_for(self, exchange: str, routing_key: str, user: str, headers: Table) -> tuple[Route, Copies]:
        """For one message with these headers."""
        self._follow()
        with self._realm.lock:
            routed = self._realm.routing.publish(self._exchange(exchange), routing_key, headers)
        return self._route(routed, exchange, routing_key, user, True), routed.copies

    def is_good(self, route: Route) -> bool:
        """Whether it still is what `find` would say."""
        return route.version == self._realm.routing.version

    def _exchange(self, name: str) -> ExchangeId:
        row = self._realm.routing.exchange(name)
        if row is None:
            raise UnknownExchange(name)
        return row.id

    def _route(
        self, routed: RoutingResult, exchange: str, routing_key: str, user: str, looks_at_headers: bool
    ) -> Route:
        key = (routed.queues, exchange, routing_key, user)
        route = self._by_queues.get(key)
        if route is None:
            found = [self._child(id_) for id_ in routed.queues]
            children = tuple([child for child in found if child is not None])
            origin = Origin(exchange, routing_key, user, WIRE)
            route = self._by_queues[key] = Route(children, origin, self._version, looks_at_headers)
        return route

    def _child(self, id_: QueueId) -> QueueHandle | None:
        """It is started if it was not; None if it was deleted in this moment."""
        queues = self._realm.queues
        try:
            return queues.served(id_) or queues.start(queues.storage.catalog.queue(id_), is_patient=False)
        except (DeletedObjects, UnknownQueue):
            return None

    def _follow(self) -> None:
        """Forget everything if a row has changed, or keys are random."""
        if self._realm.routing.version == self._version and len(self._by_queues) < ROUTES_MAX:
            return
        self._known.clear()
        self._by_queues.clear()
        self._version = self._realm.routing.version
