"""HTTP requests: settings, refusals, access rules, the route table, and reading of bodies.

Refusals have RabbitMQ's shape: {"error": …, "reason": …}.

    401  not logged in (with a challenge), or not permitted (without: another password would not help)
    404  not found        405, 406, 415  method, type or encoding not offered        408, 413  too slow, too long

RabbitMQ spells it `not_authorized` where the login failed and `not_authorised` everywhere else; clients know both.

Access rules are RabbitMQ's user tags, and decide which vhosts a user sees.

    management      may log in here, and sees the vhosts in which it has a permission
    policymaker     the same, and policies                       monitoring    the same, and the server itself
    administrator   everything, in every vhost

A tag is not a permission: operations on queues and exchanges of a visible vhost are also checked against the table of
`broker.permissions`, as for AMQP.

A route is (path, method, access rule, handler).

    /api/queues/%2F/a%2Fb        split at the raw slashes, then each part decoded: vhost "/", queue "a/b"

A handler is a plain function that may block: it receives an `HttpRequest` and returns the content of the answer, or
raises a refusal. It is only called for requests that its route permits.

A body is read with a size limit and a time limit, then parsed as JSON.

    pieces ──counted on arrival──▶ bytes ──brackets counted, strings skipped──▶ json.loads ──▶ an object in UTF-8

Invariants of bodies: no more than the limit is buffered, whatever Content-Length is; a body that is nested too deeply
does not reach the parser, which is recursive; compressed bodies are refused.

The settings are documented in docs/configuration.md; a test compares.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Any, Final, NamedTuple, Never
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request

from warren.amqp.errors import PeerError, ReplyCode, reply_text
from warren.base.errors import Refused, WarrenError
from warren.base.ids import UserId, VhostId
from warren.broker.auth.administration import UnknownUser
from warren.broker.auth.permissions import Access, AccessRefused, access_to
from warren.broker.errors import UnknownQueue, VhostDeleted
from warren.broker.vhost import Vhost
from warren.broker.vhosts import UnknownVhost
from warren.catalog import permissions
from warren.catalog.users import UserRow
from warren.management.broker_facts import BrokerView, Listener, QueueFacts
from warren.management.statistics import Statistics


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    header_bytes_max: int = 16 << 10  # the head of a request
    header_seconds: float = 10.0  # time limit for sending it
    body_bytes_max: int = 1 << 20
    body_seconds: float = 10.0  # time limit for sending the body
    json_depth_max: int = 32
    connections_max: int = 256  # at one address; further requests are answered 503
    reader_seconds: float = 30.0  # a client that reads nothing for this long is disconnected
    idle_seconds: int = 30  # an idle connection is closed
    threads: int = 4  # that answer requests
    stop_seconds: int = 5  # time limit for running requests when the server stops


CHALLENGE = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


class HttpRefusal(Refused):
    """A status other than 200. An empty error has no body."""

    def __init__(
        self, status: int, error: str = "", reason: str | list[Any] = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """`reason`: a text, or what RabbitMQ has there instead: ["not_boolean", 5]."""
        super().__init__(str(reason) if reason else f"HTTP status {status}")
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any] | None:
        return {"error": self.error, "reason": self.reason} if self.error else None


def not_logged_in() -> HttpRefusal:
    return HttpRefusal(401, headers=CHALLENGE)


def login_failed() -> HttpRefusal:
    return HttpRefusal(401, "not_authorized", "Login failed", CHALLENGE)


def not_permitted(reason: str) -> HttpRefusal:
    return HttpRefusal(401, "not_authorised", reason)


def not_found() -> HttpRefusal:
    return HttpRefusal(404, "Object Not Found", "Not Found")


def vhost_not_found() -> HttpRefusal:
    """For PUT and POST."""
    return HttpRefusal(404, "not_found", "vhost_not_found")


def bad_request(reason: str | list[Any], error: str = "bad_request") -> HttpRefusal:
    return HttpRefusal(400, error, reason)


def is_not_permitted(error: WarrenError) -> bool:
    return isinstance(error, AccessRefused) or (isinstance(error, PeerError) and error.code is ReplyCode.ACCESS_REFUSED)


def refusal_of(error: WarrenError) -> HttpRefusal:
    """The HTTP refusal for an error of the broker."""
    match error:
        case HttpRefusal():
            return error
        case UnknownVhost() | VhostDeleted() | UnknownUser() | UnknownQueue() | PeerError(code=ReplyCode.NOT_FOUND):
            return not_found()
        case AccessRefused():
            return not_permitted(reply_text(ReplyCode.ACCESS_REFUSED, error.what))
        case PeerError(code=ReplyCode.ACCESS_REFUSED):
            return not_permitted(reply_text(error.code, error.explanation))
        case PeerError():
            return bad_request(error.explanation)
        case Refused():
            return bad_request(error.what)
    return HttpRefusal(503, "unavailable", error.what)


ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = (ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT)

# The user of requests at the local socket, which has mode 0600.
SOCKET_USER: Final = UserRow(UserId(0), "local socket", "", "", (ADMINISTRATOR,))


class AccessRule(Enum):
    """The value: the tags that permit access, and the reason that other users get."""

    ANY_USER = (), ""
    MANAGEMENT = TAGS, "Not management user"
    MONITORING = (ADMINISTRATOR, MONITORING), "Not monitor user"
    POLICYMAKER = (ADMINISTRATOR, POLICYMAKER), "User not authorised to access object"
    ADMINISTRATOR = (ADMINISTRATOR,), "Not administrator user"

    @property
    def tag(self) -> str:
        """The name of the rule in the list of routes (`/api`)."""
        return "anybody" if self is AccessRule.ANY_USER else self.name.lower()

    def check(self, user: UserRow) -> None:
        """Refused if the user has none of the tags. Missing access to the management is reported first."""
        for rule in (AccessRule.MANAGEMENT, self):
            tags, reason = rule.value
            if tags and not set(tags) & set(user.tags):
                raise not_permitted(reason)


def is_administrator(user: UserRow) -> bool:
    return ADMINISTRATOR in user.tags


def sees_server(user: UserRow) -> bool:
    return bool({ADMINISTRATOR, MONITORING} & set(user.tags))


def visible(broker: BrokerView, user: UserRow) -> list[Vhost]:
    """The vhosts whose contents the user sees."""
    vhosts = broker.vhosts.every()
    if is_administrator(user):
        return vhosts
    with broker.catalog.reading() as connection:
        permitted = {each.vhost_id for each in permissions.every(connection, user.id)}
    return [open_vhost for open_vhost in vhosts if open_vhost.row.id in permitted]


def entered(broker: BrokerView, user: UserRow, name: str, method: str = "GET") -> Vhost:
    """The vhost of this name; 404 if it does not exist, 401 if the user may not access it."""
    found = next((open_vhost for open_vhost in broker.vhosts.every() if open_vhost.row.name == name), None)
    if found is None:
        raise vhost_not_found() if method in ("PUT", "POST") else not_found()
    if not is_administrator(user) and not _is_permitted(broker, user, found.row.id):
        raise not_permitted("User not authorised to access virtual host")
    return found


def access_of(broker: BrokerView, user: UserRow, open_vhost: Vhost) -> Access:
    """The user's permissions in the vhost, for `authorize`. The user of the local socket may do everything."""
    if user is SOCKET_USER:
        return Access(user.name, open_vhost.row.name, ".*", ".*", ".*", {})
    return access_to(broker.catalog, user, open_vhost.row)


