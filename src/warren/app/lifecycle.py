"""The life cycle of a broker process, in one event loop.

    bind ──▶ open ──▶ accept ──▶ ready ──signal──▶ drain ──▶ close       a second signal: no more waiting for clients
                                   │ SIGHUP: the event log is opened again, certificates of TLS are read again
                                   └──the log failed──▶ stop at once, end with an error

* Ports are bound before the directory is opened: a port in use is refused at once, and clients that connect during a
  recovery wait in the backlog. Nothing is accepted, so nothing is answered, before everything durable is recovered.
* The service manager is notified of each step (`service_manager`).
* Objects of the start are frozen for the garbage collector. The thread switch interval is short, so that a finished
  sync does not wait for a long step of the event loop.
* Every client and every file of log and store is an open file. Many systems start processes with a soft limit of 1,024
  and a far higher hard limit: the broker raises the soft limit to the hard one, and logs if that is too low.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final

import uvloop

from warren.app import event_log
from warren.app.broker import Broker
from warren.app.control import ServerControl
from warren.app.service_manager import ServiceManager
from warren.base.build import mode
from warren.base.errors import Refused
from warren.config.configuration import Configuration
from warren.config.data_directory import SOCKET
from warren.files.atomic import replace
from warren.files.protocol import join
from warren.management import http_server
from warren.management.broker_facts import Listener
from warren.server.server import AMQP, AMQPS, listening_sockets

_LOG = logging.getLogger(__name__)
FILES_MIN: Final = 1024  # for files, and for clients that have logged in
UNLIMITED_FILES: Final = 1 << 20  # what Linux grants if the hard limit is unlimited (fs.nr_open)


def raise_limit(half_open_max: int) -> int:
    """Raise the soft limit on open files to the hard one; the limit afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED_FILES if hard == resource.RLIM_INFINITY else hard
    if soft not in (wanted, resource.RLIM_INFINITY):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            facts = {"soft": soft, "hard": hard, "why": error}
            _LOG.warning("limit on open files not raised", extra={"facts": facts})
    needed = half_open_max + FILES_MIN
    if soft != resource.RLIM_INFINITY and soft < needed:
        hint = "raise the hard limit (ulimit -Hn, LimitNOFILE=), or lower half_open_max"
        _LOG.warning("limit on open files too low", extra={"facts": {"limit": soft, "needed": needed, "hint": hint}})
    return soft


GENERATION_0 = 50_000  # new objects between two collections of the youngest generation
GENERATIONS_1_2 = (20, 50)
SWITCH_SECONDS = 0.0001  # about how long a thread that returns from the disk waits for the interpreter
FAILURE_POLL_SECONDS = 0.25
CALLBACK_ALARM_SECONDS = 10.0  # without a failed callback, after which the alarm is cleared

PrintLine = Callable[[str], None]


