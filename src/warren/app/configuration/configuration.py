"""What a broker is to be, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.app.places import CatalogLocation
from warren.broker.settings import QueueSettings
from warren.catalog.settings import CatalogSettings
from warren.log.settings import LogSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import VariableQueueSettings
from warren.server.settings import ServerSettings
from warren.snapshot.reflection import ReflectionSettings

MANAGEMENT_PORT = 15672
PROMETHEUS_PORT = 15692
ROTATE_BYTES = 256 << 20  # a rotation is ten syncs: with large bodies a disk fills 64 MiB several times a second
QUIET_SECONDS = 5.0  # reflecting takes the loop's time: fewer messages feel one long round than many short ones


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
    places: CatalogLocation = field(default_factory=lambda: CatalogLocation("warren-data", CatalogSettings()))
    server: ServerSettings = field(default_factory=ServerSettings)
    queues: QueueSettings = field(default_factory=QueueSettings)
    variable_queues: VariableQueueSettings = field(default_factory=VariableQueueSettings)
    message_stores: MessageStoreSettings = field(default_factory=MessageStoreSettings)
    log: LogSettings = field(default_factory=lambda: LogSettings(rotate_bytes=ROTATE_BYTES))
    reflection: ReflectionSettings = field(default_factory=lambda: ReflectionSettings(quiet_seconds=QUIET_SECONDS))
    management_host: str = ""  # of both ports; empty: where clients are listened to
    management_port: int = MANAGEMENT_PORT
    prometheus_port: int = PROMETHEUS_PORT
    memory_limit_bytes: int = 0  # of the process: above it publishers are blocked
    first_user: FirstUser = field(default_factory=FirstUser)
    log_to: LogTo = field(default_factory=LogTo)
    pid_file: str = ""
    warnings: tuple[str, ...] = ()
