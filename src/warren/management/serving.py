"""The management, started and stopped: three sockets, one loop, a few threads.

    management port      the API; whoever asks logs in
    warren.sock          the same API for this machine; mode 0600, whoever can open it is an administrator
    prometheus port      metrics; nobody logs in

The loop is the broker's own. What is asked is found out in threads of ours, so that a long list delays no message.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from starlette.types import ASGIApp

from warren.management.application import Application
from warren.management.http_server import HttpServer
from warren.management.metrics_application import MetricsApplication
from warren.management.queue_facts import QueueFacts
from warren.management.routes import ROUTES
from warren.management.routing import FactsSource, HttpRoute
from warren.management.running import BrokerView, Listener
from warren.management.settings import ManagementSettings
from warren.management.sockets import UnixListener, tcp_listener

HTTP = "http"
PROMETHEUS = "http/prometheus"


class ManagementServer:
    """What was started. `addresses`: (host, port) by protocol, `http` and `http/prometheus`."""

    def __init__(self, addresses: dict[str, tuple[str, int]], stop: Callable[[], Awaitable[None]]) -> None:
        self.addresses = addresses
        self._stop = stop

    async def stop(self) -> None:
        """Requests that are under way are answered first, unless they take too long."""
        await self._stop()


async def start(
    running: BrokerView,
    host: str,
    management_port: int | None,
    prometheus_port: int | None,
    socket_path: str | None,
    settings: ManagementSettings | None = None,
    routes: Sequence[HttpRoute] = ROUTES,
) -> ManagementServer:
    """Serve in the running loop. Port 0 picks one; None serves nothing there."""
    settings = settings or ManagementSettings()
    own: list[Listener] = []
    source = FactsSource(running, QueueFacts(running), lambda: [*running.listeners, *own])
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="warren-management")

    async def listen(stack: AsyncExitStack, protocol: str, port: int, app: ASGIApp) -> None:
        listener = tcp_listener(host, port)
        stack.callback(listener.close)
        bound_host, bound_port = listener.getsockname()[:2]
        await _served(stack, HttpServer(app, settings), listener)
        own.append(Listener(protocol, bound_host, bound_port))

    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, executor.shutdown, cancel_futures=True)
        if management_port is not None:
            await listen(stack, HTTP, management_port, Application(source, routes, settings, executor))
        if prometheus_port is not None:
            await listen(stack, PROMETHEUS, prometheus_port, MetricsApplication(source, executor))
        if socket_path is not None:
            unix = UnixListener(socket_path)
            stack.callback(unix.close)
            local = Application(source, routes, settings, executor, is_local=True)
            await _served(stack, HttpServer(local, settings), unix.socket)
        return ManagementServer({each.protocol: (each.host, each.port) for each in own}, stack.pop_all().aclose)
    raise AssertionError("an exit stack lets every error pass")


async def _served(stack: AsyncExitStack, server: HttpServer, listener: socket.socket) -> None:
    await server.start(listener)
    stack.push_async_callback(server.stop)
