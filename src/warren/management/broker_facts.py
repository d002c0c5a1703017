"""Facts about the running broker, for the routes and the metrics.

    app ──creates──▶ BrokerView ◀──reads── routes, metrics

Every member may be read in any thread, and none of them waits.

`QueueFacts` combines the rows of the catalog with the numbers of the queues.

    catalog rows       one statement for all queues, and none while nothing was declared or deleted
    started queues     read under the lock of each
    other queues       not used since the start: counted in the index, once

No statistics are gathered and nothing is done per message. Reading the facts of a queue that was not used yet does not
start it: everything in it is ready, and stays so until it is started.

`process_facts` reads memory and open files of the process from /proc, through `Files`.

Invariants: `messages` is ready + unacknowledged; the numbers of one queue are consistent.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from warren.base.errors import WarrenError
from warren.base.ids import Epoch, QueueId, VhostId
from warren.broker.auth.administration import Administration
from warren.broker.counters import MessageCounters, QueueCounters
from warren.broker.policies import PolicyMatch
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.broker.storage import VARIABLE, places_of
from warren.broker.vhost import Vhost
from warren.broker.vhosts import Vhosts
from warren.catalog import queues
from warren.catalog.catalog import Catalog
from warren.catalog.queues import QueueRow as Row
from warren.catalog.users import UserRow
from warren.files.environment import Environment
from warren.files.protocol import Files
from warren.queues.backing_queue import MessageSizes
from warren.server.alarms import resident_bytes
from warren.server.authentication import Login, LoginAttempts
from warren.server.clients import Clients
from warren.server.settings import ServerSettings, TlsSettings
from warren.snapshot.database import Database

if TYPE_CHECKING:
    from warren.management.control import BrokerControl


class Alarm(StrEnum):
    """Reasons that block publishers; the value is RabbitMQ's name of the resource. RabbitMQ has no alarm for
    cleanup."""

    MEMORY = "memory"
    DISK = "disk"
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Listener:
    """A protocol served at an address."""

    protocol: str  # amqp, amqp/ssl, http, https, http/prometheus
    host: str
    port: int
    tls: TlsSettings | None = None  # with TLS


class UserDirectory(Protocol):
    """Checks logins (`server.authentication.Users`)."""

    def check(self, login: Login, peer: str) -> UserRow:
        """The user; `LoginRefused` if the login is wrong. May take long: not for the event loop."""
        ...

    def attempts(self) -> Sequence[LoginAttempts]: ...

    def reset_attempts(self) -> None: ...


class BrokerView(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def node(self) -> str:
        """The node name: warren@host."""
        ...

    @property
    def started_ns(self) -> int:
        """By the wall clock."""
        ...

    @property
    def environment(self) -> Environment: ...

    @property
    def database(self) -> Database: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def vhosts(self) -> Vhosts: ...

    @property
    def users(self) -> UserDirectory: ...

    @property
    def administration(self) -> Administration: ...

    @property
    def counts(self) -> MessageCounters: ...

    @property
    def settings(self) -> ServerSettings: ...

    @property
    def listeners(self) -> Sequence[Listener]:
        """Of the broker; the management adds its own."""
        ...

    @property
    def alarms(self) -> Sequence[Alarm]:
        """Alarms in effect."""
        ...

    @property
    def damage(self) -> Sequence[str]:
        """Damaged places on disk, by queue and file; part of `problems`."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """Problems that need an operator, as text."""
        ...

    @property
    def memory_limit_bytes(self) -> int:
        """Memory limit of the process; above it publishers are blocked."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether the broker is stopping: new clients are rejected."""
        ...

    @property
    def connection_count(self) -> int: ...

    @property
    def channel_count(self) -> int: ...

    @property
    def control(self) -> BrokerControl: ...

    @property
    def clients(self) -> Clients: ...


_NEVER = Epoch(0)
_NO_COUNTS = QueueCounters()


class QueueNumbers(NamedTuple):
    state: str  # running, or down: it failed too often
    ready: int = 0
    unacked: int = 0
    ready_bytes: int = 0
    memory_bytes: int = 0
    consumers: int = 0
    sizes: MessageSizes = MessageSizes()
    counts: QueueCounters = _NO_COUNTS

    @property
    def size_bytes(self) -> int:
        return self.ready_bytes + self.sizes.pending_bytes

    @property
    def paged_out(self) -> int:
        """Messages whose contents are on disk only."""
        return self.ready + self.unacked - self.sizes.ready_ram - self.sizes.pending_ram


