"""What a broker is to be, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.app.places import Places
from warren.broker.settings import QueueSettings
from warren.catalog.settings import CatalogSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import VariableQueueSettings
from warren.server.settings import ServerSettings

MANAGEMENT_PORT = 15672
PROMETHEUS_PORT = 15692


@dataclass(frozen=True, slots=True)
class FirstUser:
    """Made when there is no user at all."""

    name: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tags: tuple[str, ...] = ("administrator",)
    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


@dataclass(frozen=True, slots=True)
class LogTo:
    level: str = "info"
    path: str = ""  # empty: standard error; "-": standard output


@dataclass(frozen=True, slots=True)
class Configuration:
    places: Places = field(default_factory=lambda: Places("warren-data", CatalogSettings()))
    server: ServerSettings = field(default_factory=ServerSettings)
    queues: QueueSettings = field(default_factory=QueueSettings)
    variable_queues: VariableQueueSettings = field(default_factory=VariableQueueSettings)
    message_stores: MessageStoreSettings = field(default_factory=MessageStoreSettings)
    management_host: str = ""  # of both ports; empty: where clients are listened to
    management_port: int = MANAGEMENT_PORT
    prometheus_port: int = PROMETHEUS_PORT
    memory_limit_bytes: int = 0  # of the process: above it publishers are blocked
    first_user: FirstUser = field(default_factory=FirstUser)
    log_to: LogTo = field(default_factory=LogTo)
    pid_file: str = ""
    warnings: tuple[str, ...] = ()
