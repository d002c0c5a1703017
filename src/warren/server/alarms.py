"""Back-pressure on publishers and the resource monitor: clients, memory, disk and garbage are checked periodically.

While a reason is active, publishing connections are not read; with some reasons clients get `connection.blocked`:

    unsafe    more is published than the disk has synced       until half of it is durable
    paging    memory is full of messages                       until they are on disk
    garbage   garbage arises faster than it is freed           until upkeep has caught up
    cleanup   garbage has paused publishers for a second       until upkeep has caught up         connection.blocked
    history   the disk is short of space, history is purged    until the purge has ended
    disk      there is little free disk space                  until there is more                connection.blocked
    memory    memory is full of unacked messages, or the       until consumers settle             connection.blocked
              process exceeds the limit of a command

Consumers are never paused. A connection that publishes and consumes counts as a publisher: as in RabbitMQ nothing is
read from it, so clients use one connection for each.

    every half second   heartbeats both ways, handshakes that take too long; memory and disk space
    every second        deliveries that are not acknowledged in time (`consumer_timeout`)
    after each batch    memory: if it is full, a thread moves messages to disk; publishers wait if that is too slow
    after some MB       disk space: a fast publisher fills the disk between two ticks

A client is dead when nothing was received from it for twice its heartbeat; while its connection is not read it is never
dead. Each check is a background task (base/threads): an exception is an alarm until a later check succeeds, and the
next check runs at its time. Garbage that pauses publishers for more than a second becomes a reason to notify clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from warren.amqp.errors import PeerError
from warren.files.protocol import Files
from warren.server.event_lines import CONNECTION_LOG, client_facts

if TYPE_CHECKING:
    from warren.server.server import Server


_LOG = logging.getLogger(__name__)
UNSAFE, PAGING, GARBAGE, HISTORY = "unsafe", "paging", "garbage", "history"
DISK, MEMORY, CLEANUP = "disk", "memory", "cleanup"
BLOCKED: Final = {DISK: "low on disk", MEMORY: "low on memory", CLEANUP: "cleaning up disk space"}  # sent to clients


class PublisherPressure:
    def __init__(self, on_changed: Callable[[], None], on_alarms_changed: Callable[[], None]) -> None:
        """`on_changed`: reading of publishers pauses or resumes; `on_alarms_changed`: the alarms that clients get."""
        self._reasons: set[str] = set()
        self._on_changed = on_changed
        self._on_alarms_changed = on_alarms_changed
        self.is_on = False

    def set(self, reason: str, is_active: bool) -> None:
        if is_active == (reason in self._reasons):
            return
        before = self.alarms
        (self._reasons.add if is_active else self._reasons.discard)(reason)
        was_on, self.is_on = self.is_on, bool(self._reasons)
        if self.alarms != before:
            message = "alarm set: publishers are blocked" if is_active else "alarm cleared"
            _LOG.warning(message, extra={"facts": {"reason": reason}})
            self._on_alarms_changed()
        if was_on != self.is_on:
            self._on_changed()

    def has(self, reason: str) -> bool:
        return reason in self._reasons

    @property
    def alarms(self) -> list[str]:
        return [reason for reason in BLOCKED if reason in self._reasons]


_PROCESS_STATUS: Final = "/proc/self/status"
_STATUS_BYTES_MAX: Final = 16 << 10


def resident_bytes(files: Files) -> int:
    """Memory of this process."""
    file = files.open(_PROCESS_STATUS)
    try:
        status = file.read_at(0, _STATUS_BYTES_MAX).decode(errors="replace")
    finally:
        file.close()
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(line.split()[1]) * 1024


TICK_SECONDS: Final = 0.5
DELIVERY_TICKS: Final = 2
DISK_SHARE: Final = 8  # disk space is checked again after publishes of this share of the free-space limit
GARBAGE_POLL_SECONDS: Final = 0.02
GARBAGE_SECONDS_MAX: Final = 1.0  # clients are notified of a garbage pressure that lasts longer
HISTORY_SECONDS_MAX: Final = 1.0  # time in which history may yield before publishers are blocked
PASS_BYTES_MIN: Final = 32 << 20  # free space for a pass of upkeep, which creates log files and flushes the store
PAGING_SLACK: Final = 1.1  # of the watermark: above it publishers wait for paging
MEMORY_SLACK: Final = 1.5  # of the watermark: above it only settlements help


class ResourceMonitor:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._ticks = 0
        self._is_paging = False
        self._is_paging_delayed = False  # it failed, and is repeated after a delay
        self.half_open_dropped = 0  # since the last tick
        self._unchecked_bytes = 0  # published since the last check of the disk
        self._garbage_since_ns = 0
        background = server.environment.background
        self._clients = background.task("client-watch", "silent clients are not closed")
        self._deliveries = background.task("delivery-watch", "deliveries do not time out")
        self._memory = background.task("memory-watch", "memory of messages is not watched")
        self._paging = background.task("paging", "messages are not moved from memory to disk")
        self._disk = background.task("disk-watch", "free disk space is not watched")
        self._garbage = background.task("garbage-watch", "garbage does not slow down publishers")
        self._process_bytes_max: int | None = None  # resident memory; None: not limited by a command
        self._yielding: tuple[int, int] | None = None  # while the disk is short: purges begun by then, and the time

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def set_process_limit(self, resident_bytes: int) -> None:
        """The memory alarm is also set while the process has more resident memory."""
        self._process_bytes_max = resident_bytes

    def check(self) -> None:
        """Memory and disk space now, as after a change of their limits."""
        self._memory.run(self._check_memory)
        self._disk.run(self._check_disk)

    def _tick(self) -> None:
        if self._is_stopped:
            return
        self._timer = self._server.loop.call_later(TICK_SECONDS, self._tick)
        self._clients.run(self._check_clients)
        self._ticks += 1
        if self._ticks % DELIVERY_TICKS == 0:
            self._deliveries.run(self._check_deliveries)
        self._memory.run(self._check_memory)
        self._disk.run(self._check_disk)

    # -- clients -------------------------------------------------------------------------------------------------

    def _check_clients(self) -> None:
        server = self._server
        now = server.environment.clock.monotonic_ns()
        if self.half_open_dropped:
            facts = {"count": self.half_open_dropped, "most": server.settings.half_open_max}
            CONNECTION_LOG.warning("half-open connections dropped", extra={"facts": facts})
            self.half_open_dropped = 0
        for connection in list(server.half_open):
            is_late = connection.handshake_ns(now) > server.settings.handshake_seconds * 1e9
            if is_late and connection.transport is not None:
                CONNECTION_LOG.error("handshake timed out", extra={"facts": client_facts(connection)})
                connection.reset("handshake timed out")
        for connection in list(server.connections):
            interval = connection.amqp.tuning.heartbeat
            if connection.access is None or not interval:
                continue
            if now - connection.last_sent_ns >= interval * 0.5e9:
                connection.heartbeat()
            if now - connection.last_received_ns > interval * 2e9 and not connection.is_paused:
                late = client_facts(connection) | {"heartbeat_seconds": interval}
                CONNECTION_LOG.error("missed heartbeats from client", extra={"facts": late})
                connection.reset("missed heartbeats")

    def _check_deliveries(self) -> None:
        """Not while a connection is not read: its acknowledgements may wait in the socket."""
        server = self._server
        now, default_ms = server.environment.clock.monotonic_ns(), server.settings.consumer_timeout_ms
        for connection in list(server.connections):
            if connection.access is None or connection.is_paused:
                continue
            for channel in list(connection.channels.values()):
                try:
                    channel.check_oldest_delivery(now, default_ms)
                except PeerError as error:
                    connection.refuse(channel.number, error)

    # -- memory and disk -----------------------------------------------------------------------------------------

    def after_batch(self, size_bytes: int) -> None:
        server = self._server
        if server.vhosts.monitor.is_over and not self._is_paging:
            self._memory.run(self._begin_paging)
        if size_bytes:
            self._unchecked_bytes += size_bytes
            is_due = self._unchecked_bytes * DISK_SHARE > server.settings.disk_free_min_bytes
            if is_due or server.storage.is_on_disk_reserve:  # the reserve is for acknowledgements
                self._disk.run(self._check_disk)
            self._memory.run(self._check_memory)
            self._garbage.run(self._throttle_for_garbage)

    def _check_memory(self) -> None:
        monitor, pressure = self._server.vhosts.monitor, self._server.pressure
        pressure.set(PAGING, self._is_paging and monitor.used_bytes > PAGING_SLACK * monitor.limit_bytes)
        most = MEMORY_SLACK if not pressure.has(MEMORY) else PAGING_SLACK
        is_full = not self._is_paging and monitor.used_bytes > most * monitor.limit_bytes
        pressure.set(MEMORY, is_full or self._is_process_too_large())

    def _is_process_too_large(self) -> bool:
        limit = self._process_bytes_max
        return limit is not None and resident_bytes(self._server.environment.files) > limit

    def _begin_paging(self) -> None:
        if not self._is_paging_delayed:
            self._server.offload(self._page, self._paged)
            self._is_paging = True

    def _repeat_paging(self) -> None:
        self._is_paging_delayed = False
        if not self._is_stopped and not self._is_paging:
            self._memory.run(self._begin_paging)

    def _page(self) -> None:
        """In a thread: waits for durability first, since only durable messages can be paged out."""
        self._server.storage.log.wait(self._server.newest)
        self._server.vhosts.monitor.relieve()

    def _paged(self, result: object, error: BaseException | None) -> None:
        self._is_paging = False
        if error is not None and self._server.storage.commit_failure is not None:
            self._server.fail(error)
            return
        if isinstance(error, Exception):
            self._paging.failed(error)
            self._is_paging_delayed = True
            self._server.call_later(self._paging.retry_seconds, self._repeat_paging)
        else:
            self._paging.succeeded()
        self._memory.run(self._check_memory)

    def _throttle_for_garbage(self) -> None:
        server = self._server
        if server.storage.upkeep.is_behind() and not server.pressure.has(GARBAGE):
            self._garbage_since_ns = server.environment.clock.monotonic_ns()
            server.pressure.set(GARBAGE, True)
            server.call_later(GARBAGE_POLL_SECONDS, self._check_garbage)

    def _check_garbage(self) -> None:
        if self._is_stopped:
            return
        pressure = self._server.pressure
        behind: list[bool] = []  # empty if that is unknown: then publishers are not paused
        self._garbage.run(lambda: behind.append(self._server.storage.upkeep.is_behind()))
        if any(behind):
            lasted_ns = self._server.environment.clock.monotonic_ns() - self._garbage_since_ns
            pressure.set(CLEANUP, lasted_ns > GARBAGE_SECONDS_MAX * 1e9)
            self._server.call_later(GARBAGE_POLL_SECONDS, self._check_garbage)
        else:
            pressure.set(CLEANUP, False)
            pressure.set(GARBAGE, False)

    def _check_disk(self) -> None:
        server = self._server
        self._unchecked_bytes = 0
        free = server.environment.files.free_bytes(server.storage.directory)
        is_full = server.storage.is_out_of_room or server.storage.is_on_disk_reserve
        is_short = is_full or free < server.settings.disk_free_min_bytes
        is_yielding = is_short and self._is_history_yielding(has_room=not is_full and free > PASS_BYTES_MIN)
        if not is_short:
            self._yielding = None
        if is_yielding and not server.pressure.has(HISTORY):
            server.call_later(GARBAGE_POLL_SECONDS, self._check_history)
        server.pressure.set(HISTORY, is_yielding)
        server.pressure.set(DISK, is_short and not is_yielding)

    def _is_history_yielding(self, has_room: bool) -> bool:
        """Once for each shortage of the disk, history is purged before publishers are blocked, and garbage is collected
        if there is room for that. True until the purge has ended, for a limited time: it may wait for a compaction."""
        server, now_ns = self._server, self._server.environment.clock.monotonic_ns()
        if self._yielding is None:
            self._yielding = server.storage.purges.begun, now_ns
            server.storage.purge_soon()
            if has_room:
                server.storage.upkeep.request_pass()
        begun, since_ns = self._yielding
        return server.storage.purges.ended <= begun and now_ns - since_ns < HISTORY_SECONDS_MAX * 1e9

    def _check_history(self) -> None:
        if self._is_stopped or not self._server.pressure.has(HISTORY):
            return
        is_known: list[bool] = []  # empty if the check of free space fails: then publishers are not paused

        def check() -> None:
            self._check_disk()
            is_known.append(True)

        self._disk.run(check)
        if not is_known:
            self._server.pressure.set(HISTORY, False)
        elif self._server.pressure.has(HISTORY):
            self._server.call_later(GARBAGE_POLL_SECONDS, self._check_history)
