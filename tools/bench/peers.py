"""Other brokers, started privately: the benchmark and the interoperability tests hold Warren against them.

    start_rabbitmq(directory)   RabbitMQ as its package installs it, no plugins, guest/guest, with an epmd of its own
    start_redis(directory)      Redis; what is appended is synced before it is answered, or once a second
    start_nats(directory)       NATS with JetStream

    with start_rabbitmq(directory) as rabbitmq:
        … rabbitmq.port …
        rabbitmq.kill()         SIGKILL to all its processes at once, as a power cut would end them
        rabbitmq.restart()      the same data, the same port
        rabbitmq.pause()        SIGSTOP to all of them: it does nothing, and keeps everything, …
        rabbitmq.resume()       … until it resumes, and answers

Ports are free ones of 127.0.0.1; data, logs, home and cookie are below the directory. A peer's processes are those
below the ones we started, and those that have our mark in their environment, which they inherit however they detach
themselves: when the block ends, none of them is left. A peer that is not installed is refused with its package's name.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tools.bench.process_tree import cpu_seconds_of, status_mib, tree_of
from warren.base.errors import Refused

HOST = "127.0.0.1"
RABBITMQ_HOME = Path("/usr/lib/rabbitmq/bin")
AMQP_HEADER = b"AMQP\x00\x00\x09\x01"

_MARK = "WARREN_PEER"
_START_SECONDS_MAX = 600  # RabbitMQ reads a large queue before it listens
_STOP_SECONDS_MAX = 60
_POLL_SECONDS = 0.02
_SETTLE_SECONDS_MAX = 5.0
_SETTLE_LOOK_SECONDS = 0.3
_SETTLED_SHARE = 0.1  # of a core
_HOLD_SECONDS = 0.002
_NOT_RUNNING = "TtZX"  # held, or ended


class NotInstalled(Refused):
    """There is no such peer on this machine."""


@dataclass(frozen=True, slots=True)
class PeerProcess:
    """One process of a peer, and the port that answers once it is ready."""

    command: Sequence[str]
    port: int
    hello: bytes  # what a client says first; any answer will do
    environment: Mapping[str, str] = field(default_factory=dict)


class Peer:
    """A broker that runs; made by the functions below."""

    def __init__(self, name: str, directory: Path, parts: Sequence[PeerProcess]) -> None:
        self.name = name
        self.directory = directory
        self.port = parts[-1].port
        self._parts = parts
        self._mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The broker's own process."""
        return self._started[-1].pid

    def pids(self) -> list[int]:
        """All its processes that live."""
        ours = {process.pid for started in self._started if started.poll() is None for process in tree_of(started.pid)}
        return sorted(ours | _marked(self._mark))

    def resident_mb(self) -> float:
        """What all its processes have in memory now."""
        return sum(status_mib(pid, "VmRSS") for pid in self.pids()) * (1 << 20) / 1e6

    def start(self) -> None:
        for part in self._parts:
            self._started.append(self._run(part))
            self._await(part, self._started[-1], "did not start")

    def kill(self) -> None:
        """End everything at once, held or not."""
        while alive := self.pids():
            _signal(alive, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        for started in self._started:
            started.wait()
        self._started = []

    def pause(self) -> None:
        """Hold it: when this returns, no thread of it runs. One that is being started by another is found by looking
        again, since a stopped process starts none."""
        while running := [pid for pid in self.pids() if _runs(pid)]:
            _signal(running, signal.SIGSTOP)
            time.sleep(_HOLD_SECONDS)

    def settle(self) -> bool:
        """Give it time to finish what it has left to do in the background: until it hardly computes, or for some
        seconds. Whether it has settled."""
        end = time.monotonic() + _SETTLE_SECONDS_MAX
        while time.monotonic() < end:
            before = cpu_seconds_of(self.pids())
            time.sleep(_SETTLE_LOOK_SECONDS)
            if cpu_seconds_of(self.pids()) - before <= _SETTLED_SHARE * _SETTLE_LOOK_SECONDS:
                return True
        return False

    def resume(self) -> None:
        """Let it go on, and wait until it answers."""
        _signal(self.pids(), signal.SIGCONT)
        for part, process in zip(self._parts, self._started, strict=True):
            self._await(part, process, "did not go on")

    def stop(self) -> None:
        """Send SIGTERM and wait for the end; then kill its helper processes. A stopped broker is resumed first."""
        if self._started:
            broker = self._started[-1]
            broker.terminate()
            _signal(self.pids(), signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                broker.wait(_STOP_SECONDS_MAX)
        self.kill()

    def restart(self) -> None:
        """Start it again on what it has kept; it is stopped first, if it runs."""
        self.stop()
        self.start()

    def _run(self, part: PeerProcess) -> subprocess.Popen[bytes]:
        with (self.directory / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                part.command,
                cwd=self.directory,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self.directory),
                    "LANG": "C.UTF-8",
                    _MARK: self._mark,
                    **part.environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, part: PeerProcess, process: subprocess.Popen[bytes], what_failed: str) -> None:
        end = time.monotonic() + _START_SECONDS_MAX
        while not _answers(part.port, part.hello):
            if process.poll() is not None or time.monotonic() > end:
                output = (self.directory / f"{self.name}.log").read_text(errors="replace")[-2000:]
                self.kill()
                raise Refused(f"{self.name} {what_failed}: {output}", f"see the logs in {self.directory}")
            time.sleep(_POLL_SECONDS)


def start_rabbitmq(directory: Path) -> Peer:
    _require(RABBITMQ_HOME / "rabbitmq-server", "rabbitmq-server")
    directory = make_directory(directory)
    plugins, settings = directory / "enabled_plugins", directory / "rabbitmq.conf"
    plugins.write_text("[].\n")
    settings.write_text("")
    epmd_port, port, distribution_port = free_ports(3)
    epmd = {"ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": HOST}
    environment = {
        **epmd,
        "RABBITMQ_NODENAME": f"peer{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "rabbitmq.pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none.conf"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
        "RABBITMQ_ALLOW_INPUT": "1",  # else a shell stays around it, to no use
    }
    parts = [
        PeerProcess(["epmd", "-port", str(epmd_port), "-address", HOST], epmd_port, b"\x00\x01n", epmd),
        PeerProcess([str(RABBITMQ_HOME / "rabbitmq-server"), "-noinput"], port, AMQP_HEADER, environment),
    ]
    return started(Peer("rabbitmq", directory, parts))


def start_redis(directory: Path, synced: str = "always") -> Peer:
    """`synced` is what Redis calls appendfsync: always, everysec or no."""
    _require(Path("/usr/bin/redis-server"), "redis-server")
    directory = make_directory(directory)
    (port,) = free_ports(1)
    options = {"port": str(port), "bind": HOST, "dir": str(directory), "save": "", "daemonize": "no"}
    options |= {"appendonly": "yes", "appendfsync": synced}
    command = ["/usr/bin/redis-server", *(word for name, value in options.items() for word in (f"--{name}", value))]
    return started(Peer("redis", directory, [PeerProcess(command, port, b"PING\r\n")]))


def start_nats(directory: Path) -> Peer:
    _require(Path("/usr/sbin/nats-server"), "nats-server")
    directory = make_directory(directory)
    (port,) = free_ports(1)
    command = ["/usr/sbin/nats-server", "-a", HOST, "-p", str(port), "-js", "-sd", str(directory)]
    return started(Peer("nats", directory, [PeerProcess(command, port, b"")]))


def free_ports(count: int) -> list[int]:
    """Ports without a listener."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def started(peer: Peer) -> Peer:
    try:
        peer.start()
    except BaseException:
        peer.kill()
        raise
    return peer


def make_directory(directory: Path) -> Path:
    """Its full name: a peer has another working directory than we have."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def _require(program: Path, package: str) -> None:
    if not program.exists() or shutil.which(program) is None:
        raise NotInstalled(f"{package} is not installed, so there is nothing to compare with", f"apt install {package}")


def _answers(port: int, hello: bytes) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=5) as client:
            client.sendall(hello)
            return bool(client.recv(1))
    except OSError:
        return False


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _runs(pid: int) -> bool:
    """Whether any of its threads does, or waits for something."""
    try:
        threads = [task.read_text(errors="replace") for task in Path("/proc", str(pid), "task").glob("*/stat")]
    except OSError:  # one ended meanwhile
        return Path("/proc", str(pid)).exists()
    return any(stat.rpartition(")")[2].split()[0] not in _NOT_RUNNING for stat in threads)


def _marked(mark: str) -> set[int]:
    """Processes with this mark in their environment, wherever they went. One that ended has no environment left, though
    it may not have been reaped yet."""
    wanted = f"{_MARK}={mark}".encode()
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.add(int(entry))
    return found