class BoundPorts:
    """Sockets that clients can connect to, and that nothing accepts from yet. Refused if a port is in use."""

    def __init__(self, configuration: Configuration) -> None:
        server = configuration.server
        management_host = configuration.management_host or server.host
        tls_host = configuration.management_ssl_host or management_host
        self.amqp: list[socket.socket] = []
        self.amqps: list[socket.socket] = []
        self.management: socket.socket | None = None
        self.management_tls: socket.socket | None = None
        self.prometheus: socket.socket | None = None
        with ExitStack() as undo:
            undo.callback(self.close)
            for host, port in server.plain_listeners:
                self.amqp += _bound(host or server.host, port, "--port")
            for host, port in server.tls_listeners:
                self.amqps += _bound(host or server.host, port, "listeners.ssl")
            if configuration.management_port is not None:
                self.management = http_server.tcp_listener(management_host, configuration.management_port)
            if configuration.management_ssl_port is not None:
                self.management_tls = http_server.tcp_listener(tls_host, configuration.management_ssl_port)
            self.prometheus = http_server.tcp_listener(management_host, configuration.prometheus_port)
            undo.pop_all()

    def close(self) -> None:
        for each in (*self.amqp, *self.amqps, self.management, self.management_tls, self.prometheus):
            if each is not None:
                each.close()

    def __enter__(self) -> BoundPorts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bound(host: str, port: int, option: str) -> list[socket.socket]:
    where = _address(host, port)
    try:
        return listening_sockets(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = f"stop the other process, or choose another {option}"
            raise Refused(f"address {where} is already in use", hint) from error
        raise Refused(f"cannot listen at {where}: {error.strerror or error}", "choose another --host") from error


def run(
    broker: Broker,
    print_line: PrintLine,
    began_ns: int,
    ports: BoundPorts | None = None,
    manager: ServiceManager | None = None,
) -> bool:
    """Serve until a signal, then close the broker. Raises the error that ended it, if any. `began_ns`: start of the
    process, by the monotonic clock. `ports`: bound before the broker was opened. False: threads are left that wait for
    disk space."""
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_limit(broker.settings.half_open_max)
    pid_file = broker.configuration.pid_file
    try:
        if pid_file:
            replace(broker.environment.files, pid_file, [f"{os.getpid()}\n".encode()])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(broker, print_line, began_ns, ports, manager or ServiceManager({})))
    finally:
        is_stuck = broker.is_stuck
        broker.close()
        if pid_file and broker.environment.files.exists(pid_file):
            broker.environment.files.remove(pid_file)
    if broker.failure is not None:
        _LOG.critical("stopped", extra={"facts": {"why": broker.failure}})
        raise broker.failure
    if is_stuck:
        _LOG.critical("stopped on a full disk: the next start recovers everything durable")
    else:
        _LOG.info("stopped", extra={"facts": {"directory": broker.configuration.places.directory}})
    return not is_stuck


async def _serve(
    broker: Broker, print_line: PrintLine, began_ns: int, ports: BoundPorts | None, manager: ServiceManager
) -> None:
    shutdown = Shutdown(asyncio.get_running_loop(), broker, manager)
    ports = ports or BoundPorts(broker.configuration)
    await broker.server.start(ports.amqp, ports.amqps)
    tls = {AMQPS: broker.configuration.tls}
    broker.listeners = [Listener(*address, tls.get(address[0])) for address in broker.server.addresses]
    try:
        management = await _manage(broker, ports)
        try:
            _print_addresses(broker, management, print_line)
            _freeze_objects()
            seconds = (broker.environment.clock.monotonic_ns() - began_ns) / 1e9
            _LOG.info("ready", extra={"facts": {"seconds": f"{seconds:.2f}", "kernels": mode()}})
            print_line(f"ready in {seconds:.2f} s")
            where = ", ".join(_address(host, port) for _, host, port in broker.server.addresses)
            manager.ready(f"serving AMQP at {where}")
            await shutdown.has_begun.wait()
            manager.stopping()
            await _drain(broker, shutdown)
        finally:
            await management.stop()
    finally:
        await broker.server.stop(0.0)


