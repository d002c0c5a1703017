"""Definitions: users, vhosts, permissions, parameters, policies, exchanges, queues and bindings as one JSON document.

    GET /api/definitions[/{vhost}]     rows of one moment ──▶ document, in RabbitMQ's fields
    POST                               document ──▶ `Definitions`, checked ──▶ one change of the catalog, all or nothing
    at the start                       load_definitions: a file, or the *.json of a directory, in one change

A document of one vhost (`/{vhost}`) has no users, vhosts, permissions and global parameters, and its objects name no
vhost. The order of the document does not matter. Sections that are missing are empty; unknown ones are ignored, as in
RabbitMQ. A POST takes JSON, or a form with the document in the field `file`, as browsers upload it.

    user with                  import                                   export
    password_hash              kept as it is                            with its hash
    password                   hashed by `password_hashing`             –
    neither                    a present password stays                 a scrypt hash is left out: RabbitMQ has none;
                                                                        the user is named in `warnings` and in the log

Differences from RabbitMQ: it imports what comes before the first fault, leaves existing queues and exchanges as they
are even if they are declared differently, and ignores bindings of which an end is missing; here each of these refuses
the whole document. Refusals name the object; the codes are RabbitMQ's where it has one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, Final, NamedTuple, TypeVar

from warren.amqp.errors import PeerError
from warren.base.errors import Refused, WarrenError
from warren.broker.auth.administration import AccessChange, Credentials, Patterns, UnknownUser, checked_limit
from warren.broker.auth.passwords import Hashing
from warren.broker.auth.permissions import check_patterns
from warren.broker.declarations.bindings import BindingRequest
from warren.broker.declarations.definitions import QueueLimitExceeded, TopologyChange
from warren.broker.policies import (
    LIMITS,
    POLICY,
    VHOST_LIMITS,
    InvalidParameter,
    check_limits,
    check_policy,
)
from warren.broker.vhosts import UnknownVhost
from warren.catalog import bindings, exchanges, parameters, permissions, queues, users, vhosts
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.parameters import GLOBAL, ParameterRow
from warren.catalog.queues import QueueRow
from warren.catalog.users import UserRow
from warren.catalog.vhosts import VhostRow
from warren.files.protocol import Files, join
from warren.management.access import credentials_of, tags_of
from warren.management.broker_facts import BrokerView
from warren.management.listing import shown
from warren.management.overview import reported_version
from warren.management.requests import (
    AccessRule,
    HttpRefusal,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    bad_request,
    json_object,
)
from warren.management.topology import table_of, utf8

_LOG = logging.getLogger(__name__)
BODY_BYTES_MAX: Final = 64 << 20
DEPTH_MAX: Final = 40  # of a document: arguments may be nested 32 deep
_NOT_JSON: Final = "failed_to_parse_json"
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9._@+-]{1,255}")
_BOUNDARY: Final = re.compile(r'boundary="?([^";]{1,70})"?', re.IGNORECASE)
_FIELD_NAME: Final = re.compile(rb'[;\s]name="([^"]*)"', re.IGNORECASE)

Document = Mapping[str, Any]
Parsed = TypeVar("Parsed")


# -- documents -------------------------------------------------------------------------------------------------------


class UserDefinition(NamedTuple):
    name: str
    credentials: Credentials | None  # None: as before
    tags: list[str]
    limits: Mapping[str, int] | None  # None: as before


class VhostDefinition(NamedTuple):
    name: str
    description: str | None  # None: as before
    tags: list[str]


class PermissionDefinition(NamedTuple):
    user: str
    vhost: str
    patterns: Patterns


class TopicPermissionDefinition(NamedTuple):
    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ParameterDefinition(NamedTuple):
    vhost: str
    component: str
    name: str
    value: Any


class ExchangeDefinition(NamedTuple):
    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]


class QueueDefinition(NamedTuple):
    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Definitions:
    """A document whose members are valid, each by itself."""

    users: Sequence[UserDefinition] = ()
    vhosts: Sequence[VhostDefinition] = ()
    permissions: Sequence[PermissionDefinition] = ()
    topic_permissions: Sequence[TopicPermissionDefinition] = ()
    global_parameters: Sequence[tuple[str, Any]] = ()
    parameters: Sequence[ParameterDefinition] = ()  # and policies
    exchanges: Sequence[ExchangeDefinition] = ()
    queues: Sequence[QueueDefinition] = ()
    bindings: Sequence[tuple[str, BindingRequest]] = ()


def parse(document: Document, credentials: Callable[[Document], Credentials], vhost: str | None = None) -> Definitions:
    """`vhost`: of all objects; only what belongs to a vhost is read then."""

    def read(section: str, kind: str, parse_one: Callable[[Document], Parsed]) -> list[Parsed]:
        return [_parse_one(each, kind, parse_one) for each in _section(document, section, kind, vhost)]

    of_vhosts = Definitions(
        parameters=[*read("parameters", "parameter", _parameter), *read("policies", "policy", _policy)],
        exchanges=read("exchanges", "exchange", _exchange),
        queues=read("queues", "queue", _queue),
        bindings=read("bindings", "binding", _binding),
    )
    if vhost is not None:
        return of_vhosts
    return Definitions(
        read("users", "user", lambda item: _user(item, credentials)),
        read("vhosts", "vhost", _vhost),
        read("permissions", "permission", _permission),
        read("topic_permissions", "topic permission", _topic_permission),
        read("global_parameters", "global parameter", lambda item: (_text(item, "name"), _value(item))),
        of_vhosts.parameters,
        of_vhosts.exchanges,
        of_vhosts.queues,
        of_vhosts.bindings,
    )


def _section(document: Document, section: str, kind: str, vhost: str | None) -> Iterator[Document]:
    items = document.get(section, [])
    if not isinstance(items, list):
        raise bad_request(f"{section} must be a list")
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise bad_request(f"{kind} {number} must be an object")
        yield item if vhost is None else {**item, "vhost": vhost}


def _parse_one(item: Document, kind: str, parse_one: Callable[[Document], Parsed]) -> Parsed:
    try:
        return parse_one(item)
    except InvalidParameter as error:
        names = [str(item.get(key)) for key in ("vhost", "component", "name") if key in item]
        raise bad_request(f"{escape(error.what, quote=False)} ({'/'.join(names)})") from error
    except HttpRefusal as error:
        if isinstance(error.reason, list):
            raise
        raise bad_request(f"{error.reason} ({_shown_object(item, kind)})") from error
    except Refused as error:
        raise bad_request(f"{error.what} ({_shown_object(item, kind)})") from error


def _shown_object(item: Document, kind: str) -> str:
    shown_keys = ("name", "user", "source", "destination", "routing_key", "exchange", "vhost")
    names = [f"{key} {str(item[key])[:255]!r}" for key in shown_keys if key in item]
    return f"{kind}: {', '.join(names)}" if names else f"{kind} without a name"


def _user(item: Document, credentials: Callable[[Document], Credentials]) -> UserDefinition:
    if "tags" not in item and item.get("administrator") is not True:
        raise bad_request("tags_not_present")
    limits = item.get("limits")
    if limits is not None and not isinstance(limits, Mapping):
        raise bad_request("limits must be an object")
    has_password = "password" in item or "password_hash" in item
    return UserDefinition(
        _text(item, "name"),
        credentials(item) if has_password else None,
        tags_of(item["tags"]) if "tags" in item else ["administrator"],
        None if limits is None else {name: checked_limit(name, value) for name, value in limits.items()},
    )


def _vhost(item: Document) -> VhostDefinition:
    """`metadata`: where rabbitmqctl writes description and tags."""
    metadata = item.get("metadata")
    item = {**(metadata if isinstance(metadata, dict) else {}), **item}
    has_either = "description" in item or "tags" in item
    description = _text(item, "description", "") if has_either else None
    return VhostDefinition(_text(item, "name"), description, tags_of(item.get("tags", "")))


def _permission(item: Document) -> PermissionDefinition:
    patterns = Patterns(*(_text(item, name) for name in Patterns._fields))
    check_patterns(*patterns)
    return PermissionDefinition(_text(item, "user"), _vhost_name(item), patterns)


def _topic_permission(item: Document) -> TopicPermissionDefinition:
    write, read = _text(item, "write"), _text(item, "read")
    check_patterns(write, read)
    return TopicPermissionDefinition(_text(item, "user"), _vhost_name(item), _text(item, "exchange"), write, read)


def _parameter(item: Document) -> ParameterDefinition:
    component, name, value = _text(item, "component"), _text(item, "name"), _value(item)
    match component:
        case "policy":
            value = check_policy(value)
        case "operator_policy":
            value = check_policy(value, is_operator=True)
        case "vhost-limits" if name == LIMITS:
            value = check_limits(value)
        case "vhost-limits":
            raise InvalidParameter(f"{VHOST_LIMITS} has one parameter, {LIMITS}")
        case _:
            raise InvalidParameter(f"component {component} not found")
    return ParameterDefinition(_vhost_name(item), component, name, value)


def _policy(item: Document) -> ParameterDefinition:
    return ParameterDefinition(_vhost_name(item), POLICY, _text(item, "name"), check_policy(item))


def _exchange(item: Document) -> ExchangeDefinition:
    flags = _flag(item, "durable"), _flag(item, "auto_delete", False), _flag(item, "internal", False)
    arguments = table_of(item.get("arguments", {}), "arguments")
    return ExchangeDefinition(_vhost_name(item), _text(item, "name"), _text(item, "type"), *flags, arguments)


def _queue(item: Document) -> QueueDefinition:
    flags, arguments = (_flag(item, "durable"), _flag(item, "auto_delete", False)), item.get("arguments", {})
    return QueueDefinition(_vhost_name(item), _text(item, "name"), *flags, table_of(arguments, "arguments"))


def _binding(item: Document) -> tuple[str, BindingRequest]:
    type_ = _text(item, "destination_type")
    if type_ not in ("queue", "exchange"):
        raise bad_request("destination_type must be queue or exchange")
    ends = _text(item, "source"), _text(item, "destination"), type_ == "queue"
    arguments = table_of(item.get("arguments", {}), "arguments")
    return _vhost_name(item), BindingRequest(*ends, _text(item, "routing_key", ""), arguments)


def _vhost_name(item: Document) -> str:
    if "vhost" not in item:
        raise bad_request(["no_such_vhost", "undefined"])
    return _text(item, "vhost")


def _text(item: Document, name: str, default: str | None = None) -> str:
    value = item.get(name, default)
    if not isinstance(value, str):
        raise bad_request(f"{name} must be text" if name in item else f"{name} is missing")
    if "\0" in value:
        raise bad_request(f"{name} has a zero byte")
    return utf8(value)


def _flag(item: Document, name: str, default: bool | None = None) -> bool:
    value = item.get(name, default)
    if not isinstance(value, bool):
        raise bad_request(f"{name} must be true or false" if name in item else f"{name} is missing")
    return value


def _value(item: Document) -> Any:
    if "value" not in item:
        raise bad_request("value is missing")
    return item["value"]


# -- import ----------------------------------------------------------------------------------------------------------


def import_definitions(broker: BrokerView, document: Document, vhost: str | None = None, by: str = "") -> None:
    """All of it, or none; durable and in effect on return."""
    definitions = parse(document, lambda item: credentials_of(item, broker), vhost)
    check_kind = broker.vhosts.check_kind

    def change(change: AccessChange) -> None:
        _apply_access(change, definitions)
        _apply_topology(TopologyChange(change, check_kind), definitions)

    with _codes():
        broker.administration.change(change)
    counted = {name: len(getattr(definitions, name)) for name in Definitions.__slots__}
    facts = {"by": by, **({} if vhost is None else {"vhost": vhost}), **counted}
    _LOG.info("definitions imported", extra={"facts": facts})


def _apply_access(change: AccessChange, definitions: Definitions) -> None:
    for vhost in definitions.vhosts:
        if vhost.description is not None:
            change.put_vhost(vhost.name, vhost.description, vhost.tags)
        elif vhosts.get(change.writer.connection, vhost.name) is None:
            change.put_vhost(vhost.name, "", [])
    for user in definitions.users:
        change.put_user(*user)
    for permission in definitions.permissions:
        change.put_permissions(*permission)
    for topic in definitions.topic_permissions:
        change.put_topic_permissions(*topic)
    for name, value in definitions.global_parameters:
        parameters.put(change.writer, None, GLOBAL, name, value)


def _apply_topology(change: TopologyChange, definitions: Definitions) -> None:
    for parameter in definitions.parameters:
        change.put_parameter(*parameter)
    for exchange in definitions.exchanges:
        change.declare_exchange(*exchange)
    for queue in definitions.queues:
        change.declare_queue(*queue)
    for vhost, binding in definitions.bindings:
        change.bind(vhost, binding)
    change.finish()


@contextmanager
def _codes() -> Iterator[None]:
    """Refusals as RabbitMQ answers them."""
    try:
        yield
    except UnknownVhost as error:
        raise bad_request(["no_such_vhost", error.name]) from error
    except UnknownUser as error:
        raise bad_request(["no_such_user", error.name]) from error
    except QueueLimitExceeded as error:
        raise bad_request(["vhost_limit_exceeded", error.what]) from error
    except PeerError as error:
        raise bad_request(error.explanation) from error


def load_definitions(broker: BrokerView, path: str) -> None:
    """At the start: the file, or all *.json of the directory as one document. Refused with the name of the file."""
    files = broker.environment.files
    merged: dict[str, list[Any]] = {}
    names = _document_files(files, path)
    for name in names:
        try:
            document = json_object(_read(files, name), DEPTH_MAX)
        except WarrenError as error:
            raise Refused(f"definitions of {name} cannot be read: {error.what}", "check load_definitions") from error
        for section, items in document.items():
            if isinstance(items, list):
                merged.setdefault(section, []).extend(items)
    try:
        import_definitions(broker, merged, by=path)
    except Refused as error:
        where = path if len(names) == 1 else f"{path} ({', '.join(names)})"
        raise Refused(f"definitions of {where} cannot be imported: {error.what}", "correct the object") from error


def _document_files(files: Files, path: str) -> list[str]:
    if not files.exists(path):
        raise Refused(f"there are no definitions at {path}", "correct load_definitions, or leave it out")
    if not files.stat(path).is_directory:
        return [path]
    return [join(path, name) for name in sorted(files.list(path)) if name.endswith(".json")]


def _read(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        size_bytes = file.size()
        if size_bytes > BODY_BYTES_MAX:
            raise Refused(f"it has {size_bytes} bytes, at most {BODY_BYTES_MAX} are read")
        return file.read_at(0, size_bytes)
    finally:
        file.close()


# -- export ----------------------------------------------------------------------------------------------------------


class _VhostRows(NamedTuple):
    vhost: VhostRow
    exchanges: list[ExchangeRow]
    queues: list[QueueRow]
    bindings: list[BindingRow]
    parameters: list[ParameterRow]


def export_definitions(broker: BrokerView) -> dict[str, Any]:
    """Of one moment."""
    with broker.catalog.reading() as connection:
        of_vhosts = [
            _VhostRows(
                row,
                exchanges.every(connection, row.id),
                queues.every(connection, row.id),
                bindings.every(connection, row.id),
                parameters.every(connection, row.id),
            )
            for row in vhosts.every(connection)
        ]
        user_rows, globals_ = users.every(connection), parameters.every(connection, None)
        permitted, topics = permissions.every(connection), permissions.every_topic(connection)
    names = {each.vhost.id: each.vhost.name for each in of_vhosts}
    user_names = {row.id: row.name for row in user_rows}
    version = reported_version(broker)
    document: dict[str, Any] = {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": broker.settings.product,
        "product_version": version,
        "users": [_user_item(row) for row in user_rows],
        "vhosts": [_vhost_item(each.vhost) for each in of_vhosts],
        "permissions": [
            {"user": user_names[row.user_id], "vhost": names[row.vhost_id]}
            | {"configure": row.configure, "write": row.write, "read": row.read}
            for row in permitted
        ],
        "topic_permissions": [
            {"user": user_names[row.user_id], "vhost": names[row.vhost_id]}
            | {"exchange": row.exchange, "write": row.write, "read": row.read}
            for row in topics
        ],
        "global_parameters": [{"name": row.name, "value": row.value} for row in globals_],
        **{section: [] for section in ("parameters", "policies", "queues", "exchanges", "bindings")},
    }
    for each in of_vhosts:
        for section, items in _vhost_items(each).items():
            document[section] += [{**item, "vhost": each.vhost.name} for item in items]
    if without_hash := [row.name for row in user_rows if _has_scrypt_hash(row)]:
        document["warnings"] = [f"user {name!r} is exported without its scrypt hash" for name in without_hash]
        _LOG.warning("users exported without their hash", extra={"facts": {"users": ",".join(without_hash)}})
    return document


def _vhost_items(rows: _VhostRows) -> dict[str, list[dict[str, Any]]]:
    """Without the name of the vhost, except in parameters and policies. Exclusive queues belong to a connection."""
    every_exchange = {row.id: row for row in rows.exchanges}
    every_queue = {row.id: row for row in rows.queues if not row.exclusive}
    bound = []
    for row in rows.bindings:
        source = every_exchange[row.source_id]
        to_exchange = None if row.exchange_id is None else every_exchange[row.exchange_id]
        target = to_exchange if row.queue_id is None else every_queue.get(row.queue_id)
        if target is not None:
            bound.append(
                {"source": source.name, "destination": target.name}
                | {"destination_type": "queue" if isinstance(target, QueueRow) else "exchange"}
                | {"routing_key": row.routing_key, "arguments": shown(row.arguments)}
            )
    return {
        "parameters": [_parameter_item(row, rows.vhost) for row in rows.parameters if row.component != POLICY],
        "policies": [_policy_item(row, rows.vhost) for row in rows.parameters if row.component == POLICY],
        "queues": [_queue_item(row) for row in every_queue.values()],
        "exchanges": [_exchange_item(row) for row in every_exchange.values() if _is_exported(row)],
        "bindings": bound,
    }


def _is_exported(row: ExchangeRow) -> bool:
    return bool(row.name) and not row.name.startswith("amq.")


def _has_scrypt_hash(row: UserRow) -> bool:
    return row.hashing_algorithm == Hashing.SCRYPT.value and bool(row.password_hash)


def _user_item(row: UserRow) -> dict[str, Any]:
    item = {"name": row.name, "password_hash": row.password_hash, "hashing_algorithm": row.hashing_algorithm}
    if _has_scrypt_hash(row):
        item = {"name": row.name, "hashing_algorithm": Hashing.SHA256.value}
    return {**item, "tags": list(row.tags), "limits": dict(row.limits)}


def _vhost_item(row: VhostRow) -> dict[str, Any]:
    """RabbitMQ exports the name only, and imports all of it."""
    described = {"description": row.description, "tags": list(row.tags)} if row.description or row.tags else {}
    return {"name": row.name, **described}


def _parameter_item(row: ParameterRow, vhost: VhostRow) -> dict[str, Any]:
    return {"value": row.value, "vhost": vhost.name, "component": row.component, "name": row.name}


def _policy_item(row: ParameterRow, vhost: VhostRow) -> dict[str, Any]:
    value = {key: row.value[key] for key in ("pattern", "apply-to", "definition", "priority")}
    return {"vhost": vhost.name, "name": row.name, **value}


def _queue_item(row: QueueRow) -> dict[str, Any]:
    flags = {"durable": row.durable, "auto_delete": row.auto_delete}
    return {"name": row.name, **flags, "arguments": shown(row.arguments)}


def _exchange_item(row: ExchangeRow) -> dict[str, Any]:
    flags = {"durable": row.durable, "auto_delete": row.auto_delete, "internal": row.internal}
    return {"name": row.name, "type": row.type, **flags, "arguments": shown(row.arguments)}


# -- requests --------------------------------------------------------------------------------------------------------


def get_definitions(request: HttpRequest) -> Any:
    return HttpResponse(export_definitions(request.broker), headers=_download(request))


def get_vhost_definitions(request: HttpRequest) -> Any:
    broker = request.broker
    with broker.catalog.reading() as connection:
        row = vhosts.get(connection, request.names["vhost"])
        if row is None:
            raise bad_request("vhost_not_found")
        found = _vhost_items(
            _VhostRows(
                row,
                exchanges.every(connection, row.id),
                queues.every(connection, row.id),
                bindings.every(connection, row.id),
                parameters.every(connection, row.id),
            )
        )
    return HttpResponse({"rabbit_version": reported_version(broker), **found}, headers=_download(request))


def post_definitions(request: HttpRequest) -> Any:
    """For a vhost, where the path names one."""
    document, redirect = _document(request)
    vhost = None if request.open_vhost is None else request.vhost.row.name
    import_definitions(request.broker, document, vhost, request.user.name)
    return HttpResponse(None, 303, {"location": redirect}) if redirect else HttpResponse(None, 204)


def _document(request: HttpRequest) -> tuple[Document, str]:
    """The document, and the page that a form asks for as answer."""
    content_type = request.headers.get("content-type", "")
    if not content_type.strip().lower().startswith("multipart/form-data"):
        return request.body or _json(request.raw_body), ""
    fields = form_fields(content_type, request.raw_body)
    redirect = fields.get("redirect", b"").decode(errors="replace")
    if not redirect.isprintable() or not redirect.isascii():
        raise bad_request("redirect must be printable ASCII")
    return _json(fields.get("file", b"unknown")), redirect


def _json(raw: bytes) -> Document:
    try:
        return json_object(raw, DEPTH_MAX)
    except HttpRefusal as error:
        raise bad_request(_NOT_JSON if error.reason == "not_json" else error.reason) from error


def form_fields(content_type: str, body: bytes) -> dict[str, bytes]:
    """The fields of a form by name (multipart/form-data, RFC 7578)."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise bad_request("multipart/form-data without a boundary")
    fields = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + found[1].encode())[1:]:
        head, separator, content = part.partition(b"\r\n\r\n")
        name = _FIELD_NAME.search(head)
        if separator and name is not None:
            fields[name[1].decode(errors="replace")] = content
    return fields


def _download(request: HttpRequest) -> dict[str, str]:
    """A browser saves the answer under this name."""
    name = request.query.get("download", "")
    return {"content-disposition": f"attachment; filename={name}"} if _FILE_NAME.fullmatch(name) else {}


def _import_route(path: str, summary: str) -> HttpRoute:
    rule, handler = AccessRule.ADMINISTRATOR, post_definitions
    return HttpRoute(path, "POST", rule, handler, body_bytes_max=BODY_BYTES_MAX, parses_body=True, summary=summary)


ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute(
        "/api/definitions",
        "GET",
        AccessRule.ADMINISTRATOR,
        get_definitions,
        summary="users, vhosts, permissions, parameters, policies, exchanges, queues, bindings; `download`: file name",
    ),
    HttpRoute(
        "/api/definitions/{vhost}",
        "GET",
        AccessRule.ADMINISTRATOR,
        get_vhost_definitions,
        opens_vhost=False,
        summary="objects of one vhost",
    ),
    _import_route("/api/definitions", "import them: all or nothing; JSON, or a form with the field `file`"),
    _import_route("/api/definitions/{vhost}", "import objects of one vhost"),
)
