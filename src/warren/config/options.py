"""What one source says: a field for everything that can be chosen, None where it says nothing.

    command line ─┐
    environment ──┼──▶ merged: of each field, what the first of them says ──▶ options.configuration_of
    rabbitmq.conf ┘

Values are typed and were judged where they were read, so that whoever told a bad one is named.

What the keys of rabbitmq.conf mean here.

    KEYS        one key, one choice
    families    listeners.tcp.NAME, loopback_users.NAME, auth_mechanisms.N, default_user_tags.TAG
    LATER       known, and not done by this version: a warning says so
    all others  unknown: a warning with the number of the line, never a refusal

A value that cannot be is refused, with file and line. So is what would make a broker less safe if it were passed over:
plain TCP that was switched off.

The environment: RabbitMQ's variables, so that what sets them today goes on working, and our own.

    HONOURED    one variable, one choice; ours come first where both are set
    IGNORED     of Erlang or of a cluster: a warning says why nothing comes of them
    RABBITMQ_…  any other: a warning, for whoever set it expects something

WARREN_DATA_DIR is asked for by `places`. A value that cannot be is refused by the name of its variable. The environment
is handed in: nobody here asks for it.

All sources together: what a broker is to be.

    command line  >  environment  >  rabbitmq.conf  >  defaults

Which file is read is itself a choice of the first two: `--config`, else WARREN_CONFIG, else RABBITMQ_CONFIG_FILE, and
RABBITMQ_CONFIG_FILES behind it. Sources never fail half way: a bad value anywhere is refused before anything is opened.

What a broker is to be, in one value.

Options of the log and of reflection: one table for the command line, the environment and rabbitmq.conf.

    container_size    --container-size    WARREN_CONTAINER_SIZE    container_size = 1MiB

The name is the same in all three; what it sets is documented with `LogSettings` and `ReflectionSettings`.

Where a broker keeps things, from what its command line says. Nothing is opened or made here.

    --store-dir S     S              log, snapshot store, message stores; and the SQL catalog, unless that is elsewhere
    --data-dir D      D              the same, unless --store-dir says otherwise                              (OP-03)
    --no-data-dir     --store-dir    must be given then                                                       (OP-04)
    none of them      WARREN_DATA_DIR, else `warren` where this user's programs keep their data

    --connect URL     the SQL database system, or a file of SQLite                                            (OP-01)
    --catalog NAME    which database there: a file catalog/NAME.sqlite, or a database of PostgreSQL           (OP-02)
    --catalog URL     both in one
    --force           what the log does not cover is made of what the log has                                 (C-21)

Always true: what is printed of it has no password.

Where the store lives: `--data-dir`, `--store-dir` and `--no-data-dir`, as the seed's plugin had them.

--store-dir S            S
--data-dir D             D, unless --store-dir says otherwise
--no-data-dir            there is no directory to fall back on: --store-dir must be given

`warren.open` reads its path by the same rule: `~` is the home directory, an empty path is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike, fsdecode
from typing import Any, Protocol, TypeVar

from warren.base.environment import Random
from warren.base.errors import Misuse
from warren.catalog.database import place_of
from warren.catalog.settings import CatalogSettings
from warren.catalog.sql import SqlPlace, is_connect_string
from warren.config.memory import USUAL_SHARE, messages_bytes, system_memory_bytes
from warren.config.parse import (
    ConfLine,
    Read,
    listener,
    log_level,
    milliseconds,
    name,
    pattern,
    port,
    read_lines,
    seconds,
    share,
    size_bytes,
    text,
    truth,
    whole,
)
from warren.files.local import expand_user
from warren.files.protocol import Files, join, parent
from warren.log.settings import LogSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.server.authentication import MECHANISMS
from warren.server.settings import ServerSettings
from warren.snapshot.reflection import Mode, ReflectionSettings
from warren.snapshot.version_buffer.memory_buffer import MEMORY, ROCKSDB


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValues:
    data_dir: str | None = None
    store_dir: str | None = None
    has_no_data_dir: bool | None = None
    connect: str | None = field(default=None, repr=False)  # may hold a password
    catalog: str | None = field(default=None, repr=False)  # the same
    is_forced: bool | None = None
    config: str | None = None  # file or directory
    config_more: str | None = None  # a directory of further files, read behind it
    host: str | None = None
    port: int | None = None
    management_host: str | None = None
    management_port: int | None = None
    prometheus_port: int | None = None
    product: str | None = None
    product_version: str | None = None
    drain_seconds: float | None = None
    channel_max: int | None = None
    frame_max: int | None = None
    initial_frame_max: int | None = None
    heartbeat_seconds: int | None = None
    handshake_seconds: float | None = None
    message_bytes_max: int | None = None
    mechanisms: tuple[str, ...] | None = None
    loopback_users: tuple[str, ...] | None = None
    memory_share: float | None = None
    memory_bytes: int | None = None
    disk_free_share: float | None = None
    disk_free_bytes: int | None = None
    embed_below_bytes: int | None = None
    container_bytes: int | None = None
    initial_containers: int | None = None
    max_write_buffers: int | None = None
    rotate_bytes: int | None = None
    retention_seconds: float | None = None
    retention_bytes: int | None = None
    reflection: Mode | None = None
    reflection_buffer: str | None = None
    default_user: str | None = None
    default_password: str | None = field(default=None, repr=False)
    default_vhost: str | None = None
    default_tags: tuple[str, ...] | None = None
    default_configure: str | None = None
    default_write: str | None = None
    default_read: str | None = None
    log_level: str | None = None
    log_file: str | None = None  # "-": standard output; empty: standard error
    pid_file: str | None = None


def merged(*sources: OptionValues) -> OptionValues:
    """Of each field, what the first of them says that says anything."""
    return OptionValues(**{each.name: _first(each.name, sources) for each in fields(OptionValues)})


def _first(name: str, sources: tuple[OptionValues, ...]) -> Any:
    return next((value for source in sources if (value := getattr(source, name)) is not None), None)


CONTAINER_BYTES_MAX = 256 << 20
ROTATE_BYTES_RANGE = (1 << 20, 1 << 30)
_VARIABLE = "WARREN_"


def _sized(least: int, most: int) -> Read:
    def read(value: str) -> int:
        found = size_bytes(value)
        if not least <= found <= most:
            raise Misuse(f"{value[:40]!r} is not from {least} to {most} bytes", "like 64MiB")
        return found

    return read


def _one_of(*names: str) -> Read:
    def read(value: str) -> str:
        if value not in names:
            raise Misuse(f"{value[:40]!r} is not one of {', '.join(names)}", "choose one of these")
        return value

    return read


def _mode(value: str) -> Mode:
    return Mode(_one_of(*Mode)(value))


# By name: the field of `Choices`, and how its text is read.
STORE_KEYS: dict[str, tuple[str, Read]] = {
    "container_size": ("container_bytes", _sized(0, CONTAINER_BYTES_MAX)),
    "initial_containers": ("initial_containers", whole(1, 1024)),
    "max_write_buffers": ("max_write_buffers", whole(1, 1 << 16)),
    "rotate_bytes": ("rotate_bytes", _sized(*ROTATE_BYTES_RANGE)),
    "retention_seconds": ("retention_seconds", seconds),
    "retention_bytes": ("retention_bytes", size_bytes),
    "reflection": ("reflection", _mode),
    "reflection_buffer": ("reflection_buffer", _one_of(MEMORY, ROCKSDB)),
}
STORE_VARIABLES = {f"{_VARIABLE}{name.upper()}": option for name, option in STORE_KEYS.items()}


def read_flags(**flags: str | None) -> dict[str, Any]:
    """Fields of `Choices` for those flags of the command line that are given."""
    found = {}
    for name, value in flags.items():
        if value is not None:
            field, read = STORE_KEYS[name]
            try:
                found[field] = read(value)
            except Misuse as error:
                raise Misuse(f"--{name.replace('_', '-')}: {error.what}", error.hint) from error
    return found


KEYS: dict[str, tuple[str, Read]] = {
    "default_user": ("default_user", name),
    "default_pass": ("default_password", name),
    "default_vhost": ("default_vhost", name),
    "default_permissions.configure": ("default_configure", pattern),
    "default_permissions.write": ("default_write", pattern),
    "default_permissions.read": ("default_read", pattern),
    "heartbeat": ("heartbeat_seconds", whole(0, 65_535)),
    "frame_max": ("frame_max", whole(4096, 1 << 31)),
    "initial_frame_max": ("initial_frame_max", whole(4096, 1 << 31)),
    "channel_max": ("channel_max", whole(1, 65_535)),
    "max_message_size": ("message_bytes_max", size_bytes),
    "handshake_timeout": ("handshake_seconds", milliseconds),
    "vm_memory_high_watermark.relative": ("memory_share", share),
    "vm_memory_high_watermark.absolute": ("memory_bytes", size_bytes),
    "disk_free_limit.relative": ("disk_free_share", share),
    "disk_free_limit.absolute": ("disk_free_bytes", size_bytes),
    "queue_index_embed_msgs_below": ("embed_below_bytes", size_bytes),
    **STORE_KEYS,
    "management.tcp.port": ("management_port", port),
    "management.tcp.ip": ("management_host", name),
    "management.listener.port": ("management_port", port),
    "management.listener.ip": ("management_host", name),
    "prometheus.tcp.port": ("prometheus_port", port),
    "product.name": ("product", name),
    "product.version": ("product_version", name),
    "log.console.level": ("log_level", log_level),
    "log.file.level": ("log_level", log_level),
    "log.default.level": ("log_level", log_level),
}

LATER: dict[str, str] = {
    "listeners.ssl": "TLS is not served by this version",
    "ssl_options": "TLS is not served by this version",
    "management.ssl": "TLS is not served by this version",
    "prometheus.ssl": "TLS is not served by this version",
    "prometheus.tcp.ip": "metrics are served where management.tcp.ip says",
    "load_definitions": "definitions are not imported at the start by this version",
    "definitions": "definitions are not imported at the start by this version",
    "consumer_timeout": "consumers are not timed out by this version",
    "default_queue_type": "the type of a queue makes no difference here",
    "cluster_formation": "Warren is one node",
    "cluster_name": "Warren is one node",
    "cluster_partition_handling": "Warren is one node",
    "auth_backends": "users are those of the catalog",
}
_LOG_FILE, _LOG_DIR, _LOG_CONSOLE = "log.file", "log.dir", "log.console"
_LOG_NAME = "warren.log"


class ConfReader:
    """One after another; at the end `choices` and `warnings`."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._found: dict[str, Any] = {}
        self._loopback: dict[str, bool] = dict.fromkeys(ServerSettings().loopback_users, True)
        self._mechanisms: dict[str, str] = {}
        self._tags: list[str] = []
        self._listener = ""  # the key of the one that is served
        self._log: dict[str, str] = {}

    def take(self, line: ConfLine) -> None:
        key = line.key
        if key in KEYS:
            field, read = KEYS[key]
            self._found[field] = _read_conf_value(line, read)
        elif key.startswith("listeners.tcp"):
            self._take_listener(line)
        elif key.startswith("loopback_users"):
            self._take_loopback(line)
        elif key.startswith("auth_mechanisms."):
            self._take_mechanism(line)
        elif key.startswith("default_user_tags."):
            if _read_conf_value(line, truth):
                self._tags.append(key.partition(".")[2])
        elif key in (_LOG_FILE, _LOG_DIR, _LOG_CONSOLE):
            self._log[key] = line.value
        else:
            self._warn(line, next((why for known, why in LATER.items() if _is_of(key, known)), "unknown key"))

    def choices(self) -> OptionValues:
        found = dict(self._found)
        found["loopback_users"] = tuple(user for user, is_local in self._loopback.items() if is_local)
        if self._mechanisms:
            found["mechanisms"] = tuple(dict.fromkeys(self._mechanisms[key] for key in sorted(self._mechanisms)))
        if self._tags:
            found["default_tags"] = tuple(dict.fromkeys(self._tags))
        if (path := self._log_path()) is not None:
            found["log_file"] = path
        return OptionValues(**found)

    def _take_listener(self, line: ConfLine) -> None:
        if line.value.lower() == "none":
            what = f"{line.where}: plain TCP is switched off, and this version serves nothing else"
            raise Misuse(what, "let it listen on this machine only: listeners.tcp.local = 127.0.0.1:5672")
        host, number = _read_conf_value(line, listener)
        if self._listener not in ("", line.key):
            self._warn(line, f"one listener is served, and that is {self._listener}")
            return
        self._listener = line.key
        self._found |= {"port": number, "host": host}

    def _take_loopback(self, line: ConfLine) -> None:
        user = line.key.partition(".")[2]
        if user:
            self._loopback[user] = _read_conf_value(line, truth)
        elif line.value.lower() == "none":
            self._loopback = {}
        else:
            self._warn(line, "write loopback_users.NAME = true, or loopback_users = none")

    def _take_mechanism(self, line: ConfLine) -> None:
        if line.value in MECHANISMS:
            self._mechanisms[line.key] = line.value
        else:
            self._warn(line, f"mechanisms are {' and '.join(MECHANISMS)}, and not {line.value[:40]}")

    def _log_path(self) -> str | None:
        file, directory = self._log.get(_LOG_FILE), self._log.get(_LOG_DIR)
        if file is None:
            return None
        if file.lower() == "false":
            return ""
        file = _LOG_NAME if file.lower() == "true" else file
        return join(directory, file) if directory and not file.startswith("/") else file

    def _warn(self, line: ConfLine, why: str) -> None:
        self.warnings.append(f"{line.where}: {line.key} is ignored: {why}")


