"""Messages in the API: get from a queue, publish to an exchange. For inspection and tests, not for traffic.

    get       fetch up to `count` ──▶ JSON ──▶ requeue, acknowledge or reject all ──▶ answer
    publish   JSON ──▶ AMQP content ──▶ permission and route, as for a channel ──▶ queues ──▶ durable ──▶ routed?

Fetched messages are pending until they are settled. Requeued ones return to their positions, marked as redelivered; if
the broker is killed meanwhile, they are ready again at its next start. Acknowledged and rejected ones are durably gone
when the answer is sent.

A message is at most as large as for AMQP, and its request at most `PUBLISH_BYTES_MAX`. One get fetches at most
`GET_MESSAGES_MAX` messages and, beyond the first, `GET_BYTES_MAX` bytes.

RabbitMQ does both over a channel, and reports most errors of it as status 400, with the AMQP code in the reason.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final

from warren.amqp.content import PERSISTENT, TRANSIENT, Properties, body_of, properties_of, write_content
from warren.amqp.errors import PeerError, ReplyCode, reply_text
from warren.amqp.kernels import HAS_EXPIRATION
from warren.amqp.methods import BasicPublish
from warren.base.environment import wall_ms
from warren.base.errors import WarrenError
from warren.base.messages import Publication
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.consumers import Delivery
from warren.broker.declarations.dispatch import Declarations
from warren.broker.declarations.errors import queue_in
from warren.broker.errors import QueueDeleted, UnknownQueue
from warren.broker.queue_api import SettleCall
from warren.broker.queue_handle import QueueHandle
from warren.broker.request_batch import RouteCache
from warren.management.listing import shown
from warren.management.requests import AccessRule, HttpRefusal, HttpRequest, HttpRoute, access_of, bad_request
from warren.management.topology import client_of, exchange_name, require, table_of, utf8
from warren.server.consumer import contents_of
from warren.server.publish import PublishTargets, special_of

PUBLISH_BYTES_MAX: Final = 24 << 20  # 16 MiB in base64, and properties
GET_MESSAGES_MAX: Final = 10_000
GET_BYTES_MAX: Final = 32 << 20
_TEXT_BYTES_MAX: Final = 255  # of a short string
_CHANNEL: Final = 1  # in stored frames; replaced on delivery
_INTEGERS: Final = {"priority": range(1 << 8), "timestamp": range(1 << 64)}  # and their values
_ECHO_CHARACTERS_MAX: Final = 100


# -- get ---------------------------------------------------------------------------------------------------------


def get(request: HttpRequest) -> Any:
    body = request.body
    require(body, "ackmode", "count", "encoding")
    count = _integer(body["count"])
    truncate = _integer(body["truncate"]) if "truncate" in body else None
    if body["ackmode"] not in ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"):
        raise bad_request(["unknown", body["ackmode"]])
    if body["encoding"] not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    if truncate is not None and truncate < 0:
        raise bad_request(["not_integer", truncate])
    handle = _queue(request)
    api = request.vhost.queue_api
    count = GET_MESSAGES_MAX if count < 0 else min(count, GET_MESSAGES_MAX)  # negative: all, as in RabbitMQ
    delivery = api.get(handle, count, GET_BYTES_MAX) if count else None
    if delivery is None:
        return []
    settling = SettleCall(delivery.incarnation, [each.tags for each in delivery.fetched])
    try:
        items = _items(delivery, api.length(handle), body["encoding"] == "auto", truncate)
    except BaseException:
        with suppress(WarrenError):  # the queue was restarted or deleted
            api.requeue(handle, settling)
        raise
    settle = {"ack_requeue_false": api.ack, "reject_requeue_false": api.reject}.get(body["ackmode"], api.requeue)
    settle(handle, settling)
    if settle != api.requeue:
        request.vhost.storage.log.wait(handle.epoch)
    return items


def _queue(request: HttpRequest) -> QueueHandle:
    """The queue in the path; refused as by `basic.get`."""
    vhost, name = request.vhost, request.names["name"]
    client = client_of(request)
    authorize(client.access, Operation.BASIC_GET, {NameRole.QUEUE: name})
    try:
        handle = vhost.find_queue(name)
        Declarations(vhost, request.broker.counts).check_owner(client, handle)
    except (UnknownQueue, QueueDeleted) as error:
        text = reply_text(ReplyCode.NOT_FOUND, f"no {queue_in(vhost.row.name, name)}")
        raise HttpRefusal(404, "not_found", text) from error
    except PeerError as error:
        raise bad_request(error.what) from error
    return handle


def _items(delivery: Delivery, ready: int, is_auto: bool, truncate: int | None) -> list[dict[str, Any]]:
    """`ready`: messages behind them in the queue."""
    items: list[dict[str, Any]] = []
    left = ready + sum(len(each.slice) for each in delivery.fetched)
    for each in delivery.fetched:
        origin = each.slice.run.origin
        for content in contents_of(each.slice, _CHANNEL, 0):
            payload = body_of(content)
            left -= 1
            item = {
                "payload_bytes": len(payload),
                "redelivered": each.is_redelivered,
                "exchange": origin.exchange,
                "routing_key": origin.routing_key,
                "message_count": left,
                "properties": _shown(properties_of(content)),
            }
            items.append(item | _payload(payload[:truncate], is_auto))
    return items


def _shown(properties: Properties) -> Any:
    """Without any, RabbitMQ has an empty list."""
    values = {each.name: getattr(properties, each.name) for each in fields(Properties)}
    return {name: shown(value) for name, value in values.items() if value is not None} or []


def _payload(payload: bytes, is_auto: bool) -> dict[str, str]:
    if is_auto:
        with suppress(UnicodeDecodeError):
            return {"payload": payload.decode(), "payload_encoding": "string"}
    return {"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64"}


def _integer(value: Any) -> int:
    """Also as a text, or with a fraction, as RabbitMQ reads it."""
    if isinstance(value, str):
        with suppress(ValueError):
            return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise bad_request(["not_integer", value if isinstance(value, str | None) else str(value)])
    return int(value)


# -- publish -----------------------------------------------------------------------------------------------------


def publish(request: HttpRequest) -> Any:
    body, broker, vhost = request.body, request.broker, request.vhost
    require(body, "routing_key", "properties", "payload", "payload_encoding")
    payload = _decoded(body["payload"], body["payload_encoding"])
    if len(payload) > broker.settings.message_bytes_max:
        limit = broker.settings.message_bytes_max
        what = f"message size {len(payload)} is larger than configured max size {limit}"
        raise bad_request(PeerError(ReplyCode.PRECONDITION_FAILED, what).what)
    properties = _properties(body["properties"])
    key = body["routing_key"]
    if not isinstance(key, str):
        raise bad_request(["not_string", "routing_key"])
    if broker.alarms:  # publishers of AMQP are blocked
        raise HttpRefusal(503, "unavailable", f"publishers are blocked: {', '.join(broker.alarms)}")
    method = BasicPublish(exchange=exchange_name(request.names["name"]), routing_key=_short(key, "routing_key"))
    content = write_content(properties, payload, _CHANNEL, broker.settings.frame_max)
    routes, clock = RouteCache(vhost), broker.environment.clock
    try:
        target = PublishTargets(vhost, routes, access_of(broker, request.user, vhost)).find(method, b"")
        (opened,) = special_of(target, [content], HAS_EXPIRATION, routes, clock, reply_name="")
    except PeerError as error:
        raise bad_request(error.what) from error
    route = opened.route
    if not route.handles:
        return {"routed": False}
    publication = Publication(
        opened.contents,
        properties.is_persistent,
        opened.expires_ms,
        wall_ms(clock),
        properties.priority or 0,
        route.origin,
        len(route.handles),
    )
    is_accepted, epoch = vhost.queue_api.publish(publication, route.handles)
    vhost.storage.log.wait(epoch)
    if not is_accepted:
        raise bad_request("rejected Unable to publish message. Check queue limits.")
    return {"routed": True}


def _decoded(payload: Any, encoding: Any) -> bytes:
    if encoding not in ("string", "base64"):
        raise bad_request(["unsupported_encoding", encoding])
    if not isinstance(payload, str):
        raise bad_request("payload_not_string")
    if encoding == "string":
        return utf8(payload).encode()
    try:
        return base64.b64decode("".join(payload.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(["not_base64", payload[:_ECHO_CHARACTERS_MAX]]) from error


def _properties(values: Any) -> Properties:
    """Members that are no properties are ignored."""
    if not isinstance(values, Mapping):
        raise bad_request("properties must be a JSON object")
    names = [each.name for each in fields(Properties) if each.name in values]
    return Properties(**{name: _property(name, values[name]) for name in names})


def _property(name: str, value: Any) -> Any:
    if name == "headers":
        return table_of(value, name)
    if name == "delivery_mode" or name in _INTEGERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(["not_int", name])
        if name == "delivery_mode" and value not in (TRANSIENT, PERSISTENT):
            what = f"invalid message: {{delivery_mode_unknown,{str(value)[:_ECHO_CHARACTERS_MAX]}}}"
            raise bad_request(PeerError(ReplyCode.PRECONDITION_FAILED, what).what)
        if name in _INTEGERS and value not in _INTEGERS[name]:
            raise bad_request(["not_int", name])
        return value
    if not isinstance(value, str):
        raise bad_request(["not_string", name])
    return _short(value, name)


def _short(text: str, name: str) -> str:
    if len(utf8(text).encode()) > _TEXT_BYTES_MAX:
        raise bad_request(f"{name} has at most {_TEXT_BYTES_MAX} bytes")
    return text


ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute("/api/queues/{vhost}/{name}/get", "POST", AccessRule.MANAGEMENT, get, summary="fetches messages"),
    HttpRoute(
        "/api/exchanges/{vhost}/{name}/publish",
        "POST",
        AccessRule.MANAGEMENT,
        publish,
        body_bytes_max=PUBLISH_BYTES_MAX,
        summary='publishes: `{"routed": …}`',
    ),
)