def _is_permitted(broker: BrokerView, user: UserRow, vhost: VhostId) -> bool:
    with broker.catalog.reading() as connection:
        return permissions.get(connection, user.id, vhost) is not None


@dataclass(frozen=True, slots=True)
class FactsSource:
    """The data sources of handlers."""

    broker: BrokerView
    facts: QueueFacts
    listeners: Callable[[], Sequence[Listener]]  # of broker and management
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class HttpRequest:
    source: FactsSource
    user: UserRow = SOCKET_USER
    names: Mapping[str, str] = field(default_factory=dict)  # from the path
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    open_vhost: Vhost | None = None  # the vhost, where the path names one that this user sees
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    raw_body: bytes = b""  # of routes that parse it themselves

    @property
    def broker(self) -> BrokerView:
        return self.source.broker

    @property
    def vhost(self) -> Vhost:
        assert self.open_vhost is not None, "only paths with a {vhost} have one"
        return self.open_vhost


class HttpResponse(NamedTuple):
    """An answer with a status other than 200. Without content (None) it has no body."""

    content: Any
    status: int = 200
    headers: Mapping[str, str] = {}


Handler = Callable[[HttpRequest], Any]
JSON = "application/json"


class HttpRoute(NamedTuple):
    path: str
    method: str
    rule: AccessRule
    handler: Handler
    content_type: str = JSON  # for other types the handler returns the text
    opens_vhost: bool = True  # a {vhost} in the path must exist, and be open to the user
    body_bytes_max: int | None = None  # None: as in the settings
    parses_body: bool = False  # the handler gets `raw_body`: it may be another type than JSON
    summary: str = ""  # for docs/http.md and /api/openapi.json


