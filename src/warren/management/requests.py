"""Settings of the management. Documented in docs/operating.md; a test compares.

Answers that say no, in RabbitMQ's shape: {"error": …, "reason": …}.

    401  not logged in (with a challenge), or not permitted (without: another password would not help)
    404  no such thing        405, 406, 415  asked for in a way that is not offered        408, 413  too slow, too long

RabbitMQ spells it `not_authorized` where the login failed and `not_authorised` everywhere else; clients know both.

Who may ask for what: RabbitMQ's tags, and which vhosts somebody sees.

    management      may log in here, and sees the vhosts in which something is permitted to it
    policymaker     the same, and policies                       monitoring    the same, and the server itself
    administrator   everything, in every vhost

A tag is not a permission: in a vhost that somebody sees, what is done to queues and exchanges is asked of the table of
`broker.permissions` besides, as for AMQP.

The route table's shape: (path, method, who may, handler), and how a request finds its row.

    /api/queues/%2F/a%2Fb        split at the slashes that were sent, then each part decoded: vhost "/", queue "a/b"

A handler is a plain function that may block: it gets what was `HttpRequest` and returns what is answered in JSON, or raises a
refusal. It never sees a request that its row does not permit.

What comes after the head of a request: read with a limit and a clock, then understood as JSON.

    pieces ──counted as they come──▶ bytes ──brackets counted, strings passed over──▶ json.loads ──▶ an object

Always true: no more than the limit is held, whatever Content-Length says; nothing that is nested too deeply reaches the
parser, which would call itself for each level; compressed bodies are not unpacked, but refused.
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
from warren.broker.auth.permissions import Access, AccessRefused, access_to
from warren.broker.errors import UnknownQueue
from warren.broker.vhost import Vhost
from warren.broker.vhosts import UnknownVhost
from warren.catalog import permissions
from warren.catalog.users import UserRow
from warren.management.broker_facts import BrokerView, Listener, QueueFacts


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    header_bytes_max: int = 16 << 10  # the head of a request
    header_seconds: float = 10.0  # a client has so long to send one
    body_bytes_max: int = 1 << 20
    body_seconds: float = 10.0  # … and so long for what follows it
    json_depth_max: int = 32
    connections_max: int = 256  # at one address; further requests are answered 503
    reader_seconds: float = 30.0  # an answer of which nothing was read for so long is given up
    idle_seconds: int = 30  # a connection that asks nothing is closed
    threads: int = 4  # that answer requests
    stop_seconds: int = 5  # requests that are under way have so long when the server stops


CHALLENGE = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}


class HttpRefusal(Refused):
    """A status other than 200. An empty error has no body."""

    def __init__(
        self, status: int, error: str = "", reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason or f"HTTP status {status}")
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, str] | None:
        return {"error": self.error, "reason": self.reason} if self.error else None


def not_logged_in() -> HttpRefusal:
    return HttpRefusal(401, headers=CHALLENGE)


def login_failed() -> HttpRefusal:
    return HttpRefusal(401, "not_authorized", "Login failed", CHALLENGE)


def not_permitted(reason: str) -> HttpRefusal:
    return HttpRefusal(401, "not_authorised", reason)


def not_found() -> HttpRefusal:
    return HttpRefusal(404, "Object Not Found", "Not Found")


def bad_request(reason: str, error: str = "bad_request") -> HttpRefusal:
    return HttpRefusal(400, error, reason)


def is_not_permitted(error: WarrenError) -> bool:
    return isinstance(error, AccessRefused) or (isinstance(error, PeerError) and error.code is ReplyCode.ACCESS_REFUSED)


def refusal_of(error: WarrenError) -> HttpRefusal:
    """What the broker refuses, as HTTP says it."""
    match error:
        case HttpRefusal():
            return error
        case UnknownVhost() | UnknownQueue() | PeerError(code=ReplyCode.NOT_FOUND):
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

# Whoever could open the socket of this machine: it is of this user, and mode 0600.
SOCKET_USER: Final = UserRow(UserId(0), "local socket", "", "", (ADMINISTRATOR,))


class AccessRule(Enum):
    """The value: who may, and what the others are told."""

    ANY_USER = (), ""
    MANAGEMENT = TAGS, "Not management user"
    MONITORING = (ADMINISTRATOR, MONITORING), "Not monitor user"
    POLICYMAKER = (ADMINISTRATOR, POLICYMAKER), "Not policymaker user"
    ADMINISTRATOR = (ADMINISTRATOR,), "Not administrator user"

    def check(self, user: UserRow) -> None:
        """Refused if none of its tags will do. Whoever may not even log in is told that first."""
        for who in (AccessRule.MANAGEMENT, self):
            tags, reason = who.value
            if tags and not set(tags) & set(user.tags):
                raise not_permitted(reason)


def is_administrator(user: UserRow) -> bool:
    return ADMINISTRATOR in user.tags


def sees_server(user: UserRow) -> bool:
    return bool({ADMINISTRATOR, MONITORING} & set(user.tags))


def visible(running: BrokerView, user: UserRow) -> list[Vhost]:
    """The vhosts whose contents somebody sees."""
    vhosts = running.vhosts.every()
    if is_administrator(user):
        return vhosts
    with running.catalog.reading() as connection:
        permitted = {each.vhost_id for each in permissions.every(connection, user.id)}
    return [open_vhost for open_vhost in vhosts if open_vhost.row.id in permitted]


def entered(running: BrokerView, user: UserRow, name: str) -> Vhost:
    """The vhost of this name; one that is not there is told as such, one that is not theirs as not permitted."""
    found = next((open_vhost for open_vhost in running.vhosts.every() if open_vhost.row.name == name), None)
    if found is None:
        raise not_found()
    if not is_administrator(user) and not _is_permitted(running, user, found.row.id):
        raise not_permitted("User not authorised to access virtual host")
    return found


def access_of(running: BrokerView, user: UserRow, open_vhost: Vhost) -> Access:
    """What it may do there, for `authorize`. The socket's user may do everything."""
    if user is SOCKET_USER:
        return Access(user.name, open_vhost.row.name, ".*", ".*", ".*", {})
    return access_to(running.catalog, user, open_vhost.row)