class QueueFact(NamedTuple):
    vhost: str
    row: Row
    numbers: QueueNumbers
    policies: PolicyMatch = PolicyMatch()


class QueueFacts:
    """Thread-safe; two threads that miss a cached value both compute it."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._rows: tuple[Epoch, dict[VhostId, list[Row]]] = _NEVER, {}
        self._resting: dict[QueueId, QueueNumbers] = {}

    def of(self, vhosts: Iterable[Vhost]) -> list[QueueFact]:
        """Facts of all queues in these vhosts, by vhost and name."""
        rows = self.rows()
        return [fact for open_vhost in vhosts for fact in self._of_vhost(open_vhost, rows.get(open_vhost.row.id, []))]

    def one(self, open_vhost: Vhost, name: str) -> QueueFact | None:
        with self._broker.catalog.reading() as connection:
            row = queues.get(connection, open_vhost.row.id, name)
        return next(iter(self._of_vhost(open_vhost, [row] if row is not None else [])), None)

    def rows(self) -> dict[VhostId, list[Row]]:
        """Queue rows of the catalog; read again only after a change."""
        applied = self._broker.catalog.applied
        known, rows = self._rows
        if known == applied and known != _NEVER:
            return rows
        rows = {}
        with self._broker.catalog.reading() as connection:
            for row in queues.every(connection):
                rows.setdefault(row.vhost_id, []).append(row)
        self._rows = applied, rows  # at least as new as that
        there = {row.id for some in rows.values() for row in some}
        self._resting = {id_: numbers for id_, numbers in list(self._resting.items()) if id_ in there}
        return rows

    def _of_vhost(self, open_vhost: Vhost, rows: list[Row]) -> list[QueueFact]:
        started, name = open_vhost.started_queues(), open_vhost.row.name
        facts = []
        for row in rows:
            handle = started.get(row.id)
            if handle is not None and handle.is_deleted:  # its name is about to be removed
                continue
            numbers = self._at_rest(open_vhost, row) if handle is None else _at_work(handle)
            facts.append(QueueFact(name, row, numbers, open_vhost.policies.of_queue(row)))
        return facts

    def _at_rest(self, open_vhost: Vhost, row: Row) -> QueueNumbers:
        found = self._resting.get(row.id)
        if found is None:
            try:
                found = self._read_index(open_vhost, row)
            except WarrenError:
                return QueueNumbers("down")
            self._resting[row.id] = found
        return found

    def _read_index(self, open_vhost: Vhost, row: Row) -> QueueNumbers:
        storage = open_vhost.storage
        arguments = QueueArguments.from_table(row.arguments)
        if (arguments.backing or open_vhost.settings.backing) != VARIABLE:  # only the queue itself has the numbers
            return _at_work(open_vhost.find_queue(row.name))
        if not row.durable:
            return QueueNumbers("running")
        counters = [storage.recover(place, _NEVER) for place in places_of(row.id, arguments)]
        count, size_bytes = sum(each.count for each in counters), sum(each.size_bytes for each in counters)
        sizes = MessageSizes(persistent=count, persistent_bytes=size_bytes)
        return QueueNumbers("running", count, ready_bytes=size_bytes, sizes=sizes)


def _at_work(handle: QueueHandle) -> QueueNumbers:
    with handle.lock:
        queue = handle.queue
        if queue is None:
            return QueueNumbers("down")
        backing = queue.backing
        return QueueNumbers(
            "running",
            len(backing),
            backing.pending_count,
            backing.ready_bytes,
            backing.ram_bytes,
            len(queue.consumers),
            backing.sizes(),
            handle.counts,
        )


_PROC = "/proc/self"


class ProcessFacts(NamedTuple):
    resident_bytes: int
    open_files: int
    open_files_max: int


def process_facts(files: Files) -> ProcessFacts:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFacts(resident_bytes(files), len(files.list(f"{_PROC}/fd")), soft)