def read_keys(lines: Iterable[ConfLine]) -> tuple[OptionValues, list[str]]:
    """What the lines say, and what of it is passed over."""
    reading = ConfReader()
    for line in lines:
        reading.take(line)
    return reading.choices(), reading.warnings


def _is_of(key: str, family: str) -> bool:
    return key == family or key.startswith(f"{family}.")


def _read_conf_value(line: ConfLine, read: Read) -> Any:
    try:
        return read(line.value)
    except Misuse as error:
        raise Misuse(f"{line.where}: {line.key}: {error.what}", error.hint) from error


HONOURED: dict[str, tuple[str, Read]] = {
    "RABBITMQ_DEFAULT_USER": ("default_user", name),
    "RABBITMQ_DEFAULT_PASS": ("default_password", name),
    "RABBITMQ_DEFAULT_VHOST": ("default_vhost", name),
    "RABBITMQ_NODE_PORT": ("port", port),
    "RABBITMQ_NODE_IP_ADDRESS": ("host", name),
    "RABBITMQ_CONFIG_FILE": ("config", name),
    "RABBITMQ_CONFIG_FILES": ("config_more", name),
    "RABBITMQ_LOGS": ("log_file", text),
    "RABBITMQ_PID_FILE": ("pid_file", name),
    "WARREN_HOST": ("host", name),
    "WARREN_PORT": ("port", port),
    "WARREN_MANAGEMENT_HOST": ("management_host", name),
    "WARREN_MANAGEMENT_PORT": ("management_port", port),
    "WARREN_PROMETHEUS_PORT": ("prometheus_port", port),
    "WARREN_PRODUCT": ("product", name),
    "WARREN_PRODUCT_VERSION": ("product_version", name),
    "WARREN_DRAIN_SECONDS": ("drain_seconds", seconds),
    **STORE_VARIABLES,
    "WARREN_CONFIG": ("config", name),
    "WARREN_CONNECT": ("connect", name),
    "WARREN_CATALOG": ("catalog", name),
    "WARREN_LOG_LEVEL": ("log_level", log_level),
    "WARREN_LOG_FILE": ("log_file", text),
    "WARREN_PID_FILE": ("pid_file", name),
}
_LOG_LEVELS = "RABBITMQ_LOG"  # `debug`, or categories with levels: `connection.debug,+color`
_FAMILY = "RABBITMQ_"

