"""HTTP in the event loop of the broker: uvicorn without its signals, process and timers; the listening sockets.

    management port      the API, with a login; on another port with TLS
    warren.sock          the same API for this machine; mode 0600, every client is an administrator
    prometheus port      metrics, without a login

    listening socket ──▶ HttpServer.start ──▶ requests ──▶ the application       stop: running requests end first

The loop is the broker's own. Handlers run in worker threads, so that a long list does not delay messages.

uvicorn parses requests with h11. It does not limit the time in which a client sends the head of a request or reads the
answer; `HttpProtocol` does. A request that is not valid HTTP, in its head or body, is answered with 400 in the API's
form, and logged in one line.

A port that is in use is a `Refused` error. A stale Unix socket is replaced, a path that is too long for the system is
reached through its directory, and the socket file is removed at stop: shared with the control socket of a database
(`workers.control_socket`).
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Final, NamedTuple

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from warren.base.errors import Refused
from warren.files.local import translated
from warren.management.application import Application
from warren.management.broker_facts import BrokerView, Listener, QueueFacts
from warren.management.metrics import MetricsApplication
from warren.management.requests import FactsSource, HttpRoute, ManagementSettings, bad_request
from warren.management.routes import ROUTES
from warren.management.statistics import Statistics
from warren.server.tls import Tls
from warren.workers.control_socket import listener_at

_LOG = logging.getLogger(__name__)
_BAD_REQUEST: Final = json.dumps(bad_request("The request is not valid HTTP").body).encode()
_BAD_REQUEST_HEAD: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    % len(_BAD_REQUEST)
)


class HttpServer:
    """Serves an application at one socket, from `start` until `stop`, in the loop that calls them."""

    def __init__(self, app: ASGIApp, settings: ManagementSettings, tls: Tls | None = None) -> None:
        class Protocol(HttpProtocol):
            header_seconds = settings.header_seconds
            reader_seconds = settings.reader_seconds

        config = Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,  # an address in a header is not trusted
            server_header=False,
            date_header=False,  # sent by the application
            limit_concurrency=settings.connections_max,
            timeout_keep_alive=settings.idle_seconds,
            timeout_graceful_shutdown=settings.stop_seconds,
            h11_max_incomplete_event_size=settings.header_bytes_max,
        )
        config.load()
        self._server = Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._sockets: list[socket.socket] = []
        self._tls = tls
        self._handshake_seconds = settings.header_seconds

    async def start(self, listener: socket.socket) -> None:
        self._sockets = [listener]
        if self._tls is None:
            await self._server.startup(sockets=self._sockets)
            return
        await self._server.startup(sockets=[])  # uvicorn does not limit the time of a TLS handshake
        served = await asyncio.get_running_loop().create_server(
            self._protocol, sock=listener, ssl=self._tls.context, ssl_handshake_timeout=self._handshake_seconds
        )
        self._server.servers.append(served)

    def _protocol(self) -> asyncio.Protocol:
        server, config = self._server, self._server.config
        assert isinstance(config.http_protocol_class, type), "given above"
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=server.server_state, app_state=server.lifespan.state
        )

    async def stop(self) -> None:
        await self._server.shutdown(sockets=self._sockets)


class HttpProtocol(H11Protocol):
    """Disconnects a client that does not send the head of a request in time, even if it keeps sending, and a client
    that reads nothing of its answer."""

    header_seconds = 10.0
    reader_seconds = 30.0
    _hanging_up: asyncio.TimerHandle | None = None
    _watching: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._hanging_up is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():  # unread output would keep the connection open
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn while it handles an error of h11. The application may be reading the body: its answer is
        not sent any more. Written without h11, which refuses to after some of these errors."""
        why, _, _ = str(sys.exception()).partition(": bytearray(")  # the bytes may contain a password
        facts = {"client": self.client[0] if self.client else "", "why": why}
        _LOG.info("HTTP request not valid", extra={"facts": facts})
        is_answered = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not is_answered:
            self.transport.write(_BAD_REQUEST_HEAD + _BAD_REQUEST)
        self.transport.close()

    def _wait_for_head(self) -> None:
        self._hanging_up = self.loop.call_later(self.header_seconds, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None

    def _hang_up(self) -> None:
        self._hanging_up = None
        self.transport.abort()

    def _watch_reader(self) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        self._watching = self.loop.call_later(self.reader_seconds, self._check_reader, left_bytes)

    def _check_reader(self, before_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < before_bytes:
            self._watch_reader()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None


_WAITING_MAX = 128


def tcp_listener(host: str, port: int) -> socket.socket:
    with translated("listen at", f"{host}:{port}"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=_WAITING_MAX)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Refused(
                f"{host}:{port} is already in use", "stop the process that listens there, or choose another port"
            ) from error


class UnixListener:
    """The broker holds the lock of the directory, so it may replace any socket of this name."""

    def __init__(self, path: str) -> None:
        self.path = path
        with translated("listen at", path):
            self.socket, self._inode = listener_at(path, takes_over=True)

    def close(self) -> None:
        self.socket.close()
        with suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                os.unlink(self.path)


HTTP, HTTPS = "http", "https"
PROMETHEUS = "http/prometheus"


class ManagementServer:
    """The started servers. `addresses`: (host, port) by protocol: `http`, `https`, `http/prometheus`."""

    def __init__(
        self, addresses: dict[str, tuple[str, int]], statistics: Statistics, stop: Callable[[], Awaitable[None]]
    ) -> None:
        self.addresses = addresses
        self.statistics = statistics
        self._stop = stop

    async def stop(self) -> None:
        """Running requests are answered first, within `stop_seconds`."""
        await self._stop()


class HttpsPort(NamedTuple):
    listener: socket.socket
    tls: Tls


async def start(
    broker: BrokerView,
    host: str,
    management_port: int | socket.socket | None,
    prometheus_port: int | socket.socket | None,
    socket_path: str | None,
    settings: ManagementSettings | None = None,
    routes: Sequence[HttpRoute] = ROUTES,
    https: HttpsPort | None = None,
) -> ManagementServer:
    """Serve in the running event loop. Port 0 picks a free port, a socket is bound already; None serves nothing."""
    settings = settings or ManagementSettings()
    own: list[Listener] = []
    statistics = Statistics(broker)
    source = FactsSource(broker, QueueFacts(broker), lambda: [*broker.listeners, *own], statistics)
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="warren-management")

    async def listen(
        stack: AsyncExitStack, protocol: str, port: int | socket.socket, app: ASGIApp, tls: Tls | None = None
    ) -> None:
        listener = tcp_listener(host, port) if isinstance(port, int) else port
        stack.callback(listener.close)
        bound_host, bound_port = listener.getsockname()[:2]
        await _served(stack, HttpServer(app, settings, tls), listener)
        own.append(Listener(protocol, bound_host, bound_port, None if tls is None else tls.settings))

    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, executor.shutdown, cancel_futures=True)
        statistics.begin()
        stack.push_async_callback(asyncio.to_thread, statistics.stop)
        if management_port is not None:
            await listen(stack, HTTP, management_port, Application(source, routes, settings, executor))
        if https is not None:
            api = Application(source, routes, settings, executor)
            await listen(stack, HTTPS, https.listener, api, https.tls)
        if prometheus_port is not None:
            await listen(stack, PROMETHEUS, prometheus_port, MetricsApplication(source, executor))
        if socket_path is not None:
            unix = UnixListener(socket_path)
            stack.callback(unix.close)
            local = Application(source, routes, settings, executor, is_local=True)
            await _served(stack, HttpServer(local, settings), unix.socket)
        addresses = {each.protocol: (each.host, each.port) for each in own}
        return ManagementServer(addresses, statistics, stack.pop_all().aclose)
    raise AssertionError("an exit stack passes every error on")


async def _served(stack: AsyncExitStack, server: HttpServer, listener: socket.socket) -> None:
    await server.start(listener)
    stack.push_async_callback(server.stop)
