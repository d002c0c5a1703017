"""The server: the listening sockets, their connections, and the event loop in which they are served.

    sockets are read ──▶ request batches ──▶ VhostLoop.run: one unit of work per vhost ──▶ sockets are written
                                                   │ epoch
                                                   └──▶ when it is durable: confirms ──▶ sockets are written

All of it happens in one event loop. Blocking calls (SQL, hashes, paging) run in a small pool of threads, and their
results return to the loop.

Invariants: see vhost_loop for confirms. If the disk fails nothing more is confirmed, and `failed` has the reason. An
exception in the output of a connection concerns that connection only, and is an alarm (base/threads).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from warren.amqp.connection import ConnectionState
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import BasicCancel, ConnectionBlocked, ConnectionClose, ConnectionUnblocked
from warren.base.errors import WarrenError
from warren.base.ids import Epoch
from warren.broker.auth.administration import CHANNELS_MAX, CONNECTIONS_MAX, AccessUpdate
from warren.broker.confirms import Confirms
from warren.broker.counters import MessageCounters
from warren.broker.storage import QueueStorage
from warren.broker.vhosts import UnknownVhost, Vhosts
from warren.catalog.catalog import Catalog
from warren.files.environment import Environment
from warren.server.alarms import BLOCKED, UNSAFE, PublisherPressure, ResourceMonitor
from warren.server.authentication import UserAuthentication
from warren.server.connection import CLOSE_SECONDS, ServerConnection
from warren.server.consumer import ServerConsumer
from warren.server.direct_reply import DirectReplies
from warren.server.event_lines import CloseReason
from warren.server.half_open import HalfOpenConnections
from warren.server.settings import ServerSettings
from warren.server.tls import Tls
from warren.server.vhost_loop import VhostLoop

_LOG = logging.getLogger(__name__)
POOL_SIZE: Final = 16  # threads; they mostly wait for the disk: as many declarations share one sync
LOGIN_POOL_SIZE: Final = 2  # threads for logins: they must not wait for declarations that wait for the disk
ROOM_POLL_SECONDS: Final = 0.1
DISK_FULL_BYTES: Final = 4 << 20  # with less room than that the catalog is not changed
BACKLOG: Final = 1024
LOOP_SECONDS_MAX: Final = 10.0  # that another thread waits for the event loop
UPDATE_SECONDS_MAX: Final = 30.0  # for the event loop to take up an update of permissions
AMQP, AMQPS = "amqp", "amqp/ssl"  # protocols of listeners, as RabbitMQ names them

Result = TypeVar("Result")


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, which accepts nothing yet: clients wait in its backlog."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(addresses):
            sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


class Server:
    def __init__(
        self,
        vhosts: Vhosts,
        storage: QueueStorage,
        users: UserAuthentication,
        settings: ServerSettings,
        counts: MessageCounters,
        environment: Environment,
        confirms: Confirms,
        pool: Executor | None = None,
        tls: Tls | None = None,
    ) -> None:
        """`pool`: for blocking calls; None: the server has its own. `tls`: of the listeners with TLS."""
        self.vhosts = vhosts
        self.storage = storage
        self.catalog: Catalog = storage.catalog
        self.users = users
        self.settings = settings
        self.counts = counts
        self.environment = environment
        self.connections: dict[ServerConnection, None] = {}  # in the order of arrival
        self.access_updates = 0  # users, permissions or vhosts have changed this often
        self.newest = Epoch(0)  # when it is durable, so are all batches so far
        self.failed: BaseException | None = None  # why nothing more is confirmed
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.pressure = PublisherPressure(self._pressure_changed, self._alarms_changed)
        self.batches = environment.background.task("request-batch", "a batch of client requests failed")
        self._clients = environment.background.task("connection", "a connection failed and was closed")
        self._cleanups = environment.background.task(
            "cleanup", "queues are not started, or not removed with their client"
        )
        self.confirms = confirms
        self.replies = DirectReplies(environment.rng)
        self._served: dict[str, VhostLoop] = {}
        self.half_open: HalfOpenConnections[ServerConnection] = HalfOpenConnections(settings.half_open_max)
        self._scheduled: dict[VhostLoop, None] = {}
        self._with_output: dict[ServerConnection, None] = {}
        self._is_flushing = False
        self._has_stopped = False
        self._unsafe_bytes = 0
        self._pool = pool or ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="warren-server")
        self._login_pool = pool or ThreadPoolExecutor(LOGIN_POOL_SIZE, thread_name_prefix="warren-login")
        self._postponed: list[tuple[Callable[[], object], Callable[[object, BaseException | None], None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls = tls
        self._listeners: list[tuple[str, asyncio.Server]] = []  # with their protocols
        self.addresses: list[tuple[str, str, int]] = []  # protocol, host, port; kept while suspended
        self.monitor = ResourceMonitor(self)

    # -- from start to stop --------------------------------------------------------------------------------------

    async def start(
        self, bound: Sequence[socket.socket] = (), bound_tls: Sequence[socket.socket] = ()
    ) -> tuple[str, int]:
        """Accept clients; returns host and port of the first listener. `bound`, `bound_tls`: sockets of
        `listening_sockets`, where clients may wait already; none at all: the addresses of the settings."""
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        plain = [(AMQP, host or settings.host, port) for host, port in settings.plain_listeners]
        with_tls = [(AMQPS, host or settings.host, port) for host, port in settings.tls_listeners]
        for protocol, sockets in ((AMQP, bound), (AMQPS, bound_tls)):
            for each in sockets:
                await self._listen(protocol, sock=each)
        if not self._listeners:
            await self._listen_at([*plain, *with_tls])
        self.monitor.begin(self._loop)
        self.clean_up(self.vhosts.warm_up)
        self.addresses = [
            (protocol, *each.getsockname()[:2]) for protocol, listener in self._listeners for each in listener.sockets
        ]
        _, host, port = self.addresses[0]
        return host, port

    async def _listen_at(self, addresses: Sequence[tuple[str, str, int]]) -> None:
        """At all of them, or at none."""
        try:
            for protocol, host, port in addresses:
                await self._listen(protocol, host=host, port=port)
        except BaseException:
            self._stop_listening()
            raise

    async def _listen(self, protocol: str, **where: Any) -> None:
        """`where`: host and port, or a socket."""
        if protocol == AMQPS:
            assert self._tls is not None, "listeners with TLS have a certificate"
            where["ssl"] = self._tls.context
            where["ssl_handshake_timeout"] = self.settings.tls_handshake_seconds
            where["ssl_shutdown_timeout"] = CLOSE_SECONDS
        listener = await self.loop.create_server(lambda: ServerConnection(self), backlog=BACKLOG, **where)
        self._listeners.append((protocol, listener))

    def _stop_listening(self) -> None:
        for _, listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Stop listening, close connections, then cut off those that stay open."""
        self.vhosts.close_soon()
        await self._disconnect(self.settings.drain_seconds if drain_seconds is None else drain_seconds)
        self.monitor.stop()
        self._run_scheduled()
        self._has_stopped = True
        is_stuck = self.storage.is_out_of_room  # then some threads wait for space, which may never come
        for pool in (self._login_pool, self._pool):
            shut = partial(pool.shutdown, wait=not is_stuck, cancel_futures=is_stuck)
            await self.loop.run_in_executor(None, shut)

    async def _disconnect(self, seconds: float) -> None:
        self._stop_listening()
        for connection in list(self.connections):
            connection.close(ConnectionClose(ReplyCode.CONNECTION_FORCED, "CONNECTION_FORCED - broker is stopping"))
        deadline = self.loop.time() + seconds
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        while self.connections:
            await asyncio.sleep(0)

    async def suspend(self) -> None:
        """Stop listening and close all connections. Everything else continues, until `resume` or `stop`."""
        await self._disconnect(self.settings.drain_seconds)

    async def resume(self) -> None:
        """Listen again at the same addresses."""
        assert self.addresses, "it was started"
        if not self._listeners:
            await self._listen_at(self.addresses)

    @property
    def is_suspended(self) -> bool:
        return bool(self.addresses) and not self._listeners

    async def set_disk_free_min(self, size_bytes: int) -> None:
        """Free space below it blocks publishers, at once and until the process ends."""
        self.settings = replace(self.settings, disk_free_min_bytes=size_bytes)
        self.monitor.check()

    async def set_memory_limit(self, process_bytes: int, messages_bytes: int) -> None:
        """More resident memory blocks publishers, at once and until the process ends; messages are paged out above
        their part of it."""
        self.vhosts.monitor.set_limit(messages_bytes)
        self.monitor.set_process_limit(process_bytes)
        self.monitor.check()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "it was started"
        return self._loop

    # -- connections ---------------------------------------------------------------------------------------------

    def connection_opened(self, connection: ServerConnection) -> None:
        """Connections that have not opened a vhost are counted; if they are too many, one of them is dropped."""
        self.connections[connection] = None
        self.counts.connections_opened += 1
        dropped = self.half_open.add(connection, connection.peer)
        if dropped is not None:
            self.monitor.half_open_dropped += 1
            dropped.reset("too many half-open connections")

    def opened(self, connection: ServerConnection) -> None:
        self.half_open.remove(connection)
        if self.pressure.alarms:
            self._send_blocked(connection)

    def connection_closed(self, connection: ServerConnection) -> None:
        if connection not in self.connections:
            return
        self.connections.pop(connection, None)
        self.half_open.remove(connection)
        self._with_output.pop(connection, None)
        self.counts.connections_closed += 1
        if connection.access is not None:  # also if it owns nothing yet: a declaration may be under way
            connection.served.run()
            self.clean_up(partial(connection.served.declarations.release, connection.owner))

    def served(self, name: str) -> VhostLoop:
        """A vhost, by name; refused if there is none. Any thread."""
        try:
            vhost = self.vhosts.find(name)
        except UnknownVhost:
            self._served.pop(name, None)
            raise
        served = self._served.get(name)
        if served is None or served.vhost is not vhost:
            served = self._served[name] = VhostLoop(self, vhost)
        return served

    # -- permissions and limits ----------------------------------------------------------------------------------

    def update_access(self, update: AccessUpdate) -> None:
        """Users, permissions or vhosts have changed: returns when all connections have it. Not in the loop's thread.
        Not by `call_in_loop`: the change is durable, and an update that comes late is made all the same."""
        if self._loop is None or self._has_stopped:
            return
        updated: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._update_access, update, updated)
        updated.result(UPDATE_SECONDS_MAX)

    def _update_access(self, update: AccessUpdate, updated: Future[None]) -> None:
        """A connection that is opening a vhost now notices the count, and reads its permissions again."""
        self.access_updates += 1
        for connection in list(self.connections):
            try:
                connection.update_access(update)
            except Exception as error:
                self.cut_off(connection, error)
        for name, served in list(self._served.items()):
            if served.vhost.row.id in update.deleted_vhosts:
                self._served.pop(name, None)
        updated.set_result(None)

    def check_connections(self, connection: ServerConnection) -> None:
        """Before it opens a vhost: refused at the limit of its user."""
        most = connection.limits.get(CONNECTIONS_MAX, -1)
        if most >= 0 and sum(each.access is not None for each in self._connections_of(connection)) >= most:
            user = connection.user
            what = f"connection refused for user '{user}': user connection limit ({most}) is reached"
            raise PeerError(ReplyCode.NOT_ALLOWED, what, 10, 40)

    def check_channels(self, connection: ServerConnection) -> None:
        """Before it opens a channel: refused at the limit of its user, over all connections."""
        most = connection.limits.get(CHANNELS_MAX, -1)
        if most >= 0 and sum(len(each.channels) for each in self._connections_of(connection)) >= most:
            user = connection.user
            what = f"number of channels opened for user '{user}' has reached the maximum allowed user limit of ({most})"
            raise PeerError(ReplyCode.NOT_ALLOWED, what)

    def _connections_of(self, connection: ServerConnection) -> list[ServerConnection]:
        """Of the same user; itself, too."""
        return [each for each in self.connections if each.user_id == connection.user_id]

    def open_count(self, served: VhostLoop) -> int:
        """Connections that have opened this vhost. Counted only where there is a limit."""
        return sum(each.access is not None and each.served is served for each in self.connections)

    # -- batches -------------------------------------------------------------------------------------------------

    def schedule(self, served: VhostLoop) -> None:
        """Run its batch after the present poll of the network."""
        if not self._scheduled:
            self.loop.call_soon(self._run_scheduled)
        self._scheduled[served] = None

    def _run_scheduled(self) -> None:
        scheduled, self._scheduled = self._scheduled, {}
        for served in scheduled:
            served.run()
        self.flush()

    def add_unsafe(self, size_bytes: int) -> None:
        """Published bytes that are not durable yet. Above the limit publishers are not read …"""
        self._unsafe_bytes += size_bytes
        self.pressure.set(UNSAFE, self._unsafe_bytes > self.settings.unsafe_bytes_max or self.pressure.has(UNSAFE))

    def subtract_unsafe(self, size_bytes: int) -> None:
        self._unsafe_bytes -= size_bytes

    def release_unsafe(self) -> None:
        """… until half of it is durable."""
        if self.pressure.has(UNSAFE) and self._unsafe_bytes <= self.settings.unsafe_bytes_max // 2:
            self.pressure.set(UNSAFE, False)

    def cut_off(self, connection: ServerConnection, error: Exception) -> None:
        """A call for one connection has raised: the others are served, and its client does not wait for ever. Loops
        over connections catch it in place: a call for each would cost as much as a confirm."""
        self._clients.failed(error)
        connection.set_close_reason(CloseReason("broker", "a defect of the broker, logged before", is_error=True))
        if connection.transport is not None:
            connection.transport.abort()

    def fail(self, error: BaseException) -> None:
        """Nothing more is confirmed."""
        if self.failed is None:
            self.failed = error
            _LOG.critical("the commit has failed", exc_info=error, extra={"facts": {"why": error}})
            self.on_failure(error)

    # -- output --------------------------------------------------------------------------------------------------

    def has_output(self, connection: ServerConnection) -> None:
        self._with_output[connection] = None
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._is_flushing = True
        failure = self._clients.failure
        while self._with_output:
            connection, _ = self._with_output.popitem()
            try:
                connection.flush()
            except Exception as error:
                self.cut_off(connection, error)
        self._is_flushing = False
        if failure is not None and failure is self._clients.failure:
            self._clients.succeeded()

    # -- other threads -------------------------------------------------------------------------------------------

    def offload(
        self, call: Callable[[], object], then: Callable[[object, BaseException | None], None], is_login: bool = False
    ) -> None:
        """Call it in another thread; `then` in the loop. Once the threads are stopped nothing is called: no connection
        is left that waits for it, and the next start does the cleanup."""
        if self._has_stopped:
            return
        if not is_login and (self._postponed or self.is_disk_full()):
            self._postpone(call, then)
            return
        future = (self._login_pool if is_login else self._pool).submit(call)
        future.add_done_callback(partial(self._offloaded, then))

    def _postpone(self, call: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """Until the disk has room: a change of the catalog that waits for it would block logins."""
        self._postponed.append((call, then))
        if len(self._postponed) == 1:
            self.call_later(ROOM_POLL_SECONDS, self._run_postponed)

    def is_disk_full(self) -> bool:
        """Whether a change of the catalog would wait for room. Any thread."""
        try:
            free = self.environment.files.free_bytes(self.storage.directory)
        except Exception:  # unknown: the catalog's own error is the answer; the watch of the disk raises the alarm
            return False
        return free < DISK_FULL_BYTES or self.storage.is_out_of_room

    def _run_postponed(self) -> None:
        if self.is_disk_full():
            self.call_later(ROOM_POLL_SECONDS, self._run_postponed)
            return
        postponed, self._postponed = self._postponed, []
        for call, then in postponed:
            self.offload(call, then)

    def _offloaded(self, then: Callable[[object, BaseException | None], None], future: Future[object]) -> None:
        error = future.exception()
        result = None if error is not None else future.result()
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(then, result, error)

    def call_in_loop(self, call: Callable[[], Result]) -> Result:
        """For other threads: the result of a call in the thread of the event loop. A call that cannot begin in time is
        not made."""
        future: Future[Result] = Future()
        self.loop.call_soon_threadsafe(_complete, future, call)
        try:
            return future.result(LOOP_SECONDS_MAX)
        except TimeoutError as error:
            future.cancel()
            raise WarrenError(f"the event loop did not answer within {LOOP_SECONDS_MAX:.0f} s", "repeat it") from error

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.loop.call_later(seconds, call)

    def clean_up(self, call: Callable[[], object]) -> None:
        """In another thread; an error is an alarm."""
        self.offload(call, self._cleaned_up)

    def _cleaned_up(self, result: object, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self._cleanups.failed(error)
        else:
            self._cleanups.succeeded()

    def cancelled(self, connection: ServerConnection, consumer: ServerConsumer) -> None:
        """The queue was deleted, and with it the consumer. Any thread."""
        self.loop.call_soon_threadsafe(self._cancelled, connection, consumer)

    def _cancelled(self, connection: ServerConnection, consumer: ServerConsumer) -> None:
        channel = consumer.channel
        if channel.consumers.pop(consumer.tag, None) is None or not channel.is_open:
            return
        if "consumer_cancel_notify" in connection.capabilities:
            connection.send_method(channel.number, BasicCancel(consumer.tag, True))

    # -- pressure ------------------------------------------------------------------------------------------------

    def _pressure_changed(self) -> None:
        publishers = [connection for connection in self.connections if connection.is_publisher]
        is_on = self.pressure.is_on
        for connection in publishers:
            try:
                connection.pause_reading() if is_on else connection.resume_reading()
            except Exception as error:
                self.cut_off(connection, error)

    def _alarms_changed(self) -> None:
        opened = [connection for connection in self.connections if connection.access is not None]
        for connection in opened:
            try:
                self._send_blocked(connection)
            except Exception as error:
                self.cut_off(connection, error)

    def _send_blocked(self, connection: ServerConnection) -> None:
        alarms = self.pressure.alarms
        if "connection.blocked" not in connection.capabilities or connection.is_blocked == bool(alarms):
            return
        if connection.amqp.state is not ConnectionState.RUNNING:  # it is closing
            return
        connection.is_blocked = bool(alarms)
        if alarms:
            what = " and ".join(BLOCKED[each] for each in alarms)
            connection.send_method(0, ConnectionBlocked(what))
        else:
            connection.send_method(0, ConnectionUnblocked())


def _complete(future: Future[Result], call: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
