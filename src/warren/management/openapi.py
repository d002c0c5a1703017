"""The HTTP API as an OpenAPI 3.1 document, generated from the table of routes.

    HttpRoute ──▶ path, method, tag, summary, content type
    tables below ──▶ request body, query parameters, shape of the answer, statuses other than the usual

A route has an entry here if it has a body, a query or an answer of its own shape. A test compares the tables with the
routes; another sends requests generated from the document to a broker (tests/fuzz).

Not described: HEAD (wherever GET is) and OPTIONS. Answers have further members, as RabbitMQ's do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from warren.management.listing import PAGE_SIZE, PAGE_SIZE_MAX
from warren.management.requests import JSON, AccessRule, HttpRoute

Schema = dict[str, Any]
Key = tuple[str, str]  # method and path

PATH: Final = "/api/openapi.json"
_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_NAME: Final = re.compile(r"{(\w+)}")


def document(routes: Sequence[HttpRoute], version: str) -> Schema:
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Warren HTTP API", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR_SCHEMA, "Page": _PAGE_SCHEMA},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: HttpRoute) -> Schema:
    key = route.method, route.path
    operation = {
        "operationId": "_".join([route.method.lower(), *re.findall(r"[a-z]+", route.path)]),
        "summary": route.summary,
        "description": f"Tag: {route.rule.tag}.",
        "tags": [_group(route.path)],
        "x-tag": route.rule.tag,
        "security": [] if route.rule is AccessRule.ANY_USER else [{"basic": []}],
        "parameters": [*map(_path_parameter, _path_names(route.path)), *_query_parameters(key)],
        "responses": _responses(route),
    }
    if key in BODIES:
        content = {JSON: {"schema": BODIES[key]}}
        operation["requestBody"] = {"required": bool(BODIES[key].get("required")), "content": content}
    return operation


def _group(path: str) -> str:
    return path.removeprefix("/api").strip("/").partition("/")[0] or "api"


# -- schemas -----------------------------------------------------------------------------------------------------


def _object(required: Iterable[str] = (), /, **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return schema | ({"required": [*required]} if required else {})


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": [*values]}


_TEXT: Final[Schema] = {"type": "string"}
_SHORT: Final[Schema] = {"type": "string", "maxLength": 255}
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_INTEGER: Final[Schema] = {"type": "integer"}
_ITEM: Final[Schema] = {"type": "object"}
_LIST: Final = _array(_ITEM)
_TABLE: Final[Schema] = {"type": "object", "description": "an AMQP table; null is not a value"}
_TAGS: Final[Schema] = {"anyOf": [_array(_TEXT), _TEXT], "description": "a list, or a text with commas"}
_LIMIT_VALUE: Final = _object(["value"], value={"type": "integer", "description": "below 0: no limit"})

_ERROR_SCHEMA: Final[Schema] = _object(
    ["error", "reason"],
    error=_TEXT,
    reason={"anyOf": [_TEXT, {"type": "array"}], "description": 'a text, or as RabbitMQ has it: ["not_boolean", 5]'},
)
_PAGE_SCHEMA: Final[Schema] = _object(
    ["filtered_count", "item_count", "items", "page", "page_count", "page_size", "total_count"],
    filtered_count=_INTEGER,
    item_count=_INTEGER,
    items=_LIST,
    page=_INTEGER,
    page_count=_INTEGER,
    page_size=_INTEGER,
    total_count=_INTEGER,
)
_DESCRIPTION: Final = (
    "The API of a Warren broker, in the shape of RabbitMQ's management API. A name in a path is percent-encoded: `%2F` "
    "is the vhost `/`. `x-tag` is the tag that a user needs; an administrator may call every route."
)


# -- request bodies ----------------------------------------------------------------------------------------------

_BIND: Final = _object(routing_key=_SHORT, arguments=_TABLE)
_PERMISSION: Final = _object(["configure", "write", "read"], configure=_TEXT, write=_TEXT, read=_TEXT)
_TOPIC_PERMISSION: Final = _object(["exchange", "write", "read"], exchange=_TEXT, write=_TEXT, read=_TEXT)
_APPLY_TO: Final[dict[str, Schema]] = {"apply-to": _one_of("queues", "exchanges", "all")}
_POLICY: Final = _object(
    ["pattern", "definition"],
    pattern={"type": "string", "description": "a regular expression for names"},
    definition={"type": "object", "minProperties": 1},
    priority={"type": "number", "default": 0},
    **_APPLY_TO,
)
_PROPERTIES: Final = _object(
    **dict.fromkeys(("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type"), _SHORT),
    **dict.fromkeys(("user_id", "app_id", "cluster_id"), _SHORT),
    expiration={"type": "string", "pattern": "^[0-9]{1,9}$", "description": "milliseconds"},
    headers=_TABLE,
    delivery_mode={"type": "integer", "enum": [1, 2]},
    priority={"type": "integer", "minimum": 0, "maximum": 255},
    timestamp={"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1},
)
_SECTIONS: Final = ("users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters")
_DEFINITIONS: Final = _object(
    **dict.fromkeys((*_SECTIONS, "policies", "queues", "exchanges", "bindings"), _LIST), rabbit_version=_TEXT
)
_SIZE: Final[Schema] = {"type": ["string", "integer"], "description": "bytes, or with a unit: 2GB"}

BODIES: Final[Mapping[Key, Schema]] = {
    ("PUT", "/api/cluster-name"): _object(["name"], name={"type": "string", "minLength": 1}),
    ("PUT", "/api/queues/{vhost}/{name}"): _object(
        durable=_BOOLEAN, auto_delete=_BOOLEAN, arguments=_TABLE, node=_TEXT
    ),
    ("POST", "/api/queues/{vhost}/{name}/actions"): _object(["action"], action=_one_of("sync", "cancel_sync")),
    ("PUT", "/api/exchanges/{vhost}/{name}"): _object(
        type={"type": "string", "default": "direct", "examples": ["direct", "fanout", "topic", "headers"]},
        durable=_BOOLEAN,
        auto_delete=_BOOLEAN,
        internal=_BOOLEAN,
        arguments=_TABLE,
    ),
    ("POST", "/api/bindings/{vhost}/e/{source}/q/{destination}"): _BIND,
    ("POST", "/api/bindings/{vhost}/e/{source}/e/{destination}"): _BIND,
    ("POST", "/api/queues/{vhost}/{name}/get"): _object(
        ["ackmode", "count", "encoding"],
        ackmode=_one_of("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"),
        count={"type": "integer", "description": "below 0: all"},
        encoding=_one_of("auto", "base64"),
        truncate={"type": "integer", "minimum": 0, "description": "bytes of a payload"},
    ),
    ("POST", "/api/exchanges/{vhost}/{name}/publish"): _object(
        ["routing_key", "properties", "payload", "payload_encoding"],
        routing_key=_SHORT,
        properties=_PROPERTIES,
        payload=_TEXT,
        payload_encoding=_one_of("string", "base64"),
    ),
    ("POST", "/api/users/bulk-delete"): _object(["users"], users=_array(_TEXT)),
    ("PUT", "/api/users/{user}"): _object(
        ["tags"],
        password=_TEXT,
        password_hash=_TEXT,
        hashing_algorithm=_TEXT,
        tags=_TAGS,
        limits=_object(**{"max-connections": _INTEGER, "max-channels": _INTEGER}),
    ),
    ("PUT", "/api/user-limits/{user}/{limit}"): _LIMIT_VALUE,
    ("PUT", "/api/vhosts/{vhost}"): _object(description=_TEXT, tags=_TAGS, tracing=_BOOLEAN, default_queue_type=_TEXT),
    ("PUT", "/api/permissions/{vhost}/{user}"): _PERMISSION,
    ("PUT", "/api/topic-permissions/{vhost}/{user}"): _TOPIC_PERMISSION,
    ("PUT", "/api/topic-permissions/{vhost}/{user}/{exchange}"): _TOPIC_PERMISSION,
    ("PUT", "/api/parameters/{component}/{vhost}/{name}"): _object(
        ["value"], value=_object(**{"max-connections": _INTEGER, "max-queues": _INTEGER})
    ),
    ("PUT", "/api/global-parameters/{name}"): _object(["value"], value={"description": "any JSON"}),
    ("PUT", "/api/policies/{vhost}/{name}"): _POLICY,
    ("PUT", "/api/operator-policies/{vhost}/{name}"): _POLICY,
    ("PUT", "/api/vhost-limits/{vhost}/{limit}"): _LIMIT_VALUE,
    ("POST", "/api/definitions"): _DEFINITIONS,
    ("POST", "/api/definitions/{vhost}"): _DEFINITIONS,
    ("PUT", "/api/warren/memory-limit"): _object(
        relative={"type": "number", "minimum": 0, "maximum": 1}, absolute=_SIZE
    ),
    ("PUT", "/api/warren/disk-limit"): _object(
        mem_relative={"type": "number", "minimum": 0, "maximum": 10}, absolute=_SIZE
    ),
    ("PUT", "/api/warren/log-level"): _object(["level"], level=_TEXT, category=_TEXT),
    ("POST", "/api/warren/authenticate"): _object(["username", "password"], username=_TEXT, password=_TEXT),
}
# Routes that write, and read nothing of their body.
NO_BODY: Final[frozenset[Key]] = frozenset(
    {
        ("POST", "/api/vhosts/{vhost}/start/{node}"),
        *(("POST", f"/api/warren/{action}") for action in ("stop", "stop-app", "start-app", "rotate-logs")),
    }
)


# -- paths and queries -------------------------------------------------------------------------------------------

_PATH_NAMES: Final = {
    "channel": "name of a channel: that of its connection, and its number in brackets",
    "component": "`vhost-limits`, `policy` or `operator_policy`",
    "destination": "a queue or an exchange",
    "limit": "`max-connections`; also `max-channels` of a user, `max-queues` of a vhost",
    "node": "the name of this server, as in `/api/overview`",
    "port": "a TCP port",
    "properties_key": "of a binding, as lists of bindings have it; encoded once more",
    "protocol": "`amqp`, `http`, `http/prometheus`",
    "source": "an exchange; `amq.default` is the default exchange",
    "vhost": "a vhost: `%2F` is `/`",
}
_COLUMNS: Final = {"columns": {"type": "string", "description": "names with commas; a dot selects a member"}}
_SORT: Final = {"sort": {"type": "string", "description": "a column"}, "sort_reverse": _BOOLEAN} | _COLUMNS
_PAGE: Final = {
    "page": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    "page_size": {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE},
    "name": {"type": "string", "description": "a part of the name; with a page only"},
    "use_regex": {"type": "boolean", "description": "`name` is a regular expression"},
} | _SORT
_SECONDS: Final = {"type": "integer", "minimum": 1}
_SAMPLES: Final = {
    f"{prefix}_{suffix}": {**_SECONDS, "description": f"samples of {what}; both parameters are needed"}
    for prefix, what in (("msg_rates", "counters"), ("lengths", "numbers of messages"))
    for suffix in ("age", "incr")
}

# Lists with pages, lists without, and single objects, by path.
_PAGED: Final = frozenset(
    {
        *("/api/vhosts", "/api/queues", "/api/queues/{vhost}", "/api/exchanges", "/api/exchanges/{vhost}"),
        *("/api/connections", "/api/connections/username/{user}", "/api/connections/{name}/channels"),
        *("/api/vhosts/{vhost}/connections", "/api/channels", "/api/vhosts/{vhost}/channels"),
    }
)
_SORTED: Final = frozenset(
    {
        *("/api/bindings", "/api/bindings/{vhost}", "/api/bindings/{vhost}/e/{source}/q/{destination}"),
        *("/api/bindings/{vhost}/e/{source}/e/{destination}", "/api/queues/{vhost}/{name}/bindings"),
        *(f"/api/exchanges/{{vhost}}/{{name}}/bindings/{end}" for end in ("source", "destination")),
        *("/api/nodes", "/api/parameters", "/api/parameters/{component}", "/api/parameters/{component}/{vhost}"),
        *("/api/global-parameters", "/api/policies", "/api/policies/{vhost}"),
        *("/api/operator-policies", "/api/operator-policies/{vhost}"),
        *("/api/consumers", "/api/consumers/{vhost}", "/api/users", "/api/users/without-permissions"),
        *("/api/user-limits", "/api/user-limits/{user}", "/api/vhost-limits", "/api/vhost-limits/{name}"),
        *("/api/users/{user}/permissions", "/api/users/{user}/topic-permissions"),
        *("/api/vhosts/{vhost}/permissions", "/api/vhosts/{vhost}/topic-permissions"),
        *("/api/permissions", "/api/topic-permissions", "/api/topic-permissions/{vhost}/{user}"),
        "/api/topic-permissions/{vhost}/{user}/{exchange}",
    }
)
_SINGLE: Final = frozenset(
    {
        *("/api/overview", "/api/nodes/{node}", "/api/vhosts/{vhost}", "/api/queues/{vhost}/{name}"),
        *("/api/exchanges/{vhost}/{name}", "/api/connections/{name}", "/api/channels/{channel}", "/api/users/{user}"),
        *(f"/api/bindings/{{vhost}}/e/{{source}}/{end}/{{destination}}/{{properties_key}}" for end in "qe"),
        *("/api/permissions/{vhost}/{user}", "/api/parameters/{component}/{vhost}/{name}"),
        *("/api/global-parameters/{name}", "/api/policies/{vhost}/{name}", "/api/operator-policies/{vhost}/{name}"),
    }
)
_SAMPLED: Final = frozenset({"/api/overview", "/api/queues", "/api/queues/{vhost}", "/api/queues/{vhost}/{name}"})
_FLAGS: Final[Mapping[Key, Schema]] = {
    ("DELETE", "/api/queues/{vhost}/{name}"): {"if-empty": _BOOLEAN, "if-unused": _BOOLEAN},
    ("DELETE", "/api/exchanges/{vhost}/{name}"): {"if-unused": _BOOLEAN},
    ("GET", "/api/definitions"): {"download": _TEXT},
    ("GET", "/api/definitions/{vhost}"): {"download": _TEXT},
}


def described() -> set[Key]:
    """Every route that one of the tables names."""
    read = {("GET", path) for path in _PAGED | _SORTED | _SINGLE | _SAMPLED | _CONTENTS.keys()}
    return read | BODIES.keys() | NO_BODY | _FLAGS.keys() | _DONE.keys() | _ANSWERS.keys()


def _path_names(path: str) -> list[str]:
    return _NAME.findall(path)


def _path_parameter(name: str) -> Schema:
    parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return parameter | ({"description": _PATH_NAMES[name]} if name in _PATH_NAMES else {})


def _query_parameters(key: Key) -> list[Schema]:
    return [{"name": name, "in": "query", "schema": schema} for name, schema in _query(key).items()]


def _query(key: Key) -> Schema:
    method, path = key
    if key in _FLAGS or method != "GET":
        return _FLAGS.get(key, {})
    samples = _SAMPLES if path in _SAMPLED else {}
    if path in _PAGED:
        return _PAGE | samples
    if path in _SORTED:
        return _SORT
    return _COLUMNS | samples if path in _SINGLE else {}


# -- answers -----------------------------------------------------------------------------------------------------

_STATUS: Final = _object(["status"], status=_one_of("ok", "failed"), reason=_TEXT)
_CREATED: Final = (201, 204)  # new; replaced, or the same
_USUAL: Final = {"GET": (200,), "PUT": _CREATED, "POST": (200,), "DELETE": (204,)}
# Statuses other than the usual of the method.
_DONE: Final[Mapping[Key, tuple[int, ...]]] = {
    ("PUT", "/api/cluster-name"): (204,),
    ("PUT", "/api/user-limits/{user}/{limit}"): (204,),
    ("PUT", "/api/vhost-limits/{vhost}/{limit}"): (204,),
    ("POST", "/api/queues/{vhost}/{name}/actions"): (204,),
    ("POST", "/api/bindings/{vhost}/e/{source}/q/{destination}"): (201,),
    ("POST", "/api/bindings/{vhost}/e/{source}/e/{destination}"): (201,),
    ("POST", "/api/users/bulk-delete"): (204,),
    ("POST", "/api/definitions"): (204, 303),
    ("POST", "/api/definitions/{vhost}"): (204, 303),
    ("POST", "/api/vhosts/{vhost}/start/{node}"): (204,),
    **{("PUT", f"/api/warren/{what}"): (200,) for what in ("memory-limit", "disk-limit", "log-level")},
}
# Answers of GET that are neither lists nor single objects.
_CONTENTS: Final[Mapping[str, Schema]] = {
    "/": _TEXT,
    "/api": _array(_object(["path", "method", "tag"], path=_TEXT, method=_TEXT, tag=_TEXT)),
    "/api/version": _TEXT,
    "/api/cluster-name": _object(["name"], name=_TEXT),
    "/api/whoami": _object(["name", "tags"], name=_TEXT, tags=_array(_TEXT)),
    "/api/extensions": _LIST,
    "/api/feature-flags": _LIST,
    "/api/auth/attempts/{node}": _LIST,
    "/api/auth/attempts/{node}/source": _LIST,
}
_ANSWERS: Final[Mapping[Key, Schema]] = {
    ("POST", "/api/exchanges/{vhost}/{name}/publish"): _object(["routed"], routed=_BOOLEAN),
    ("POST", "/api/queues/{vhost}/{name}/get"): _array(
        _object(
            ["payload", "payload_encoding", "payload_bytes", "exchange", "routing_key", "redelivered", "message_count"],
            payload=_TEXT,
            payload_encoding=_one_of("string", "base64"),
            payload_bytes=_INTEGER,
            exchange=_TEXT,
            routing_key=_TEXT,
            redelivered=_BOOLEAN,
            message_count=_INTEGER,
        )
    ),
    ("PUT", "/api/warren/memory-limit"): _object(["limit_bytes"], limit_bytes=_INTEGER),
    ("PUT", "/api/warren/disk-limit"): _object(["limit_bytes"], limit_bytes=_INTEGER),
    ("POST", "/api/warren/authenticate"): _object(["name", "tags"], name=_TEXT, tags=_array(_TEXT)),
}


def is_check(path: str) -> bool:
    """A route that answers 503 by design."""
    return path.startswith(("/api/health/checks/", "/api/aliveness-test/"))


def _responses(route: HttpRoute) -> Schema:
    key = route.method, route.path
    done = _DONE.get(key, _USUAL[route.method])
    responses = {str(status): _response(status, route) for status in done}
    for status in _refusals(route):
        schema = _STATUS if status == 503 and is_check(route.path) else _ERROR
        # A request without a login gets a 401 without a body; one with a wrong login, with an Error.
        content = {} if status in (401, 406) else {"content": {JSON: {"schema": schema}}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, **content}
    return responses


def _response(status: int, route: HttpRoute) -> Schema:
    response: Schema = {"description": HTTPStatus(status).phrase}
    if status != 200:
        return response
    return response | {"content": {route.content_type: {"schema": _content(route)}}}


def _content(route: HttpRoute) -> Schema:
    path = route.path
    if route.method != "GET":
        return _ANSWERS.get((route.method, path), _ITEM)
    if is_check(path):
        return _STATUS
    if path in _PAGED:
        return {"anyOf": [_LIST, {"$ref": "#/components/schemas/Page"}]}
    return _LIST if path in _SORTED else _CONTENTS.get(path, _ITEM)


def _refusals(route: HttpRoute) -> list[int]:
    is_read, names = route.method == "GET", _path_names(route.path)
    found = [406]
    if not is_read or _query((route.method, route.path)) or {"port", "unit"} & set(names):
        found.append(400)
    if route.rule is not AccessRule.ANY_USER:
        found.append(401)
    if names:
        found.append(404)
    if not is_read:
        found += [408, 413, 415, 503]
    elif is_check(route.path):
        found.append(503)
    return sorted(found)