IGNORED: dict[str, str] = {
    "RABBITMQ_ERLANG_COOKIE": "there is no Erlang here",
    "RABBITMQ_NODENAME": "data belongs to its directory, whatever the machine is called",
    "RABBITMQ_MNESIA_BASE": "say where data is with --data-dir or WARREN_DATA_DIR",
    "RABBITMQ_MNESIA_DIR": "say where data is with --data-dir or WARREN_DATA_DIR",
    "RABBITMQ_ENABLED_PLUGINS": "management and Prometheus are always there, other plugins are not",
    "RABBITMQ_ENABLED_PLUGINS_FILE": "management and Prometheus are always there, other plugins are not",
    "RABBITMQ_FEATURE_FLAGS": "all that is here is switched on",
}


def read_environment(environment: Mapping[str, str]) -> tuple[OptionValues, list[str]]:
    """What it says, and what of it is passed over. An empty variable is none."""
    told = {variable: value for variable, value in environment.items() if value}
    found: dict[str, Any] = {}
    for variable, (field, read) in HONOURED.items():  # ours stand behind RabbitMQ's, and win
        if variable in told:
            found[field] = _read(variable, told[variable], read)
    if _LOG_LEVELS in told and "log_level" not in found:
        found |= _level(told[_LOG_LEVELS])
    others = sorted(each for each in told if each.startswith(_FAMILY) and each not in HONOURED and each != _LOG_LEVELS)
    warnings = [f"{each} is ignored: {IGNORED.get(each, 'nothing here is called so')}" for each in others]
    return OptionValues(**found), warnings