class RouteMatch(NamedTuple):
    by_method: Mapping[str, HttpRoute]
    names: Mapping[str, str]


class HttpRoutes:
    """The route table, by path."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._by_length: dict[int, dict[tuple[str, ...], dict[str, HttpRoute]]] = {}
        for route in routes:
            parts = tuple(route.path.strip("/").split("/"))
            self._by_length.setdefault(len(parts), {}).setdefault(parts, {})[route.method] = route

    def find(self, raw_path: bytes) -> RouteMatch:
        """404 if no route has this path. One trailing slash is ignored."""
        parts = [_decoded(part) for part in raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")]
        for template, by_method in self._by_length.get(len(parts), {}).items():
            if all(_is_name(want) or want == part for want, part in zip(template, parts, strict=True)):
                pairs = zip(template, parts, strict=True)
                return RouteMatch(by_method, {want[1:-1]: part for want, part in pairs if _is_name(want)})
        raise not_found()


def _is_name(part: str) -> bool:
    return part.startswith("{")


def _decoded(part: bytes) -> str:
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeDecodeError as error:
        raise not_found() from error
    if "\0" in text:  # in no name, and SQL databases refuse it
        raise not_found()
    return text


_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*+"?', re.DOTALL)  # unterminated ones too: every byte is scanned once
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # one half of a pair, or the first of both
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEPS)


def has_body(request: Request) -> bool:
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def read_body(request: Request, settings: ManagementSettings, bytes_max: int | None = None) -> bytes:
    bytes_max = settings.body_bytes_max if bytes_max is None else bytes_max
    if not has_body(request):
        return b""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise HttpRefusal(415, "unsupported_encoding", "Compressed bodies are not read")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > bytes_max):
        raise _too_long(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > bytes_max:
                    raise _too_long(bytes_max)
    except TimeoutError as error:
        raise HttpRefusal(408, "request_timeout", "The body did not come in time") from error
    except ClientDisconnect as error:
        raise bad_request("The body did not come to its end") from error
    return bytes(body)


def json_object(body: bytes, depth_max: int) -> dict[str, Any]:
    """The JSON object; empty if there is no body."""
    if not body:
        return {}
    if depth_of(body) > depth_max:
        raise bad_request(f"JSON is nested deeper than {depth_max}")
    try:
        parsed = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request("not_json") from error
    if _SURROGATE.search(body):
        _check_characters(parsed)
    if not isinstance(parsed, dict):
        raise bad_request("not_json")
    return parsed


def depth_of(body: bytes) -> int:
    """The maximum nesting of brackets."""
    brackets = _STRING.sub(b"", body).translate(None, delete=_NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _check_characters(parsed: Any) -> None:
    """Refused if a text has half of a surrogate pair: no name has one, and neither SQL nor AMQP can store it."""
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise bad_request("a text is not valid Unicode") from error


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")


def _too_long(bytes_max: int) -> HttpRefusal:
    return HttpRefusal(413, "payload_too_large", f"A body has at most {bytes_max} bytes")