class Shutdown:
    """Whether the broker stops, and how fast: signals, a command, and failures of the log."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, manager: ServiceManager) -> None:
        self.has_begun = asyncio.Event()
        self.is_urgent = asyncio.Event()
        self._loop = loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload, broker)
        broker.server.on_failure = lambda error: self._failed()
        self._callbacks = LoopCallbacks(loop, broker)
        self._watching = loop.create_task(self._watch(broker, manager))

    def _signalled(self, number: signal.Signals) -> None:
        """A third signal ends the process at once."""
        is_second = self.has_begun.is_set()
        event = "stopping at once" if is_second else "stopping: draining clients"
        _LOG.info(event, extra={"facts": {"signal": signal.Signals(number).name}})
        if is_second:
            self.is_urgent.set()
            for each in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(each)
        self.has_begun.set()

    def _check_command(self, control: ServerControl) -> None:
        if control.is_stop_requested and not self.has_begun.is_set():
            _LOG.info("stopping: draining clients", extra={"facts": {"command": "stop"}})
            self.has_begun.set()

    def _reload(self, broker: Broker) -> None:
        """SIGHUP. Certificates are read in a thread."""
        event_log.reopen()
        _LOG.info("event log reopened", extra={"facts": {"signal": "SIGHUP"}})
        if broker.tls.is_on:
            task = broker.environment.background.task("certificates", "certificates are not reloaded")
            self._loop.run_in_executor(None, task.run, broker.tls.reload)

    def _failed(self) -> None:
        self.is_urgent.set()
        self.has_begun.set()

    async def _watch(self, broker: Broker, manager: ServiceManager) -> None:
        """Poll for failures: there may be no waiter when the disk fails. Feeds the watchdog of the service manager."""
        notified_at = self._loop.time()
        try:
            while broker.failure is None:
                await asyncio.sleep(FAILURE_POLL_SECONDS)
                self._callbacks.clear_if_quiet()
                if manager.watchdog_seconds and self._loop.time() - notified_at >= manager.watchdog_seconds:
                    manager.alive()
                    notified_at = self._loop.time()
                self._check_command(broker.control)
        except Exception as error:  # otherwise a later failure of the log would go unnoticed
            broker.server.fail(error)
        _LOG.critical("log failed: nothing is confirmed any more", extra={"facts": {"why": broker.failure}})
        self._failed()


class LoopCallbacks:
    """Exceptions of the loop's callbacks, timers and protocols: an alarm of the background task `event-loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        self._loop = loop
        self._task = broker.environment.background.task("event-loop", "a callback of the event loop failed")
        self._failed_at = 0.0
        loop.set_exception_handler(self._handle)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Exception):
            loop.default_exception_handler(context)
            return
        self._failed_at = loop.time()
        self._task.failed(error)

    def clear_if_quiet(self) -> None:
        if self._loop.time() - self._failed_at >= CALLBACK_ALARM_SECONDS:
            self._task.succeeded()


async def _drain(broker: Broker, shutdown: Shutdown) -> None:
    """Close the clients' connections and wait for them, unless the shutdown is urgent."""
    broker.begin_draining()
    seconds = broker.settings.drain_seconds
    draining = asyncio.ensure_future(broker.server.stop(seconds))
    urgent = asyncio.ensure_future(shutdown.is_urgent.wait())
    await asyncio.wait({draining, urgent}, return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, urgent):
        task.cancel()
    await asyncio.gather(draining, urgent, return_exceptions=True)


async def _manage(broker: Broker, ports: BoundPorts) -> http_server.ManagementServer:
    configuration = broker.configuration
    path = join(configuration.places.directory, SOCKET)
    https = None
    if ports.management_tls is not None:
        assert broker.tls.management is not None, "its certificate was read"
        https = http_server.HttpsPort(ports.management_tls, broker.tls.management)
    return await http_server.start(
        broker, "", ports.management, ports.prometheus, path, configuration.management, https=https
    )


def _print_addresses(broker: Broker, management: http_server.ManagementServer, print_line: PrintLine) -> None:
    """The process that started the broker reads these lines."""
    addresses = [
        ({AMQP: "amqp", AMQPS: "amqps"}[protocol], _address(host, port))
        for protocol, host, port in broker.server.addresses
    ]
    for scheme in (http_server.HTTP, http_server.HTTPS):
        if scheme in management.addresses:
            addresses.append(("management", f"{scheme}://{_address(*management.addresses[scheme])}"))
    addresses.append(("prometheus", f"http://{_address(*management.addresses[http_server.PROMETHEUS])}/metrics"))
    for protocol, address in addresses:
        _LOG.info("listening", extra={"facts": {"protocol": protocol, "address": address}})
        print_line(f"{protocol} {address}")


def _freeze_objects() -> None:
    """Objects of the start live on: exclude them from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GENERATION_0, *GENERATIONS_1_2)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
