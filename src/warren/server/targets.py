"""Where a connection publishes to: exchange and routing key, looked up and permitted once for each method frame.

Clients send the same method frame again and again, so the frame itself is the key. What was looked up is good until a
row of the routing changes; permissions are those of when the connection first published there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import BasicPublish
from warren.broker.exchanges.errors import InternalExchange, UnknownExchange
from warren.broker.permissions import Access, AccessRefused, NameRole, Operation, Right, authorize, authorize_topic
from warren.broker.realm import Vhost
from warren.broker.routes import Route, RouteCache

TARGETS_MAX: Final = 4096
_IDS: Final = (BasicPublish.SPEC.class_id, BasicPublish.SPEC.method_id)


class PublishTarget(NamedTuple):
    publish: BasicPublish
    route: Route  # of a message without headers
    user: str


class PublishTargets:
    """Of one connection."""

    def __init__(self, realm: Vhost, routes: RouteCache, access: Access) -> None:
        self._realm = realm
        self._routes = routes
        self._access = access
        self._known: dict[bytes, PublishTarget] = {}

    def find(self, publish: BasicPublish, frame: bytes) -> PublishTarget:
        """Refused with what the client is told."""
        target = self._known.get(frame)
        if target is not None and self._routes.is_good(target.route):
            return target
        if publish.immediate:
            raise PeerError(ReplyCode.NOT_IMPLEMENTED, "immediate=true", *_IDS)
        try:
            self._authorize(publish)
            route = self._routes.find(publish.exchange, publish.routing_key, self._access.user)
        except AccessRefused as error:
            raise PeerError(ReplyCode.ACCESS_REFUSED, error.what, *_IDS) from error
        except InternalExchange as error:
            what = f"cannot publish to internal exchange '{publish.exchange}' in vhost '{self._access.vhost}'"
            raise PeerError(ReplyCode.ACCESS_REFUSED, what, *_IDS) from error
        except UnknownExchange as error:
            what = f"no exchange '{publish.exchange}' in vhost '{self._access.vhost}'"
            raise PeerError(ReplyCode.NOT_FOUND, what, *_IDS) from error
        if len(self._known) >= TARGETS_MAX:
            self._known.clear()
        target = self._known[frame] = PublishTarget(publish, route, self._access.user)
        return target

    def _authorize(self, publish: BasicPublish) -> None:
        authorize(self._access, Operation.BASIC_PUBLISH, {NameRole.EXCHANGE: publish.exchange})
        if publish.exchange in self._access.topics:
            with self._realm.lock:
                row = self._realm.routing.exchange(publish.exchange)
            if row is not None and row.type == "topic":
                authorize_topic(self._access, Right.WRITE, publish.exchange, publish.routing_key)
