"""The configuration of a broker: settings objects, built from the options of all sources.

    command line  >  environment  >  rabbitmq.conf  >  defaults

The first two also say which file is read: `--config`, else WARREN_CONFIG, else RABBITMQ_CONFIG_FILE, and after it the
directory RABBITMQ_CONFIG_FILES. Every value is checked before anything is opened.

An option fills the fields that its row names (`Option.fills`); four need a computation:

    vm_memory_high_watermark    limit of the whole process; messages get half of what remains after OWN_BYTES
    disk_free_limit.relative    a share of the memory, as in RabbitMQ
    data_dir, store_dir         the directory of log, snapshot store and message stores         (OP-03, OP-04)
    connect, catalog            the SQL database of the catalog; a URL in `catalog` is both     (OP-01, OP-02)

RabbitMQ blocks publishers above the watermark of the process. So does Warren, but its queues page messages out long
before. Without an explicit watermark the queues get the default of `QueueSettings`, and the process USUAL_SHARE.

Invariant: a configuration prints no password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from warren.base.environment import Random
from warren.base.errors import Misuse, WarrenError
from warren.catalog.database import place_of
from warren.catalog.settings import CatalogSettings
from warren.catalog.sql import SqlPlace, is_connect_string
from warren.config.data_directory import default_data_directory
from warren.config.options import (
    OPTIONS,
    OptionValues,
    merged,
    read_environment,
    read_keys,
    store_directory,
)
from warren.config.parse import ConfLine, read_lines
from warren.files.protocol import Files, parent
from warren.log.settings import LogSettings
from warren.management.requests import ManagementSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.server.settings import ServerSettings
from warren.snapshot.reflection import ReflectionSettings
from warren.snapshot.rocksdb.options import SnapshotStoreSettings

MANAGEMENT_PORT = 15672
PROMETHEUS_PORT = 15692
ROTATE_BYTES = 256 << 20  # a rotation is ten syncs: with large bodies a disk fills 64 MiB several times a second
QUIET_SECONDS = 5.0  # a round takes time of the event loop: one long round delays fewer messages than many short ones

USUAL_SHARE = 0.6
OWN_BYTES = 220 << 20  # code, commit, buffers and the safe snapshot store
MESSAGES_BYTES_MIN = 16 << 20
UNKNOWN_BYTES = 4 << 30
_MEMORY = "/proc/meminfo"
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_READ_BYTES = 4096


class CatalogEnvironment(Protocol):
    """The part of an `Environment` that locating the catalog needs."""

    @property
    def files(self) -> Files: ...

    @property
    def rng(self) -> Random: ...


@dataclass(frozen=True, slots=True)
class CatalogLocation:
    directory: str  # log, stores and set-aside files
    catalog: CatalogSettings

    def sql(self, environment: CatalogEnvironment) -> SqlPlace:
        """The place of the SQL catalog."""
        return place_of(environment.files, environment.rng, self.directory, self.catalog)


@dataclass(frozen=True, slots=True)
class FirstUser:
    """Created while there is no user at all."""

    name: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tags: tuple[str, ...] = ("administrator",)
    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


@dataclass(frozen=True, slots=True)
class LogTo:
    """Where events are logged."""

    level: str = "info"
    path: str = ""  # empty: standard error; "-": standard output
    format: str = "text"  # or json
    connection_level: str = ""  # of a category; empty: `level`
    channel_level: str = ""
    queue_level: str = ""

    @property
    def category_levels(self) -> dict[str, str]:
        return {"connection": self.connection_level, "channel": self.channel_level, "queue": self.queue_level}


@dataclass(frozen=True, slots=True)
class Configuration:
    places: CatalogLocation = field(default_factory=lambda: CatalogLocation("warren-data", CatalogSettings()))
    server: ServerSettings = field(default_factory=ServerSettings)
    management: ManagementSettings = field(default_factory=ManagementSettings)
    queues: QueueSettings = field(default_factory=QueueSettings)
    variable_queues: VariableQueueSettings = field(default_factory=VariableQueueSettings)
    message_stores: MessageStoreSettings = field(default_factory=MessageStoreSettings)
    log: LogSettings = field(default_factory=lambda: LogSettings(rotate_bytes=ROTATE_BYTES))
    reflection: ReflectionSettings = field(default_factory=lambda: ReflectionSettings(quiet_seconds=QUIET_SECONDS))
    store: SnapshotStoreSettings = field(default_factory=SnapshotStoreSettings)
    management_host: str = ""  # of both ports; empty: the host for AMQP
    management_port: int = MANAGEMENT_PORT
    prometheus_port: int = PROMETHEUS_PORT
    memory_limit_bytes: int = 0  # of the process: above it publishers are blocked
    first_user: FirstUser = field(default_factory=FirstUser)
    log_to: LogTo = field(default_factory=LogTo)
    load_definitions: str = ""  # a file or directory, imported at every start
    pid_file: str = ""
    warnings: tuple[str, ...] = ()


def configuration_of(files: Files, command_line: OptionValues, environment: Mapping[str, str]) -> Configuration:
    """Read and merge all sources."""
    of_environment, ignored_variables = read_environment(environment)
    values = merged(command_line, of_environment)
    of_files, ignored_keys = read_keys(_conf_lines(files, values))
    values = merged(values, of_files)
    places = resolve_location(
        command_line.get("data_dir"),
        command_line.get("store_dir"),
        command_line.get("no_data_dir", False),
        values.get("connect", ""),
        values.get("catalog", ""),
        environment,
        values.get("force", False),
    )
    configuration = filled(with_memory(Configuration(), values, system_memory_bytes(files)), values)
    return replace(configuration, places=places, warnings=(*ignored_variables, *ignored_keys))


def _conf_lines(files: Files, values: OptionValues) -> list[ConfLine]:
    lines: list[ConfLine] = []
    if "config" in values:
        lines += read_lines(files, _conf_path(files, values["config"]))
    if "config_files" in values:
        lines += read_lines(files, _conf_directory(values["config_files"]))
    return lines


def _conf_path(files: Files, path: str) -> str:
    """The ending .conf is optional, as in RabbitMQ."""
    if path.endswith(".config"):
        raise Misuse(f"{path} is written in Erlang", "write its settings as rabbitmq.conf: key = value")
    return f"{path}.conf" if not files.exists(path) and files.exists(f"{path}.conf") else path


def _conf_directory(path: str) -> str:
    """`/etc/rabbitmq/conf.d` may also be written as `/etc/rabbitmq/conf.d/*.conf`."""
    return parent(path) if path.endswith("/*.conf") else path


# -- values to settings -----------------------------------------------------------------------------------------------


def filled(configuration: Configuration, values: OptionValues) -> Configuration:
    """Set the fields that the options name. `places` is left to `resolve_location`."""
    paths = {path: value for option, value in values.items() for path in OPTIONS[option].fields}
    for path, value in paths.items():
        group, _, name = path.rpartition(".")
        if not group:
            configuration = _replaced(configuration, name, value)
        elif not group.startswith("places"):
            configuration = replace(configuration, **{group: _replaced(getattr(configuration, group), name, value)})
    return configuration


def _replaced(settings: Any, name: str, value: Any) -> Any:
    default = getattr(settings, name)
    return replace(settings, **{name: type(default)(value) if isinstance(default, Enum) else value})


def with_memory(configuration: Configuration, values: OptionValues, total_bytes: int) -> Configuration:
    """The fields that depend on the memory of the machine."""
    absolute, relative = (values.get(f"vm_memory_high_watermark_{kind}") for kind in ("absolute", "relative"))
    limit_bytes = absolute or int(total_bytes * (relative or USUAL_SHARE))
    configuration = replace(configuration, memory_limit_bytes=limit_bytes)
    if absolute is not None or relative is not None:
        queues = replace(configuration.queues, memory_watermark_bytes=messages_bytes(limit_bytes))
        configuration = replace(configuration, queues=queues)
    if (disk_share := values.get("disk_free_limit_relative")) is not None:
        server = replace(configuration.server, disk_free_min_bytes=int(total_bytes * disk_share))
        configuration = replace(configuration, server=server)
    return configuration


def resolve_location(
    data_dir: str | None = None,
    store_dir: str | None = None,
    no_data_dir: bool = False,
    connect: str = "",
    catalog: str = "",
    environment: Mapping[str, str] | None = None,
    is_forced: bool = False,
) -> CatalogLocation:
    """Directory and catalog from the flags as they were given. `environment`: the variables of the process."""
    if data_dir is None and store_dir is None and not no_data_dir:
        data_dir = default_data_directory(environment or {})
    settings = replace(catalog_settings(connect, catalog), is_forced=is_forced)
    return CatalogLocation(store_directory(data_dir, store_dir, no_data_dir), settings)


def catalog_settings(connect: str, catalog: str) -> CatalogSettings:
    """Settings for `--connect` and `--catalog`."""
    if is_connect_string(catalog):
        if connect:
            raise Misuse("--connect and --catalog both name the SQL database", "give --catalog a name, or only one")
        connect, catalog = catalog, ""
    return CatalogSettings(connect, catalog) if catalog else CatalogSettings(connect)


# -- memory of the machine --------------------------------------------------------------------------------------------


def system_memory_bytes(files: Files) -> int:
    """The memory of the machine, or of the container if that is less."""
    limits = [_mem_total(_text(files, _MEMORY)), *(_number(_text(files, path)) for path in _CONTAINER)]
    known = [size for size in limits if size]
    return min(known) if known else UNKNOWN_BYTES


def messages_bytes(limit_bytes: int) -> int:
    """The part for messages of a process with this limit."""
    return max(MESSAGES_BYTES_MIN, (limit_bytes - OWN_BYTES) // 2)


def _mem_total(text: str) -> int:
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return _number(rest.partition("kB")[0]) * 1024
    return 0


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def _text(files: Files, path: str) -> str:
    """Empty if there is no such file."""
    try:
        file = files.open(path)
    except WarrenError:
        return ""
    try:
        return file.read_at(0, _READ_BYTES).decode("ascii", "replace")
    finally:
        file.close()