def _is_permitted(running: BrokerView, user: UserRow, vhost: VhostId) -> bool:
    with running.catalog.reading() as connection:
        return permissions.get(connection, user.id, vhost) is not None


@dataclass(frozen=True, slots=True)
class FactsSource:
    """What handlers read from."""

    running: BrokerView
    facts: QueueFacts
    listeners: Callable[[], Sequence[Listener]]  # all of them, our own too


@dataclass(frozen=True, slots=True)
class HttpRequest:
    source: FactsSource
    user: UserRow = SOCKET_USER
    names: Mapping[str, str] = field(default_factory=dict)  # from the path
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    open_vhost: Vhost | None = None  # the vhost, where the path names one that this user sees

    @property
    def running(self) -> BrokerView:
        return self.source.running

    @property
    def vhost(self) -> Vhost:
        assert self.open_vhost is not None, "only paths with a {vhost} have one"
        return self.open_vhost


class HttpResponse(NamedTuple):
    """Where 200 is not enough."""

    content: Any
    status: int = 200


Handler = Callable[[HttpRequest], Any]
JSON = "application/json"


class HttpRoute(NamedTuple):
    path: str
    method: str
    who: AccessRule
    handler: Handler
    content_type: str = JSON  # of another type, the handler returns the text itself


class RouteMatch(NamedTuple):
    by_method: Mapping[str, HttpRoute]
    names: Mapping[str, str]


class HttpRoutes:
    """Rows by their paths."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._by_length: dict[int, dict[tuple[str, ...], dict[str, HttpRoute]]] = {}
        for route in routes:
            parts = tuple(route.path.strip("/").split("/"))
            self._by_length.setdefault(len(parts), {}).setdefault(parts, {})[route.method] = route

    def find(self, raw_path: bytes) -> RouteMatch:
        """Refused if nothing has this path. One slash at the end is no matter."""
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
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError as error:
        raise not_found() from error


_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*+"?', re.DOTALL)  # also one that does not end: no byte is looked at twice
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEPS)


def has_body(request: Request) -> bool:
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def read_body(request: Request, settings: ManagementSettings) -> bytes:
    if not has_body(request):
        return b""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise HttpRefusal(415, "unsupported_encoding", "Compressed bodies are not read")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and (len(told) > 18 or int(told) > settings.body_bytes_max):
        raise _too_long(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > settings.body_bytes_max:
                    raise _too_long(settings)
    except TimeoutError as error:
        raise HttpRefusal(408, "request_timeout", "The body did not come in time") from error
    except ClientDisconnect as error:
        raise bad_request("The body did not come to its end") from error
    return bytes(body)


def json_object(body: bytes, depth_max: int) -> dict[str, Any]:
    """Empty, if there is no body."""
    if not body:
        return {}
    if depth_of(body) > depth_max:
        raise bad_request(f"JSON is nested deeper than {depth_max}")
    try:
        told = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request("not_json") from error
    if not isinstance(told, dict):
        raise bad_request("not_json")
    return told


def depth_of(body: bytes) -> int:
    """How many brackets are open at most."""
    brackets = _STRING.sub(b"", body).translate(None, delete=_NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")


def _too_long(settings: ManagementSettings) -> HttpRefusal:
    return HttpRefusal(413, "payload_too_large", f"A body has at most {settings.body_bytes_max} bytes")