def _level(value: str) -> dict[str, str]:
    """The level of everything, which is the part without a category."""
    for part in value.split(","):
        if part and "." not in part and part[0] not in "+-":
            level: str = _read(_LOG_LEVELS, part, log_level)
            return {"log_level": level}
    return {}


def _read(variable: str, value: str, read: Read) -> Any:
    try:
        return read(value)
    except Misuse as error:
        raise Misuse(f"{variable}: {error.what}", error.hint) from error


def store_directory(data_dir: str | None, store_dir: str | None, no_data_dir: bool) -> str:
    """The directory of the log store."""
    if no_data_dir and data_dir is not None:
        raise Misuse("--data-dir and --no-data-dir contradict each other", "give one of them")
    if store_dir is not None:
        return directory_path(store_dir)
    if no_data_dir:
        raise Misuse("with --no-data-dir there is no place for the store", "name one with --store-dir")
    if data_dir is None:
        raise Misuse("no directory was given", "name one with --data-dir or --store-dir")
    return directory_path(data_dir)


def directory_path(path: str | PathLike[str]) -> str:
    """A directory as it was named by a program, an option or the environment, none of which a shell has expanded."""
    try:
        text = fsdecode(path)
    except TypeError as error:
        raise Misuse(f"a path is a string or a path object, not {type(path).__name__}") from error
    if not text:
        raise Misuse("the path of the directory is empty", "name a directory; the present one is '.'")
    expanded = expand_user(text)
    if expanded.startswith("~"):
        raise Misuse(f"{text}: there is no such home directory", f"for a directory of that name write ./{text}")
    return expanded


