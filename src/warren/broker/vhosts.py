"""All vhosts that are served, by name. They share one storage, and one memory limit for the messages of all queues."""

from __future__ import annotations

from warren.base.errors import Refused, WarrenError
from warren.broker.errors import QueuesClosed
from warren.broker.memory_monitor import MemoryMonitor
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle
from warren.broker.storage import QueueStorage
from warren.broker.vhost import TOGETHER, Vhost
from warren.catalog import queues, vhosts
from warren.catalog.vhosts import VhostRow
from warren.files.environment import Environment
from warren.queues.settings import QueueSettings


class UnknownVhost(Refused):
    """There is no vhost of this name (AMQP: 530)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"vhost {name!r} not found", "declare it first")
        self.name = name


class Vhosts:
    """Thread-safe: `_by_name` is replaced, never changed."""

    def __init__(self, storage: QueueStorage, environment: Environment, settings: QueueSettings) -> None:
        self._storage = storage
        self._environment = environment
        self._settings = settings
        self._by_name: dict[str, Vhost] = {}
        self._lock = environment.threads.condition()
        self._is_closing = False
        self.monitor = MemoryMonitor(environment.threads, settings.memory_watermark_bytes, self._handles)

    def begin(self) -> None:
        """Serve every vhost of the catalog."""
        with self._storage.catalog.reading() as connection:
            rows = vhosts.every(connection)
        for row in rows:
            self.open(row)

    def open(self, row: VhostRow) -> Vhost:
        """Serve a vhost, unless it is served already."""
        with self._lock:
            found = self._by_name.get(row.name)
            if found is not None and found.row.id == row.id:
                return found
            vhost = Vhost(row, self._storage, self._environment, self._settings, self.monitor)
            self._by_name = {**self._by_name, row.name: vhost}
        vhost.begin()
        return vhost

    def withdraw(self, row: VhostRow) -> Vhost | None:
        """A vhost was deleted from the catalog: from now on it is not found, and starts no queue. None if it was not
        served. The caller ends it (`Vhost.delete`)."""
        with self._lock:
            found = self._by_name.get(row.name)
            if found is None or found.row.id != row.id:
                return None
            self._by_name = {name: vhost for name, vhost in self._by_name.items() if vhost is not found}
        found.refuse_queues()
        return found

    def find(self, name: str) -> Vhost:
        found = self._by_name.get(name)
        if found is None:
            raise UnknownVhost(name)
        return found

    def check_kind(self, arguments: QueueArguments) -> None:
        """Refused if no queue can have these arguments."""
        self._storage.kinds.check(arguments)

    def every(self) -> list[Vhost]:
        by_name = self._by_name
        return [by_name[name] for name in sorted(by_name)]

    def warm_up(self) -> None:
        """Start every queue that was not used yet, some at a time; ends early at a stop."""
        for vhost in self.every():
            with self._storage.catalog.reading() as connection:
                rows = queues.every(connection, vhost.row.id)
            for start in range(0, len(rows), TOGETHER):
                if self._is_closing:
                    return
                try:
                    vhost.start_queues(rows[start : start + TOGETHER])
                except QueuesClosed:  # deleted, or the broker is closing
                    break
                except WarrenError as error:  # a request for one of them gets the error again
                    vhost.report_problem(f"queues could not be started: {error.what}")

    def commit_soon(self) -> None:
        """Make what was written durable after `settle_ms`. One vhost is enough: they share one log."""
        for vhost in self._by_name.values():
            vhost.commit_soon()
            return

    def problems(self) -> list[str]:
        return [problem for vhost in self.every() for problem in vhost.problems]

    def close_soon(self) -> None:
        """A stop follows: begin nothing that takes long."""
        self._is_closing = True

    def close(self) -> None:
        for vhost in self.every():
            vhost.close()

    def _handles(self) -> list[QueueHandle]:
        return [handle for vhost in list(self._by_name.values()) for handle in vhost.handles()]
