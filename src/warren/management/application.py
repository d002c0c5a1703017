"""The API as an ASGI application: match the route, authenticate, read the body, run the handler in a thread.

    raw path ──▶ route ──▶ 404        method ──▶ 405, 501        login ──▶ 401        Accept ──▶ 406
             ──▶ body ──▶ 408, 413, 415        handler, in a worker thread ──▶ JSON, or its refusal

The order is RabbitMQ's: a path that does not exist is answered with 404 without a login.

Paths are matched in their raw form, because `%2F` is the vhost `/` and not a separator; hence a route table of its own
instead of Starlette's.

Invariants
* Nothing that blocks runs in the event loop, not even encoding an answer as JSON.
* A handler that fails is a 500 without details for the client, and a log line with them for the operator.
* No CORS: pages of other sites cannot read anything.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from email.utils import formatdate
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from warren.base.errors import WarrenError
from warren.catalog.users import UserRow
from warren.management.requests import (
    JSON,
    SOCKET_USER,
    AccessRule,
    FactsSource,
    HttpRefusal,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    HttpRoutes,
    ManagementSettings,
    RouteMatch,
    entered,
    has_body,
    json_object,
    login_failed,
    not_logged_in,
    read_body,
    refusal_of,
)
from warren.server.authentication import HTTP_BASIC, Login, LoginRefused

_LOG = logging.getLogger(__name__)
_KNOWN_METHODS: Final = ("GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "PATCH")
_LOGIN_CHARACTERS_MAX: Final = 4096
_NOWHERE: Final = "unknown"  # address of a client that has disconnected: never that of a machine
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "vary": "accept, accept-encoding, origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

Result = TypeVar("Result")


class Application:
    """An ASGI application. With `is_local` every client is an administrator."""

    def __init__(
        self,
        source: FactsSource,
        routes: Sequence[HttpRoute],
        settings: ManagementSettings,
        executor: Executor,
        is_local: bool = False,
    ) -> None:
        self._source = source
        self._routes = HttpRoutes(routes)
        self._settings = settings
        self._executor = executor
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "lifespan and websockets are off"
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
        except WarrenError as error:
            response = self._refused(refusal_of(error))
        except Exception:
            _LOG.exception("request failed", extra={"facts": {"path": scope["path"][:200]}})
            response = self._refused(HttpRefusal(500, "internal_error", "See the log of the server"))
        if response.status_code >= 400 and has_body(request):
            response.headers["connection"] = "close"  # the rest of the body is not read
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        found = self._routes.find(request.scope["raw_path"])
        route = _route(found, request.method)
        if route is None:
            return self._response(200, b"", {"allow": _allowed(found)})
        user = await self._user(request, route.rule)
        if not _accepts(request.headers.get("accept", "*/*"), route.content_type):
            raise HttpRefusal(406)
        body = await read_body(request, self._settings, route.body_bytes_max)
        query = dict(request.query_params)
        received = request.headers
        content, status, headers = await self._run(
            lambda: self._handled(route, user, found.names, query, body, received)
        )
        return self._response(status, content, headers, is_head=request.method == "HEAD")

    def _handled(
        self,
        route: HttpRoute,
        user: UserRow,
        names: Mapping[str, str],
        query: Mapping[str, str],
        body: bytes,
        received: Mapping[str, str],
    ) -> HttpResponse:
        """In a worker thread. The content of the answer is bytes. `received`: the headers of the request."""
        broker = self._source.broker
        opens_vhost = "vhost" in names and route.opens_vhost
        open_vhost = entered(broker, user, names["vhost"], route.method) if opens_vhost else None
        is_json = route.method != "GET" and not route.parses_body
        parsed = json_object(body, self._settings.json_depth_max) if is_json else {}
        raw = body if route.parses_body else b""
        answer = route.handler(HttpRequest(self._source, user, names, query, parsed, open_vhost, received, raw))
        content, status, headers = answer if isinstance(answer, HttpResponse) else HttpResponse(answer)
        if content is None:
            return HttpResponse(b"", status, headers)
        encoded = _encoded(content) if route.content_type == JSON else content.encode()
        return HttpResponse(encoded, status, {"content-type": route.content_type, **headers})

    async def _user(self, request: Request, rule: AccessRule) -> UserRow:
        if self._is_local or rule is AccessRule.ANY_USER:
            return SOCKET_USER
        authorization = request.headers.get("authorization")
        if authorization is None:
            raise not_logged_in()
        login = _login(authorization)
        peer = request.client.host if request.client is not None else _NOWHERE
        try:
            user = await self._run(lambda: self._source.broker.users.check(login, peer))
        except LoginRefused as error:
            await asyncio.sleep(error.delay_seconds)
            raise login_failed() from error
        rule.check(user)
        return user

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _refused(self, refusal: HttpRefusal) -> Response:
        if refusal.body is None:
            return self._response(refusal.status, b"", refusal.headers)
        headers = {"content-type": JSON, **refusal.headers}
        return self._response(refusal.status, _encoded(refusal.body), headers)

    def _response(self, status: int, content: bytes, headers: Mapping[str, str], is_head: bool = False) -> Response:
        now = self._source.broker.environment.clock.wall_ns() / 1e9
        headers = {**_HEADERS, "date": formatdate(now, usegmt=True), "content-length": str(len(content)), **headers}
        return Response(b"" if is_head else content, status, headers)


def _route(found: RouteMatch, method: str) -> HttpRoute | None:
    """The route of a method; None for OPTIONS."""
    if method not in _KNOWN_METHODS:
        raise HttpRefusal(501)
    if method == "OPTIONS":
        return None
    route = found.by_method.get("GET" if method == "HEAD" else method)
    if route is None:
        raise HttpRefusal(405, headers={"allow": _allowed(found)})
    return route


def _allowed(found: RouteMatch) -> str:
    methods = [*found.by_method, "OPTIONS"]
    return ", ".join(["HEAD", *methods] if "GET" in methods else methods)


def _login(authorization: str) -> Login:
    """A login by HTTP Basic; any other scheme is a failed login."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic" or len(credentials) > _LOGIN_CHARACTERS_MAX:
        raise login_failed()
    try:
        name, colon, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise login_failed() from error
    if not colon:
        raise login_failed()
    return Login(name, password, HTTP_BASIC)


def _accepts(accept: str, content_type: str) -> bool:
    """Whether the client accepts a type; weights are ignored, as in RabbitMQ."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    wanted = content_type.partition(";")[0]
    return not kinds.isdisjoint((wanted, f"{wanted.partition('/')[0]}/*", "*/*"))


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