class MachineCatalogs(Protocol):
    """What is needed of a `Machine`."""

    @property
    def files(self) -> Files: ...

    @property
    def rng(self) -> Random: ...


@dataclass(frozen=True, slots=True)
class CatalogLocation:
    directory: str  # of the database: the log, the stores, and what was set aside
    catalog: CatalogSettings

    def sql(self, environment: MachineCatalogs) -> SqlPlace:
        """Where the SQL catalog is."""
        return place_of(environment.files, environment.rng, self.directory, self.catalog)


def resolve_location(
    data_dir: str | None = None,
    store_dir: str | None = None,
    no_data_dir: bool = False,
    connect: str = "",
    catalog: str = "",
    environment: Mapping[str, str] | None = None,
    is_forced: bool = False,
) -> CatalogLocation:
    """From the options of the command line, each as it was given. `environment`: the process's variables."""
    if data_dir is None and store_dir is None and not no_data_dir:
        data_dir = default_data_directory(environment or {})
    named = replace(catalog_settings(connect, catalog), is_forced=is_forced)
    return CatalogLocation(store_directory(data_dir, store_dir, no_data_dir), named)


def default_data_directory(environment: Mapping[str, str]) -> str:
    """Where things go if nobody says where."""
    if told := environment.get("WARREN_DATA_DIR"):
        return told
    if shared := environment.get("XDG_DATA_HOME"):
        return join(shared, "warren")
    if home := environment.get("HOME"):
        return join(home, ".local", "share", "warren")
    raise Misuse("no directory was given, and there is no home to put one in", "name one with --data-dir")


def catalog_settings(connect: str, catalog: str) -> CatalogSettings:
    """`--connect` and `--catalog`."""
    if is_connect_string(catalog):
        if connect:
            raise Misuse("--connect and --catalog both say which SQL database", "give --catalog a name, or only one")
        connect, catalog = catalog, ""
    return CatalogSettings(connect, catalog) if catalog else CatalogSettings(connect)


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


Settings = TypeVar("Settings", bound=Any)


