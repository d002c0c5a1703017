"""Publish targets: exchange and routing key of a connection, looked up and authorized once for each method frame.

Clients send the same method frame again and again, so the frame itself is the key. A target is valid until a row of the
routing changes, or the permissions of the connection (`ServerConnection.update_access` begins a new table).

Messages whose properties have to be decoded (`special_of`):

    headers      only where an exchange matches them, or CC or BCC may be among them: a search of the header's bytes
    expiration   a time in ms, as text: becomes a wall time
    direct reply the reply name of the channel instead of the pseudo-queue (direct_reply.py)
    user id      must be the publisher's own, unless the user has the tag `impersonator`

Consecutive messages with the same header bytes are decoded once. Stored messages have no BCC (exchanges/routing.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from warren.amqp.content import DIRECT_REPLY_TO, Properties, properties_of, with_properties
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.kernels import HAS_DIRECT_REPLY, HAS_EXPIRATION, HAS_HEADERS, HAS_USER_ID
from warren.amqp.methods import BasicPublish
from warren.base.environment import Clock, wall_ms
from warren.broker.auth.permissions import Access, AccessRefused, NameRole, Operation, Right, authorize, authorize_topic
from warren.broker.exchanges.routing import without_blind
from warren.broker.exchanges.simple import BadCopies, InternalExchange, UnknownExchange
from warren.broker.request_batch import Route, RouteCache
from warren.broker.vhost import Vhost

TARGETS_MAX: Final = 4096
_IDS: Final = (BasicPublish.SPEC.class_id, BasicPublish.SPEC.method_id)


class PublishTarget(NamedTuple):
    publish: BasicPublish
    route: Route  # of a message without headers
    user: str
    may_impersonate: bool


class PublishTargets:
    """Of one connection."""

    def __init__(self, vhost: Vhost, routes: RouteCache, access: Access) -> None:
        self._vhost = vhost
        self._routes = routes
        self._access = access
        self._known: dict[bytes, PublishTarget] = {}

    def find(self, publish: BasicPublish, frame: bytes) -> PublishTarget:
        """Raises the `PeerError` for the client if the publish is refused."""
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
        target = self._known[frame] = PublishTarget(publish, route, self._access.user, self._access.may_impersonate)
        return target

    def _authorize(self, publish: BasicPublish) -> None:
        authorize(self._access, Operation.BASIC_PUBLISH, {NameRole.EXCHANGE: publish.exchange})
        if publish.exchange in self._access.topics:
            with self._vhost.lock:
                row = self._vhost.routing.exchange(publish.exchange)
            if row is not None and row.type == "topic":
                authorize_topic(self._access, Right.WRITE, publish.exchange, publish.routing_key)


_USER_IDS: Final = (BasicPublish.SPEC.class_id, BasicPublish.SPEC.method_id)
_TTL_MAX: Final = (1 << 32) - 1
_HEAD: Final = 7  # bytes of a frame before its payload


class OpenedMessages(NamedTuple):
    """Messages with the same route and expiration time."""

    route: Route
    contents: list[bytes]
    expires_ms: int


def special_of(
    target: PublishTarget, contents: list[bytes], traits: int, routes: RouteCache, clock: Clock, reply_name: str
) -> Iterator[OpenedMessages]:
    """The same messages in the same order, in as few parts as possible. A message that is refused raises its error
    after those before it, so a client that sends many at once gets the same result as one that sends them singly.
    `reply_name`: for direct replies to the channel; empty: it does not consume them."""
    now_ms = wall_ms(clock)
    needs_all = bool(traits & (HAS_EXPIRATION | HAS_USER_ID | HAS_DIRECT_REPLY)) or target.route.needs_headers
    opened: tuple[bytes, OpenedMessages] | None = None  # header bytes, and the result
    part: OpenedMessages | None = None
    for content in contents:
        size = _HEAD + 1 + int.from_bytes(content[3:_HEAD], "big")
        if not needs_all and (not traits & HAS_HEADERS or content.find(b"CC", 0, size) < 0):
            one = OpenedMessages(target.route, [content], 0)
        elif opened is not None and content[:size] == opened[0]:
            one = opened[1]._replace(contents=[content])
        else:
            try:
                one = _opened(target, content, routes, now_ms, reply_name)
            except PeerError:
                if part is not None:
                    yield part
                raise
            opened = (content[:size], one) if one.contents[0] is content else None
        if part is not None and part.route is one.route and part.expires_ms == one.expires_ms:
            part.contents.append(one.contents[0])
            continue
        if part is not None:
            yield part
        part = one
    if part is not None:
        yield part


def _opened(target: PublishTarget, content: bytes, routes: RouteCache, now_ms: int, reply_name: str) -> OpenedMessages:
    properties = properties_of(content)
    if properties.reply_to == DIRECT_REPLY_TO:
        if not reply_name:
            raise PeerError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist", *_USER_IDS)
        properties = replace(properties, reply_to=reply_name)
        content = with_properties(content, properties)
    if properties.user_id not in (None, target.user) and not target.may_impersonate:
        what = f"user_id property set to '{properties.user_id}' but authenticated user was '{target.user}'"
        raise PeerError(ReplyCode.PRECONDITION_FAILED, what, *_USER_IDS)
    expires_ms = 0 if properties.expiration is None else now_ms + _ttl(properties.expiration)
    route = target.route
    if properties.headers:
        publish = target.publish
        try:
            route, copies = routes.find_for(publish.exchange, publish.routing_key, target.user, properties.headers)
        except BadCopies as error:
            raise PeerError(ReplyCode.PRECONDITION_FAILED, error.what, *_USER_IDS) from error
        if copies.blind:
            content = with_properties(content, _without_blind(properties))
    return OpenedMessages(route, [content], expires_ms)


def _without_blind(properties: Properties) -> Properties:
    assert properties.headers is not None, "BCC is a header"
    return replace(properties, headers=without_blind(properties.headers))


def _ttl(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= _TTL_MAX):
        raise PeerError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}'", *_USER_IDS)
    return int(text)
