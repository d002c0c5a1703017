"""The API as an application: a request is matched, its user known, its body read, and its handler run in a thread.

    raw path ──▶ route ──▶ 404        method ──▶ 405, 501        login ──▶ 401        Accept ──▶ 406
             ──▶ body ──▶ 408, 413, 415        handler, in a thread of ours ──▶ JSON, or what it refuses

The order is RabbitMQ's: whoever asks for what does not exist learns that without a login, as there.

Paths are matched as they were sent, since `%2F` is a vhost and no slash; so the table is our own, not Starlette's.

Always true: nothing that blocks is done in the loop, not even making JSON of an answer; what a handler does wrong is a
500 without details for the client, and a line with them for the operator. No CORS: pages of other sites read nothing.
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
from warren.server.authentication import Login, LoginRefused

_LOG = logging.getLogger(__name__)
_KNOWN_METHODS: Final = ("GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "PATCH")
_LOGIN_CHARACTERS_MAX: Final = 4096
_NOWHERE: Final = "unknown"  # the address of a client that has gone already: no machine's, and never this one's
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
    """Is an ASGI application. With `is_local` whoever can connect is an administrator."""

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
        assert scope["type"] == "http", "neither lifespan nor websockets are asked for"
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
        except WarrenError as error:
            response = self._refused(refusal_of(error))
        except Exception:
            _LOG.exception("a request failed", extra={"facts": {"path": scope["path"][:200]}})
            response = self._refused(HttpRefusal(500, "internal_error", "See the log of the server"))
        if response.status_code >= 400 and has_body(request):
            response.headers["connection"] = "close"  # what is left of the body is not waited for
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        found = self._routes.find(request.scope["raw_path"])
        route = _route(found, request.method)
        if route is None:
            return self._response(200, b"", {"allow": _allowed(found)})
        user = await self._user(request, route.who)
        if not _accepts(request.headers.get("accept", "*/*"), route.content_type):
            raise HttpRefusal(406)
        body = await read_body(request, self._settings)
        query = dict(request.query_params)
        status, content = await self._run(lambda: self._handled(route, user, found.names, query, body))
        headers = {"content-type": route.content_type}
        return self._response(status, content, headers, is_head=request.method == "HEAD")

    def _handled(
        self, route: HttpRoute, user: UserRow, names: Mapping[str, str], query: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes]:
        """In a thread."""
        running = self._source.running
        open_vhost = entered(running, user, names["vhost"]) if "vhost" in names else None
        told = json_object(body, self._settings.json_depth_max) if route.method != "GET" else {}
        answer = route.handler(HttpRequest(self._source, user, names, query, told, open_vhost))
        content, status = answer if isinstance(answer, HttpResponse) else (answer, 200)
        return status, _encoded(content) if route.content_type == JSON else content.encode()

    async def _user(self, request: Request, who: AccessRule) -> UserRow:
        if self._is_local or who is AccessRule.ANYBODY:
            return SOCKET_USER
        told = request.headers.get("authorization")
        if told is None:
            raise not_logged_in()
        login = _login(told)
        peer = request.client.host if request.client is not None else _NOWHERE
        try:
            user = await self._run(lambda: self._source.running.users.check(login, peer))
        except LoginRefused as error:
            await asyncio.sleep(error.delay_seconds)
            raise login_failed() from error
        who.check(user)
        return user

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _refused(self, refusal: HttpRefusal) -> Response:
        if refusal.body is None:
            return self._response(refusal.status, b"", refusal.headers)
        headers = {"content-type": JSON, **refusal.headers}
        return self._response(refusal.status, _encoded(refusal.body), headers)

    def _response(self, status: int, content: bytes, headers: Mapping[str, str], is_head: bool = False) -> Response:
        now = self._source.running.environment.clock.wall_ns() / 1e9
        told = {**_HEADERS, "date": formatdate(now, usegmt=True), "content-length": str(len(content)), **headers}
        return Response(b"" if is_head else content, status, told)


def _route(found: RouteMatch, method: str) -> HttpRoute | None:
    """None: only the methods are asked for."""
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


def _login(told: str) -> Login:
    """By Basic; everything else is a login that failed."""
    scheme, _, credentials = told.partition(" ")
    if scheme.lower() != "basic" or len(credentials) > _LOGIN_CHARACTERS_MAX:
        raise login_failed()
    try:
        name, colon, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise login_failed() from error
    if not colon:
        raise login_failed()
    return Login(name, password, "HTTP")


def _accepts(accept: str, content_type: str) -> bool:
    """Whether a type is among what a client takes; as RabbitMQ, whatever it weighs."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    wanted = content_type.partition(";")[0]
    return not kinds.isdisjoint((wanted, f"{wanted.partition('/')[0]}/*", "*/*"))


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
