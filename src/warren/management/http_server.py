"""HTTP in the loop of the broker: uvicorn, without its signals, its process and its clockwork.

    a socket that listens ──▶ HttpServer.start ──▶ requests ──▶ the application       stop: what is under way ends first

uvicorn reads requests with h11. What it does not do is limit the time that a client takes to send the head of a request
or to read its answer: `HttpProtocol` does. A request that is not valid HTTP, in its head or in its body, is answered
by 400 in the API's form, and logged in one line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from typing import Final

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from warren.management.refusals import bad_request
from warren.management.settings import ManagementSettings

_LOG = logging.getLogger(__name__)
_BAD_REQUEST: Final = json.dumps(bad_request("The request is not valid HTTP").body).encode()
_BAD_REQUEST_HEAD: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    % len(_BAD_REQUEST)
)


class HttpServer:
    """Serves an application at one socket, from `start` until `stop`, in the loop that calls them."""

    def __init__(self, app: ASGIApp, settings: ManagementSettings) -> None:
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
            proxy_headers=False,  # an address that a client tells us is nobody's address
            server_header=False,
            date_header=False,  # the application says it
            limit_concurrency=settings.connections_max,
            timeout_keep_alive=settings.idle_seconds,
            timeout_graceful_shutdown=settings.stop_seconds,
            h11_max_incomplete_event_size=settings.header_bytes_max,
        )
        config.load()
        self._server = Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._sockets: list[socket.socket] = []

    async def start(self, listener: socket.socket) -> None:
        self._sockets = [listener]
        await self._server.startup(sockets=self._sockets)

    async def stop(self) -> None:
        await self._server.shutdown(sockets=self._sockets)


class HttpProtocol(H11Protocol):
    """A client that has not sent the head of its request in time is hung up on, however busily it sends; and so is one
    that reads nothing of what is written to it."""

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
        if self.transport.get_write_buffer_size():  # else what it does not read keeps the connection open
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn while it handles what h11 says of the request. The application may be reading the body: its
        answer is not sent any more. Not written by h11, which refuses to after some of these errors."""
        why, _, _ = str(sys.exception()).partition(": bytearray(")  # what was sent may be a password
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
        self._watching = self.loop.call_later(self.reader_seconds, self._look_at_reader, left_bytes)

    def _look_at_reader(self, before_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < before_bytes:
            self._watch_reader()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