def configuration_of(files: Files, command_line: OptionValues, environment: Mapping[str, str]) -> Configuration:
    """Ask all sources."""
    of_environment, ignored = read_environment(environment)
    chosen = merged(command_line, of_environment)
    of_files, passed_over = read_keys(_lines(files, chosen))
    chosen = merged(chosen, of_files)
    places = resolve_location(
        command_line.data_dir,
        command_line.store_dir,
        bool(command_line.has_no_data_dir),
        chosen.connect or "",
        chosen.catalog or "",
        environment,
        bool(command_line.is_forced),
    )
    return replace(_built(files, chosen), places=places, warnings=(*ignored, *passed_over))


def _lines(files: Files, chosen: OptionValues) -> list[ConfLine]:
    lines: list[ConfLine] = []
    if chosen.config is not None:
        lines += read_lines(files, _conf_path(files, chosen.config))
    if chosen.config_more is not None:
        lines += read_lines(files, _directory(chosen.config_more))
    return lines


def _conf_path(files: Files, path: str) -> str:
    """RabbitMQ lets the ending be left out."""
    if path.endswith(".config"):
        raise Misuse(f"{path} is written in Erlang", "write its settings as rabbitmq.conf: key = value")
    return f"{path}.conf" if not files.exists(path) and files.exists(f"{path}.conf") else path


def _directory(path: str) -> str:
    """`/etc/rabbitmq/conf.d` may also be written as `/etc/rabbitmq/conf.d/*.conf`."""
    return parent(path) if path.endswith("/*.conf") else path


def _built(files: Files, chosen: OptionValues) -> Configuration:
    total_bytes = system_memory_bytes(files)
    limit_bytes = chosen.memory_bytes or int(total_bytes * (chosen.memory_share or USUAL_SHARE))
    is_told = chosen.memory_bytes is not None or chosen.memory_share is not None
    default = Configuration()
    return _with(
        default,
        server=_server(chosen, total_bytes),
        queues=_with(default.queues, memory_watermark_bytes=messages_bytes(limit_bytes) if is_told else None),
        variable_queues=_with(default.variable_queues, queue_index_embed_msgs_below=chosen.embed_below_bytes),
        message_stores=_with(default.message_stores, max_message_size=chosen.message_bytes_max),
        log=_log(chosen, default.log),
        reflection=_with(default.reflection, reflection=chosen.reflection, buffer=chosen.reflection_buffer),
        management_host=chosen.management_host,
        management_port=chosen.management_port,
        prometheus_port=chosen.prometheus_port,
        memory_limit_bytes=limit_bytes,
        first_user=_first_user(chosen),
        log_to=_with(default.log_to, level=chosen.log_level, path=chosen.log_file),
        pid_file=chosen.pid_file,
    )


def _server(chosen: OptionValues, total_bytes: int) -> ServerSettings:
    disk_free = chosen.disk_free_bytes
    if disk_free is None and chosen.disk_free_share is not None:
        disk_free = int(total_bytes * chosen.disk_free_share)  # as RabbitMQ: of the memory, not of the disk
    return _with(
        ServerSettings(),
        host=chosen.host,
        port=chosen.port,
        product=chosen.product,
        product_version=chosen.product_version,
        channel_max=chosen.channel_max,
        frame_max=chosen.frame_max,
        initial_frame_max=chosen.initial_frame_max,
        heartbeat_seconds=chosen.heartbeat_seconds,
        handshake_seconds=chosen.handshake_seconds,
        message_bytes_max=chosen.message_bytes_max,
        mechanisms=chosen.mechanisms,
        loopback_users=chosen.loopback_users,
        disk_free_min_bytes=disk_free,
        drain_seconds=chosen.drain_seconds,
    )


def _log(chosen: OptionValues, default: LogSettings) -> LogSettings:
    return _with(
        default,
        container_bytes=chosen.container_bytes,
        initial_containers=chosen.initial_containers,
        max_write_buffers=chosen.max_write_buffers,
        rotate_bytes=chosen.rotate_bytes,
        retention_seconds=chosen.retention_seconds,
        retention_bytes=chosen.retention_bytes,
    )


def _first_user(chosen: OptionValues) -> FirstUser:
    return _with(
        FirstUser(),
        name=chosen.default_user,
        password=chosen.default_password,
        vhost=chosen.default_vhost,
        tags=chosen.default_tags,
        configure=chosen.default_configure,
        write=chosen.default_write,
        read=chosen.default_read,
    )


def _with(settings: Settings, **fields: Any) -> Settings:
    """Other values for those fields that somebody has chosen."""
    chosen: Settings = replace(settings, **{name: value for name, value in fields.items() if value is not None})
    return chosen
