"""A server as the management sees it, over a real database, and HTTP over real sockets; AMQP where a test uses it.

The loop is uvloop's, in a thread of its own, as the broker's would be; tests send requests with httpx.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import uvloop

from warren.amqp.methods import QueueDeclare
from warren.base.ids import TimelineId
from warren.base.messages import Publication
from warren.broker.auth.administration import Administration
from warren.broker.auth.passwords import Hashing, hashed
from warren.broker.auth.permissions import Access
from warren.broker.confirms import Confirms
from warren.broker.counters import MessageCounters
from warren.broker.declarations.dispatch import Declarations
from warren.broker.queue_handle import QueueHandle
from warren.broker.storage import QueueStorage
from warren.broker.vhost import Client, Owner, Vhost
from warren.broker.vhosts import Vhosts
from warren.catalog import permissions, users, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.database import place_of
from warren.catalog.settings import CatalogSettings
from warren.catalog.vhosts import VhostRow
from warren.files.environment import Environment
from warren.management.broker_facts import Alarm, Listener
from warren.management.http_server import ManagementServer, start
from warren.management.requests import HttpRoute, ManagementSettings
from warren.management.routes import ROUTES
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.server.authentication import UserAuthentication
from warren.server.clients import Clients
from warren.server.server import Server
from warren.server.settings import ServerSettings
from warren.snapshot.database import Database
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import SnapshotStore

Result = TypeVar("Result")
PASSWORD = "secret"
NODE = "warren@test"
AMQP = Listener("amqp", "127.0.0.1", 5672)


@dataclass
class StageControl:
    """Records what is requested: there is no server whose clients could be suspended."""

    requested: list[tuple[Any, ...]] = field(default_factory=list)

    def stop(self) -> None:
        self.requested.append(("stop",))

    def suspend_clients(self) -> None:
        self.requested.append(("suspend",))

    def resume_clients(self) -> None:
        self.requested.append(("resume",))

    def set_memory_limit(self, absolute: str | None, relative: float | None) -> int:
        self.requested.append(("memory", absolute, relative))
        return 1

    def set_disk_limit(self, absolute: str | None, relative: float | None) -> int:
        self.requested.append(("disk", absolute, relative))
        return 1

    def set_log_level(self, category: str, level: str) -> None:
        self.requested.append(("level", category, level))

    def reopen_log(self) -> None:
        self.requested.append(("reopen",))

    def environment(self) -> dict[str, dict[str, str]]:
        return {"Running": {"a": "b"}}


@dataclass
class StageRunning:
    """Is a `Running`, of which tests change what they are about."""

    database: Database
    catalog: Catalog
    vhosts: Vhosts
    environment: Environment
    users: UserAuthentication
    administration: Administration
    clients: Clients
    counts: MessageCounters = field(default_factory=MessageCounters)
    settings: ServerSettings = field(default_factory=ServerSettings)
    version: str = "0.1"
    node: str = NODE
    started_ns: int = 0
    listeners: Sequence[Listener] = (AMQP,)
    alarms: Sequence[Alarm] = ()
    damage: Sequence[str] = ()
    problems: Sequence[str] = ()
    memory_limit_bytes: int = 1 << 30
    is_draining: bool = False
    connection_count: int = 3
    channel_count: int = 5
    control: StageControl = field(default_factory=StageControl)


class ManagementStage:
    """Open from the beginning until `close`: a database, a vhost "/", the user `admin`, and the management."""

    def __init__(
        self,
        directory: Path,
        settings: ManagementSettings | None = None,
        routes: Sequence[HttpRoute] = ROUTES,
        socket_path: str | None = None,
    ) -> None:
        self.directory = str(directory)
        self.socket_path = socket_path or f"{directory}/warren.sock"
        self._closing = ExitStack()
        with ExitStack() as opened:
            self._open_storage(opened)
            self.home = self.vhost("/")
            self.user("admin", "administrator")
            self.vhosts.begin()
            self._start_loop(opened)
            ports = "127.0.0.1", 0, 0
            self.serving: ManagementServer = self.run(start(self.broker, *ports, self.socket_path, settings, routes))
            opened.callback(lambda: self.run(self.serving.stop()))
            self._closing = opened.pop_all()

    def _open_storage(self, opened: ExitStack) -> None:
        environment = Environment.real()

        def open_store(directory: str, timeline: TimelineId) -> SnapshotStore:
            return RocksDbStore.open(directory, timeline, threads=environment.threads)

        self.database = Database.open(self.directory, open_store, environment=environment)
        opened.callback(self.database.close)
        place = place_of(environment.files, environment.rng, self.directory, CatalogSettings())
        self.catalog = Catalog.open(self.database, place, environment.threads)
        opened.callback(self.catalog.close)
        queues = QueueSettings()
        storage = QueueStorage(self.database, self.catalog, queues, VariableQueueSettings(), MessageStoreSettings())
        opened.callback(storage.close)
        self.vhosts = Vhosts(storage, environment, queues)
        opened.callback(self.vhosts.close)
        server = ServerSettings(port=0, login_delay_seconds=0.0)
        authentication = UserAuthentication(self.catalog, environment, server)
        administration = Administration(self.catalog, self.vhosts, environment.threads)
        confirms = Confirms(environment.threads, self.database.log.wait, environment.background)
        opened.callback(confirms.stop)
        counts = MessageCounters()
        self.server = Server(self.vhosts, storage, authentication, server, counts, environment, confirms)
        opened_parts = self.database, self.catalog, self.vhosts, environment, authentication, administration
        self.broker = StageRunning(*opened_parts, Clients(self.server), counts, settings=server)
        self.broker.started_ns = environment.clock.wall_ns()

    def _start_loop(self, opened: ExitStack) -> None:
        self._loop = uvloop.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="the broker's loop")
        thread.start()

        def end() -> None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

        opened.callback(end)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def serve_amqp(self) -> int:
        """The port on which AMQP is served from now on."""
        _, port = self.run(self.server.start())
        self._closing.callback(lambda: self.run(self.server.stop(0.0)))
        return port

    # -- what is there -------------------------------------------------------------------------------------------

    def vhost(self, name: str) -> VhostRow:
        row = self.catalog.change(lambda change: vhosts.declare(change, name))
        self.vhosts.open(row)
        return row

    def user(self, name: str, *tags: str, vhost: str | None = None, pattern: str = ".*") -> None:
        """With so much permitted in a vhost, if one is named."""
        hash_text = hashed(PASSWORD, self.broker.environment.rng)
        row = self.catalog.change(lambda change: users.put(change, name, hash_text, Hashing.SCRYPT.value, tags))
        if vhost is not None:
            where = self.vhosts.find(vhost).row.id
            self.catalog.change(lambda change: permissions.put(change, row.id, where, pattern, pattern, pattern))

    def queue(self, name: str, vhost: str = "/", *bodies: bytes, **arguments: Any) -> QueueHandle:
        """As a client would declare it; `max_length=5` is the argument x-max-length."""
        found = self.vhosts.find(vhost)
        client = Client(Access("a user", vhost, ".*", ".*", ".*", {}), Owner("a test"))
        table = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        declarations = Declarations(found, self.broker.counts)
        declarations.answer(client, QueueDeclare(queue=name, durable=True, arguments=table))
        handle = found.find_queue(name)
        if bodies:
            self.put(found, handle, *bodies)
        return handle

    def put(self, open_vhost: Vhost, handle: QueueHandle, *bodies: bytes) -> None:
        now_ms = self.broker.environment.clock.wall_ns() // 1_000_000
        self.database.log.wait(open_vhost.queue_api.put(Publication(list(bodies), published_ms=now_ms), [handle]))

    # -- requests ------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        host, port = self.serving.addresses["http"]
        return f"http://{host}:{port}"

    @property
    def metrics_url(self) -> str:
        host, port = self.serving.addresses["http/prometheus"]
        return f"http://{host}:{port}"

    def client(self, user: str | None = "admin", **headers: str) -> httpx.Client:
        auth = None if user is None else httpx.BasicAuth(user, PASSWORD)
        return httpx.Client(base_url=self.url, auth=auth, headers=headers, timeout=30, trust_env=False)

    def local(self) -> httpx.Client:
        """By the socket of this machine."""
        transport = httpx.HTTPTransport(uds=self.socket_path)
        return httpx.Client(base_url="http://warren", transport=transport, timeout=30)

    def get(self, path: str, user: str | None = "admin", **headers: str) -> httpx.Response:
        with self.client(user, **headers) as client:
            return client.get(path)

    def metrics(self, path: str = "/metrics") -> str:
        response = httpx.get(self.metrics_url + path, timeout=30, trust_env=False)
        assert response.status_code == 200, response.text
        return response.text
