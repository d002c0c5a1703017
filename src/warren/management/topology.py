"""Exchanges, queues and bindings in the API: declare, delete, purge, bind; lists of exchanges and bindings.

    JSON ──▶ AMQP method ──▶ Declarations, as for a client ──▶ 201: it is new · 204: it existed, or was deleted
                                                           └─▶ 400, 401, 404 with the text of the AMQP error

The broker checks permissions, names and arguments, and a request is answered when its change is durable: the API adds
no rule of its own. Requests belong to no connection, so exclusive queues are locked for all of them.

The default exchange is `amq.default` in a path, and has an empty name in answers. Its bindings are implied by the
queues, and are listed with the others.

A binding has no name. Its properties key identifies it among the bindings from one exchange to one destination:

    routing key    arguments       properties key
    orders         none            orders               percent-encoded as in a form: + is a space, %7E is ~
                   none            ~
    orders         {"a": 1}        orders~AVq9f1zFei3Z  and a hash of the arguments

In a path it is encoded once more, like every other name.

JSON has fewer types than AMQP: integers become `long`, fractions `double`, texts `longstr`; null is refused.

Messages: messages.py. Lists of queues: overview.py.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, quote_plus, unquote_plus

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from warren.amqp.types import Long
from warren.broker.auth.permissions import DEFAULT_EXCHANGE
from warren.broker.declarations.dispatch import Declarations
from warren.broker.declarations.errors import plain
from warren.broker.vhost import Client, Owner, Vhost
from warren.catalog import bindings, exchanges, queues
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow
from warren.catalog.rows import NAME_BYTES_MAX, canonical, to_json
from warren.management.listing import columns, listed, listed_whole, shown
from warren.management.requests import (
    AccessRule,
    HttpRefusal,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    access_of,
    bad_request,
    not_found,
    visible,
)

Item = dict[str, Any]
Row = TypeVar("Row", QueueRow, ExchangeRow)

_INT64: Final = range(-(1 << 63), 1 << 63)
_HASH_BYTES: Final = 9  # 12 characters; RabbitMQ has 32 bits
_LINE_CHARACTERS_MAX: Final = 80  # of a list of errors


# -- queues ------------------------------------------------------------------------------------------------------


def declare_queue(request: HttpRequest) -> HttpResponse:
    name, body = _new_name("queue", request.names["name"]), request.body
    _check_node(request)
    method = QueueDeclare(
        queue=name,
        durable=boolean(body, "durable"),
        auto_delete=boolean(body, "auto_delete"),
        arguments=_arguments(body),
    )
    is_new = _queue(request, name) is None
    _answer(request, method)
    return HttpResponse(None, 201 if is_new else 204)


def delete_queue(request: HttpRequest) -> HttpResponse:
    name = _existing(_queue(request, request.names["name"])).name
    _answer(
        request, QueueDelete(queue=name, if_unused=_flag(request, "if-unused"), if_empty=_flag(request, "if-empty"))
    )
    return HttpResponse(None, 204)


def purge_queue(request: HttpRequest) -> HttpResponse:
    _answer(request, QueuePurge(queue=_existing(_queue(request, request.names["name"])).name))
    return HttpResponse(None, 204)


def queue_action(request: HttpRequest) -> HttpResponse:
    """Synchronization of mirrors: there are none, so there is nothing to do."""
    require(request.body, "action")
    if request.body["action"] not in ("sync", "cancel_sync"):
        raise bad_request(["unknown", request.body["action"]])
    _existing(_queue(request, request.names["name"]))
    return HttpResponse(None, 204)


def queue_bindings(request: HttpRequest) -> Any:
    queue = _queue(request, request.names["name"])
    return _listed(request, [] if queue is None else _bindings(request, request.vhost, target=queue))


def _check_node(request: HttpRequest) -> None:
    node = request.body.get("node", request.broker.node)
    if node != request.broker.node:
        raise bad_request(f"Node {node} could not be contacted")


def _queue(request: HttpRequest, name: str) -> QueueRow | None:
    with request.broker.catalog.reading() as connection:
        return queues.get(connection, request.vhost.row.id, name)


# -- exchanges ---------------------------------------------------------------------------------------------------


def every_exchange(request: HttpRequest) -> Any:
    """Of all vhosts that the user sees."""
    return listed([item for vhost in visible(request.broker, request.user) for item in _items(vhost)], request.query)


def exchanges_of_vhost(request: HttpRequest) -> Any:
    return listed(_items(request.vhost), request.query)


def one_exchange(request: HttpRequest) -> Any:
    return columns(_exchange_item(request.vhost, _existing_exchange(request)), request.query)


def declare_exchange(request: HttpRequest) -> HttpResponse:
    name, body = exchange_name(request.names["name"]), request.body
    method = ExchangeDeclare(
        exchange=name and _new_name("exchange", name),
        type=_text(body, "type", "direct"),
        durable=boolean(body, "durable"),
        auto_delete=boolean(body, "auto_delete"),
        internal=boolean(body, "internal"),
        arguments=_arguments(body),
    )
    is_new = _exchange(request, method.exchange) is None
    _answer(request, method)
    return HttpResponse(None, 201 if is_new else 204)


def delete_exchange(request: HttpRequest) -> HttpResponse:
    name = _existing_exchange(request).name
    _answer(request, ExchangeDelete(exchange=name, if_unused=_flag(request, "if-unused")))
    return HttpResponse(None, 204)


def bindings_from_exchange(request: HttpRequest) -> Any:
    exchange = _exchange(request, exchange_name(request.names["name"]))
    return _listed(request, [] if exchange is None else _bindings(request, request.vhost, source=exchange))


def bindings_to_exchange(request: HttpRequest) -> Any:
    exchange = _exchange(request, exchange_name(request.names["name"]))
    return _listed(request, [] if exchange is None else _bindings(request, request.vhost, target=exchange))


def _existing_exchange(request: HttpRequest) -> ExchangeRow:
    return _existing(_exchange(request, exchange_name(request.names["name"])))


def _exchange(request: HttpRequest, name: str) -> ExchangeRow | None:
    with request.broker.catalog.reading() as connection:
        return exchanges.get(connection, request.vhost.row.id, name)


def _items(vhost: Vhost) -> list[Item]:
    with vhost.storage.catalog.reading() as connection:
        rows = exchanges.every(connection, vhost.row.id)
    return [_exchange_item(vhost, row) for row in rows]


def _exchange_item(vhost: Vhost, row: ExchangeRow) -> Item:
    policy = vhost.policies.of_exchange(row.name).policy
    return ({} if policy is None else {"policy": policy.name}) | {
        "arguments": shown(row.arguments),
        "auto_delete": row.auto_delete,
        "durable": row.durable,
        "internal": row.internal,
        "name": row.name,
        "type": row.type,
        "vhost": vhost.row.name,
    }


def exchange_name(part: str) -> str:
    """The name of an exchange in a path."""
    return "" if part == DEFAULT_EXCHANGE else part


# -- bindings ----------------------------------------------------------------------------------------------------


class _Binding(NamedTuple):
    """A binding with the names of its ends."""

    vhost: str
    source: str
    destination: str
    is_queue: bool
    routing_key: str
    arguments: Mapping[str, Any]

    @property
    def properties_key(self) -> str:
        return properties_key(self.routing_key, self.arguments)

    def item(self) -> Item:
        return {
            "source": self.source,
            "vhost": self.vhost,
            "destination": self.destination,
            "destination_type": "queue" if self.is_queue else "exchange",
            "routing_key": self.routing_key,
            "arguments": shown(self.arguments),
            "properties_key": self.properties_key,
        }


def every_binding(request: HttpRequest) -> Any:
    """Of all vhosts that the user sees."""
    found = [each for vhost in visible(request.broker, request.user) for each in _bindings(request, vhost)]
    return _listed(request, found)


def bindings_of_vhost(request: HttpRequest) -> Any:
    return _listed(request, _bindings(request, request.vhost))


def bindings_to_queue(request: HttpRequest) -> Any:
    return _listed(request, _between(request, is_queue=True))


def bindings_between_exchanges(request: HttpRequest) -> Any:
    return _listed(request, _between(request, is_queue=False))


def one_binding_to_queue(request: HttpRequest) -> Any:
    return columns(_one(request, is_queue=True).item(), request.query)


def one_binding_to_exchange(request: HttpRequest) -> Any:
    return columns(_one(request, is_queue=False).item(), request.query)


def bind_queue(request: HttpRequest) -> HttpResponse:
    source, target, key, arguments = _bound(request)
    _answer(request, QueueBind(queue=target, exchange=source, routing_key=key, arguments=arguments))
    return _created(request, key, arguments)


def bind_exchange(request: HttpRequest) -> HttpResponse:
    source, target, key, arguments = _bound(request)
    target = exchange_name(target)
    _answer(request, ExchangeBind(destination=target, source=source, routing_key=key, arguments=arguments))
    return _created(request, key, arguments)


def unbind_queue(request: HttpRequest) -> HttpResponse:
    found = _one(request, is_queue=True)
    queue, exchange = _unchanged(found.destination), _unchanged(found.source)
    key, arguments = found.routing_key, found.arguments
    _answer(request, QueueUnbind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments))
    return HttpResponse(None, 204)


def unbind_exchange(request: HttpRequest) -> HttpResponse:
    found = _one(request, is_queue=False)
    destination, source = _unchanged(found.destination), _unchanged(found.source)
    key, arguments = found.routing_key, found.arguments
    _answer(request, ExchangeUnbind(destination=destination, source=source, routing_key=key, arguments=arguments))
    return HttpResponse(None, 204)


def properties_key(routing_key: str, arguments: Mapping[str, Any]) -> str:
    text = quote_plus(routing_key).replace("~", "%7E")
    return f"{text}~{_hash(arguments)}" if arguments else text or "~"


def _hash(arguments: Mapping[str, Any]) -> str:
    """The same after a restart, and whatever the order of the arguments."""
    digest = sha256(canonical(to_json(arguments)).encode()).digest()
    return base64.urlsafe_b64encode(digest[:_HASH_BYTES]).decode() if arguments else ""


def _bound(request: HttpRequest) -> tuple[str, str, str, dict[str, Any]]:
    """Source, destination, routing key and arguments of a new binding."""
    names, body = request.names, request.body
    return exchange_name(names["source"]), names["destination"], _text(body, "routing_key", ""), _arguments(body)


def _created(request: HttpRequest, key: str, arguments: Mapping[str, Any]) -> HttpResponse:
    """The location is relative to the path of the request, as in RabbitMQ."""
    parts = plain(request.names["destination"]), properties_key(key, arguments)
    return HttpResponse(None, 201, {"location": "/".join(quote(part, safe="") for part in parts)})


def _one(request: HttpRequest, is_queue: bool) -> _Binding:
    """The binding in the path, also if its key was encoded only once."""
    key, _, hash_ = request.names["properties_key"].partition("~")
    key = unquote_plus(key)
    for each in _between(request, is_queue):
        if each.routing_key == key and _hash(each.arguments) == hash_:
            return each
    raise not_found()


def _between(request: HttpRequest, is_queue: bool) -> list[_Binding]:
    """The bindings from one exchange to one destination; none if one of them does not exist."""
    source = _exchange(request, exchange_name(request.names["source"]))
    name = request.names["destination"]
    target = _queue(request, name) if is_queue else _exchange(request, exchange_name(name))
    return [] if source is None or target is None else _bindings(request, request.vhost, source, target)


def _bindings(
    request: HttpRequest, vhost: Vhost, source: ExchangeRow | None = None, target: QueueRow | ExchangeRow | None = None
) -> list[_Binding]:
    """Of a vhost, or only those from `source` and those to `target`; by name. A binding of which an end is deleted at
    the same time may be missing."""
    queue = target if isinstance(target, QueueRow) else None
    exchange = target if isinstance(target, ExchangeRow) else None
    queue_rows = request.source.facts.rows().get(vhost.row.id, [])
    with request.broker.catalog.reading() as connection:
        rows = bindings.every(
            connection,
            vhost.row.id,
            source=None if source is None else source.id,
            queue=None if queue is None else queue.id,
            exchange=None if exchange is None else exchange.id,
        )
        exchange_names = {row.id: row.name for row in exchanges.every(connection, vhost.row.id)}
    queue_names = {row.id: row.name for row in queue_rows}
    found = []
    if exchange is None and (source is None or not source.name):
        implied = queue_rows if queue is None else [queue]
        found = [_Binding(vhost.row.name, "", row.name, True, row.name, {}) for row in implied]
    for row in rows:
        to_exchange = None if row.exchange_id is None else exchange_names.get(row.exchange_id)
        name = to_exchange if row.queue_id is None else queue_names.get(row.queue_id)
        source_name, is_queue = exchange_names.get(row.source_id), row.queue_id is not None
        if source_name is not None and name is not None:
            found.append(_Binding(vhost.row.name, source_name, name, is_queue, row.routing_key, row.arguments))
    return sorted(found, key=lambda each: (*each[:5], each.properties_key))


def _listed(request: HttpRequest, found: Iterable[_Binding]) -> Any:
    return listed_whole([each.item() for each in found], request.query)


# -- requests ----------------------------------------------------------------------------------------------------


def client_of(request: HttpRequest) -> Client:
    return Client(access_of(request.broker, request.user, request.vhost), Owner("management"))


def _answer(request: HttpRequest, method: Method) -> None:
    """Execute an AMQP method for the user of the request."""
    try:
        Declarations(request.vhost, request.broker.counts).answer(client_of(request), method)
    except PeerError as error:
        if error.code is ReplyCode.NOT_FOUND:
            raise HttpRefusal(404, "not_found", error.explanation) from error
        raise


def _existing(row: Row | None) -> Row:
    """404 if there is none."""
    if row is None:
        raise not_found()
    _unchanged(row.name)
    return row


def _unchanged(name: str) -> str:
    """The name, if a declaration uses it as it is: line ends are removed there. Only programs that embed the broker can
    declare such names."""
    if plain(name) != name:
        raise bad_request("the name has a line end: use the program that declared it")
    return name


def _new_name(kind: str, name: str) -> str:
    """The name of a queue or exchange to declare. Permissions cannot be checked for one that is too long."""
    name = plain(name)
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise bad_request(f"{kind} should be less than {NAME_BYTES_MAX} bytes, actually was {size}\n")
    if not name:
        raise bad_request(f"the name of the {kind} is empty")
    return name


def _flag(request: HttpRequest, name: str) -> bool:
    return request.query.get(name) == "true"


# -- JSON --------------------------------------------------------------------------------------------------------


def require(body: Mapping[str, Any], *names: str) -> None:
    """Refused in RabbitMQ's form if one of these members is missing."""
    missing = [f"{{key_missing,{name}}}" for name in names if name not in body]
    if missing:
        text = f"[{','.join(missing)}]"
        raise bad_request(text if len(text) <= _LINE_CHARACTERS_MAX else f"[{(',' + chr(10) + ' ').join(missing)}]")


def boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


def _text(body: Mapping[str, Any], name: str, default: str) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise bad_request(["not_string", name])
    return value


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    return table_of(body.get("arguments", {}), "arguments")


def table_of(value: Any, name: str) -> dict[str, Any]:
    """An AMQP table. An empty array is an empty table: some clients cannot tell them apart."""
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} must be a JSON object")
    return {utf8(key): _amqp(each) for key, each in value.items()}


def _amqp(value: Any) -> Any:
    """A JSON value, which is nested no deeper than `json_depth_max`."""
    match value:
        case None:
            raise bad_request("null_not_allowed")
        case bool() | float():
            return value
        case int() if value not in _INT64:
            raise bad_request(f"an integer has at most 64 bits: {str(value)[:40]}")
        case int():
            return Long(value)
        case str():
            return utf8(value)
        case list():
            return [_amqp(each) for each in value]
    return {utf8(key): _amqp(each) for key, each in value.items()}


def utf8(text: str) -> str:
    """Refused if a part of it is no character: JSON can spell one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad_request("a text is not valid Unicode") from error
    return text


_BETWEEN_QUEUE: Final = "/api/bindings/{vhost}/e/{source}/q/{destination}"
_BETWEEN_EXCHANGES: Final = "/api/bindings/{vhost}/e/{source}/e/{destination}"
_USER: Final = AccessRule.MANAGEMENT

ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute("/api/queues/{vhost}/{name}", "PUT", _USER, declare_queue, summary="declares: 201 new, 204 existed"),
    HttpRoute("/api/queues/{vhost}/{name}", "DELETE", _USER, delete_queue, summary="deletes; `if-empty`, `if-unused`"),
    HttpRoute("/api/queues/{vhost}/{name}/contents", "DELETE", _USER, purge_queue, summary="purges"),
    HttpRoute(
        "/api/queues/{vhost}/{name}/actions",
        "POST",
        AccessRule.ADMINISTRATOR,
        queue_action,
        summary="`sync`, `cancel_sync`: nothing to do",
    ),
    HttpRoute("/api/queues/{vhost}/{name}/bindings", "GET", _USER, queue_bindings, summary="bindings to it"),
    HttpRoute("/api/exchanges", "GET", _USER, every_exchange, summary="of all visible vhosts"),
    HttpRoute("/api/exchanges/{vhost}", "GET", _USER, exchanges_of_vhost, summary="of one vhost"),
    HttpRoute(
        "/api/exchanges/{vhost}/{name}",
        "GET",
        _USER,
        one_exchange,
        summary="one; `amq.default` is the default exchange",
    ),
    HttpRoute("/api/exchanges/{vhost}/{name}", "PUT", _USER, declare_exchange, summary="declares"),
    HttpRoute("/api/exchanges/{vhost}/{name}", "DELETE", _USER, delete_exchange, summary="deletes; `if-unused`"),
    HttpRoute(
        "/api/exchanges/{vhost}/{name}/bindings/source",
        "GET",
        _USER,
        bindings_from_exchange,
        summary="bindings from it",
    ),
    HttpRoute(
        "/api/exchanges/{vhost}/{name}/bindings/destination",
        "GET",
        _USER,
        bindings_to_exchange,
        summary="bindings to it",
    ),
    HttpRoute("/api/bindings", "GET", _USER, every_binding, summary="of all visible vhosts"),
    HttpRoute("/api/bindings/{vhost}", "GET", _USER, bindings_of_vhost, summary="of one vhost"),
    HttpRoute(_BETWEEN_QUEUE, "GET", _USER, bindings_to_queue, summary="between an exchange and a queue"),
    HttpRoute(_BETWEEN_QUEUE, "POST", _USER, bind_queue, summary="binds: 201, `Location`"),
    HttpRoute(f"{_BETWEEN_QUEUE}/{{properties_key}}", "GET", _USER, one_binding_to_queue, summary="one binding"),
    HttpRoute(f"{_BETWEEN_QUEUE}/{{properties_key}}", "DELETE", _USER, unbind_queue, summary="unbinds"),
    HttpRoute(_BETWEEN_EXCHANGES, "GET", _USER, bindings_between_exchanges, summary="between two exchanges"),
    HttpRoute(_BETWEEN_EXCHANGES, "POST", _USER, bind_exchange, summary="binds: 201, `Location`"),
    HttpRoute(f"{_BETWEEN_EXCHANGES}/{{properties_key}}", "GET", _USER, one_binding_to_exchange, summary="one binding"),
    HttpRoute(f"{_BETWEEN_EXCHANGES}/{{properties_key}}", "DELETE", _USER, unbind_exchange, summary="unbinds"),
)
