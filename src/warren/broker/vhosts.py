"""All vhosts that are served, by name.

They share one storage, and one watermark for the messages of all their queues.
"""

from __future__ import annotations

from warren.base.errors import Refused, WarrenError
from warren.broker.dead_letters import RoutedDeadLetterRoutes
from warren.broker.errors import QueuesClosed
from warren.broker.exchanges.routing import load
from warren.broker.memory_monitor import MemoryMonitor
from warren.broker.queue_api import QueueApi
from warren.broker.queue_handle import PagedQueueAdapter
from warren.broker.realm import Vhost
from warren.broker.storage import QueueStorage
from warren.broker.vhost import TOGETHER, VhostQueues
from warren.catalog import bindings, exchanges, queues, vhosts
from warren.catalog.vhosts import VhostRow
from warren.files.environment import Environment
from warren.queues.settings import QueueSettings


class UnknownVhost(Refused):
    """There is no vhost of this name (AMQP: 530)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"vhost {name!r} not found", "declare it first")


class Vhosts:
    def __init__(self, storage: QueueStorage, environment: Environment, settings: QueueSettings) -> None:
        self._storage = storage
        self._environment = environment
        self._settings = settings
        self._by_name: dict[str, Vhost] = {}
        self._lock = environment.threads.condition()
        self._is_closing = False
        self.monitor = MemoryMonitor(environment.threads, settings.memory_watermark_bytes, self._paged)

    def begin(self) -> None:
        """Serve every vhost that there is."""
        with self._storage.catalog.reading() as connection:
            rows = vhosts.every(connection)
        for row in rows:
            self.open(row)

    def open(self, row: VhostRow) -> Vhost:
        """Serve a vhost; the one that is served already, if it is."""
        with self._lock:
            found = self._by_name.get(row.name)
            if found is not None and found.vhost.id == row.id:
                return found
            with self._storage.catalog.reading() as connection:
                routing = load(
                    exchanges.every(connection, row.id),
                    queues.every(connection, row.id),
                    bindings.every(connection, row.id),
                )
            threads = self._environment.threads
            lock = threads.condition()
            dead_letter_routes = RoutedDeadLetterRoutes(routing, lock)
            host = VhostQueues(
                row.id, self._storage, self._environment, self._settings, self.monitor, dead_letter_routes
            )
            vhost = Vhost(row, host, routing, QueueApi(host, threads), lock)
            self._by_name[row.name] = vhost
        host.begin()
        return vhost

    def find(self, name: str) -> Vhost:
        found = self._by_name.get(name)
        if found is None:
            raise UnknownVhost(name)
        return found

    def every(self) -> list[Vhost]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def warm_up(self) -> None:
        """Start every queue that was not asked for yet, some at a time; ends early when all is closed."""
        for vhost in self.every():
            with self._storage.catalog.reading() as connection:
                rows = queues.every(connection, vhost.vhost.id)
            for start in range(0, len(rows), TOGETHER):
                if self._is_closing:
                    return
                try:
                    vhost.queues.start_together(rows[start : start + TOGETHER])
                except QueuesClosed:
                    return
                except WarrenError as error:  # a request for one of them gets the error again
                    vhost.queues.tell(f"queues could not be started: {error.what}")

    def settle_soon(self) -> None:
        """What was written is to be durable in a moment; nobody waits for it."""
        for vhost in self._by_name.values():
            vhost.queues.settle_soon()
            return  # they share one log

    def problems(self) -> list[str]:
        return [problem for vhost in self.every() for problem in vhost.queues.problems]

    def close_soon(self) -> None:
        """Begin nothing that takes long."""
        self._is_closing = True

    def close(self) -> None:
        for vhost in self.every():
            vhost.queues.close()

    def _paged(self) -> list[PagedQueueAdapter]:
        return [each for vhost in list(self._by_name.values()) for each in vhost.queues.paged()]
