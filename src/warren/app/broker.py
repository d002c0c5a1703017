"""The broker, assembled but not yet serving: database, catalog, first user, vhosts, authentication.

    lock, log, snapshot store ──▶ catalog ──▶ first user ──▶ leftovers ──▶ messages, vhosts ──▶ authentication
     (embedded/database)                          (embedded/queue_assembly)                 ──▶ definitions

Listeners start last (`lifecycle`): no client is answered before everything durable is recovered. A crash may interrupt
any step; the next start repeats it. The management reads the broker as its `BrokerView`.

The first start creates a vhost and a user with all permissions in it, so that a client can log in. It does so only
while the catalog has no user at all: a deleted guest stays deleted as long as there is another user, and a changed
password stays changed, whatever the configuration says. With `load_definitions` there is no first user, as in RabbitMQ:
the definitions are imported at every start, before clients are served, and a start fails with them.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from warren import __version__
from warren.app.control import ServerControl
from warren.base.environment import Random
from warren.base.errors import OutOfRoom
from warren.broker.auth.administration import Administration
from warren.broker.auth.passwords import NEW_PASSWORDS, Hashing, hashed
from warren.broker.auth.permissions import check_patterns
from warren.broker.counters import MessageCounters
from warren.broker.vhosts import Vhosts
from warren.catalog import permissions, users, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.rows import RowWriter
from warren.config.configuration import Configuration, FirstUser
from warren.embedded.database import open_database, served
from warren.embedded.queue_assembly import OpenQueues
from warren.files.environment import Environment
from warren.log.settings import CONTAINER_BYTES_MIN, LogSettings
from warren.management.broker_facts import Alarm, Listener
from warren.management.definitions import load_definitions
from warren.server.authentication import UserAuthentication
from warren.server.clients import Clients
from warren.server.server import Server
from warren.server.settings import ServerSettings
from warren.snapshot.database import Database
from warren.workers.control_socket import ControlServer
from warren.workers.tasks import Progress

_LOG = logging.getLogger(__name__)


def make_first_user(catalog: Catalog, rng: Random, first: FirstUser, hashing: Hashing = Hashing.SCRYPT) -> bool:
    """Create the first user unless there is a user; whether it was created."""
    with catalog.reading() as connection:
        if users.every(connection):
            return False
    check_patterns(first.configure, first.write, first.read)
    password_hash = hashed(first.password, rng, hashing=hashing)
    catalog.change(partial(_create_first_user, first=first, password_hash=password_hash, hashing=hashing))
    _LOG.info("first user created", extra={"facts": {"user": first.name, "vhost": first.vhost}})
    return True


def _create_first_user(change: RowWriter, first: FirstUser, password_hash: str, hashing: Hashing) -> None:
    vhost = vhosts.declare(change, first.vhost)
    user = users.put(change, first.name, password_hash, hashing.value, first.tags)
    permissions.put(change, user.id, vhost.id, first.configure, first.write, first.read)


GATHERED_BLOCKS_MAX = (
    1 << 16
)  # the event loop never waits for the disk; the server stops reading from publishers instead
MEMTABLES_BYTES = 16 << 20  # two memtables of the store
ROOM_POLL_SECONDS = 1.0  # between two attempts to start on a full disk
ROOM_POLLS_PER_LINE = 60


class Broker:
    """Created by `open_broker`; closed after the listeners have stopped."""

    def __init__(
        self,
        configuration: Configuration,
        environment: Environment,
        database: Database,
        queues: OpenQueues,
        control: ControlServer | None,
    ) -> None:
        self.configuration = configuration
        self.environment = environment
        self.database = database
        self.counts = MessageCounters()
        self.users = UserAuthentication(queues.catalog, environment, configuration.server)
        self.version = __version__
        self.node = f"warren@{platform.node().partition('.')[0] or 'localhost'}"
        self.started_ns = environment.clock.wall_ns()
        self._listeners: Sequence[Listener] = ()
        self._is_stopping = False
        self._queues = queues
        self._control = control
        settings, counts = configuration.server, self.counts
        self.server = Server(queues.vhosts, queues.storage, self.users, settings, counts, environment, queues.confirms)
        self.clients = Clients(self.server)
        self.administration = Administration(
            queues.catalog, queues.vhosts, environment.threads, self.server.update_access, self.server.is_disk_full
        )
        self.control = ServerControl(self.server, configuration)

    @property
    def is_draining(self) -> bool:
        return self._is_stopping or self.server.is_suspended

    @property
    def listeners(self) -> Sequence[Listener]:
        return () if self.server.is_suspended else self._listeners

    @listeners.setter
    def listeners(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def begin_draining(self) -> None:
        self._is_stopping = True

    @property
    def catalog(self) -> Catalog:
        return self._queues.catalog

    @property
    def vhosts(self) -> Vhosts:
        return self._queues.vhosts

    @property
    def settings(self) -> ServerSettings:
        return self.server.settings

    @property
    def memory_limit_bytes(self) -> int:
        return self.control.memory_limit_bytes

    @property
    def alarms(self) -> list[Alarm]:
        return [Alarm(reason) for reason in self.server.pressure.alarms]

    @property
    def connection_count(self) -> int:
        return len(self.server.connections)

    @property
    def channel_count(self) -> int:
        return sum(len(connection.channels) for connection in list(self.server.connections))

    @property
    def damage(self) -> list[str]:
        return [*self.database.damage(), *self._queues.storage.damage()]

    @property
    def problems(self) -> list[str]:
        own = [*self.database.alarms(), *self._queues.alarms()]
        return list(dict.fromkeys([*own, *self.environment.background.alarms()]))  # most tasks are in both

    @property
    def failure(self) -> BaseException | None:
        """The error after which nothing is confirmed any more: the process should end."""
        return self.server.failed or self.database.log.commit.failure

    @property
    def is_stuck(self) -> bool:
        """Whether the log waits for disk space: nothing can be written."""
        return self._queues.storage.is_out_of_room

    def close(self) -> None:
        """Write the final state; durable when it returns. After a failure, or on a full disk, nothing is written: the
        next start recovers what is durable, as after a crash."""
        if self.failure is not None or self.is_stuck:
            self.database.abandon()
            return
        try:
            self._queues.close()
        finally:
            if self._control is not None:
                self._control.close()
            self.database.close()


def open_broker(
    configuration: Configuration, progress: Progress = lambda share: None, environment: Environment | None = None
) -> Broker:
    """Open the directory of the configuration, or create it. Returns when everything durable is recovered."""
    environment, settings = environment or Environment.real(), configuration.reflection
    directory = configuration.places.directory
    environment.files.make_directories(directory)
    database = open_database(
        directory, environment, log_settings(configuration), settings, progress, configuration.store
    )
    with ExitStack() as undo:
        undo.callback(database.close)
        queues = OpenQueues(
            database,
            environment,
            configuration.queues,
            configuration.variable_queues,
            configuration.message_stores,
            configuration.places.catalog,
            prepare=lambda catalog: _prepare(catalog, environment, configuration),
        )
        undo.callback(queues.close)
        control = served(database, environment, settings)
        if control is not None:
            undo.callback(control.close)
        broker = Broker(configuration, environment, database, queues, control)
        if configuration.load_definitions:
            load_definitions(broker, configuration.load_definitions)
        undo.pop_all()
        return broker


def open_with_room(configuration: Configuration, progress: Progress, environment: Environment) -> Broker:
    """The same; waits while the disk has no space for a start."""
    bell, polls = environment.threads.condition(), 0
    while True:
        try:
            return open_broker(configuration, progress, environment)
        except OutOfRoom as error:
            if polls % ROOM_POLLS_PER_LINE == 0:
                _LOG.warning("start waits for free disk space", extra={"facts": {"why": error.what}})
        polls += 1
        with bell:
            bell.wait(ROOM_POLL_SECONDS)


def log_settings(configuration: Configuration) -> LogSettings:
    chosen = configuration.log
    return replace(
        chosen,
        gathered_blocks_max=GATHERED_BLOCKS_MAX,
        ballast_bytes=MEMTABLES_BYTES + 2 * max(chosen.container_bytes, CONTAINER_BYTES_MIN),
        ballast_publish_bytes=configuration.server.unsafe_bytes_max,
        free_bytes_min=configuration.server.disk_free_min_bytes * 5 // 4,  # history yields before publishers block
    )


def _prepare(catalog: Catalog, environment: Environment, configuration: Configuration) -> None:
    """Users come from the definitions, where these are loaded."""
    if configuration.load_definitions:
        return
    hashing = NEW_PASSWORDS[configuration.server.password_hashing]
    make_first_user(catalog, environment.rng, configuration.first_user, hashing)
