"""Clients of the management API: the broker of a data directory, or one at a URL.

    warren.sock          HTTP/1.1 over the Unix socket of a running broker; every client is an administrator
    http://u:p@host      the same API of another machine, of Warren or of RabbitMQ
    the files            a stopped broker: its directory is opened, with its lock, and the same route handlers run in
                         this process; for verbs that change or list users, vhosts, permissions and parameters

The Unix client does not use http.client, whose imports take longer than the request: the broker sends a Content-Length
with every answer, and one connection is one request. Exit codes are those of rabbitmqctl (sysexits.h).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from warren.config.data_directory import SOCKET, default_data_directory

if TYPE_CHECKING:
    from warren.app.broker import Broker
    from warren.management.requests import FactsSource, HttpRoutes

OK = 0
USAGE = 64
DATA = 65
NO_USER = 67
UNAVAILABLE = 69
SOFTWARE = 70
TIMED_OUT = 75

_PIECE_BYTES = 1 << 16
_ANSWER_BYTES_MAX = 1 << 30
_SOCKET_PATH_MAX = 107
_LOG = "log"  # of a data directory that has a store


class CtlError(Exception):
    """An exit code and the text for standard error. `has_label`: the text follows a line `Error:`."""

    def __init__(self, code: int, text: str, has_label: bool = True, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.has_label = has_label
        self.facts = facts  # for --formatter json


class NotRunning(CtlError):
    def __init__(self, text: str) -> None:
        super().__init__(UNAVAILABLE, text)


class ApiAnswer(NamedTuple):
    status: int
    content: Any  # of JSON; None without a body

    @property
    def is_good(self) -> bool:
        return self.status < 400

    @property
    def reason(self) -> str:
        """Why it was refused."""
        reason = self.content.get("reason", "") if isinstance(self.content, dict) else ""
        return reason if isinstance(reason, str) else json.dumps(reason)


class ApiClient(Protocol):
    name: str  # for messages: where the broker is

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> ApiAnswer: ...

    def close(self) -> None: ...


def _parsed(status: int, raw: bytes, path: str) -> ApiAnswer:
    try:
        return ApiAnswer(status, json.loads(raw) if raw.strip() else None)
    except ValueError as error:
        raise CtlError(SOFTWARE, f"the answer to {path} is no JSON: {raw[:80]!r}") from error


class UnixClient:
    def __init__(self, path: str, timeout: float | None) -> None:
        self.path = path
        self.name = path
        self._timeout = timeout

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> ApiAnswer:
        content = b"" if body is None else json.dumps(body).encode()
        head = {"host": "warren", "connection": "close", "content-length": str(len(content)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {_header(value)}" for name, value in head.items())]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._timeout)
            self._connect(connection)
            connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8") + content)
            raw = _read_all(connection)
        first, _, rest = raw.partition(b"\r\n")
        _, _, answer = rest.partition(b"\r\n\r\n")
        words = first.split()
        if len(words) < 2 or not words[1].isdigit():
            raise NotRunning(f"the broker at {self.path} ended before it answered")
        return _parsed(int(words[1]), answer, path)

    def _connect(self, connection: socket.socket) -> None:
        path, directory = self.path, -1
        try:
            if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
                head, _, name = path.rpartition("/")
                directory = os.open(head, os.O_PATH)
                path = f"/proc/self/fd/{directory}/{name}"
            connection.connect(path)
        except TimeoutError:
            raise
        except PermissionError as error:
            text = f"no permission to use {self.path}: run the command as the user of the broker"
            raise NotRunning(text) from error
        except OSError as error:
            raise NotRunning(f"no broker is running: nothing listens at {self.path}") from error
        finally:
            if directory >= 0:
                os.close(directory)

    def close(self) -> None:
        """One connection is one request."""


def _read_all(connection: socket.socket) -> bytes:
    pieces, size_bytes = [], 0
    while piece := connection.recv(_PIECE_BYTES):
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > _ANSWER_BYTES_MAX:
            raise CtlError(SOFTWARE, f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
    return b"".join(pieces)


def _header(value: str) -> str:
    """A header is one line."""
    return " ".join(value.split())


class UrlClient:
    def __init__(self, url: str, timeout: float | None) -> None:
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CtlError(USAGE, f"{url!r} is no URL of a management API: write http://USER:PASSWORD@HOST:15672")
        self.host = parts.hostname
        self.port = parts.port or (15671 if parts.scheme == "https" else 15672)
        self.name = f"{parts.scheme}://{self.host}:{self.port}"
        self.user = unquote(parts.username or "guest")
        self._login = self.user, unquote(parts.password or "guest")
        self._has_tls = parts.scheme == "https"
        self._timeout = timeout

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> ApiAnswer:
        return self.request_as(self._login, method, path, body, headers)

    def request_as(
        self,
        login: tuple[str, str],
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiAnswer:
        from base64 import b64encode
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        kind = HTTPSConnection if self._has_tls else HTTPConnection
        connection = kind(self.host, self.port, timeout=self._timeout)
        basic = b64encode(":".join(login).encode()).decode()
        all_headers = {"authorization": f"Basic {basic}", "content-type": "application/json"}
        all_headers |= {name: _header(value) for name, value in (headers or {}).items()}
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, all_headers)
            response = connection.getresponse()
            return _parsed(response.status, response.read(), path)
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise NotRunning(f"no answer from {self.name}: {error}") from error
        finally:
            connection.close()

    def close(self) -> None:
        """One connection is one request."""


class FilesClient:
    """A stopped broker: its directory is opened as by a start, until `close`. A running broker holds the lock."""

    def __init__(self, directory: str) -> None:
        self.name = directory
        self._directory = directory
        self._opened: tuple[Broker, HttpRoutes, FactsSource] | None = None

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> ApiAnswer:
        from warren.base.errors import WarrenError
        from warren.management.requests import refusal_of

        try:
            return self._handled(method, path, body)
        except WarrenError as error:
            refusal = refusal_of(error)
            return ApiAnswer(refusal.status, refusal.body)

    def _handled(self, method: str, path: str, body: Any) -> ApiAnswer:
        from urllib.parse import parse_qsl

        from warren.management.requests import HttpRefusal, HttpRequest, HttpResponse, entered

        broker, routes, source = self._open()
        raw_path, _, query = path.partition("?")
        match = routes.find(raw_path.encode())
        route = match.by_method.get(method)
        if route is None:
            raise HttpRefusal(405, "method_not_allowed", f"{method} is not allowed for {raw_path}")
        names = match.names
        request = HttpRequest(source, names=names, query=dict(parse_qsl(query)), body=body or {})
        if "vhost" in names and route.opens_vhost:
            vhost = entered(broker, request.user, names["vhost"], method)
            request = HttpRequest(source, names=names, query=request.query, body=request.body, open_vhost=vhost)
        answer = route.handler(request)
        content, status, _ = answer if isinstance(answer, HttpResponse) else HttpResponse(answer)
        return ApiAnswer(status, json.loads(json.dumps(content)))

    def _open(self) -> tuple[Broker, HttpRoutes, FactsSource]:
        if self._opened is None:
            from warren.app.broker import open_broker
            from warren.base.errors import Locked
            from warren.config.configuration import configuration_of
            from warren.config.options import read_flags
            from warren.files.environment import Environment
            from warren.management.broker_facts import QueueFacts
            from warren.management.requests import FactsSource, HttpRoutes
            from warren.management.routes import ROUTES
            from warren.management.statistics import Statistics

            environment = Environment.real()
            values = read_flags({"data_dir": self._directory})
            configuration = configuration_of(environment.files, values, os.environ)
            try:
                broker = open_broker(configuration, environment=environment)
            except Locked as error:
                text = f"{error.what}\nThe broker is starting or stopping, or another command has it open: try again"
                raise NotRunning(text) from error
            source = FactsSource(broker, QueueFacts(broker), lambda: (), Statistics(broker))
            self._opened = broker, HttpRoutes(ROUTES), source
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None


def data_directory(named: str | None) -> str:
    return (named or default_data_directory(os.environ)).rstrip("/") or "/"


def is_store(directory: str) -> bool:
    return os.path.isdir(os.path.join(directory, _LOG))


def socket_path(directory: str) -> str:
    return os.path.join(directory, SOCKET)
