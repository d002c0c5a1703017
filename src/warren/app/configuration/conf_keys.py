"""What the keys of rabbitmq.conf mean here.

    KEYS        one key, one choice
    families    listeners.tcp.NAME, loopback_users.NAME, auth_mechanisms.N, default_user_tags.TAG
    LATER       known, and not done by this version: a warning says so
    all others  unknown: a warning with the number of the line, never a refusal

A value that cannot be is refused, with file and line. So is what would make a broker less safe if it were passed over:
plain TCP that was switched off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warren.app.configuration.choices import OptionValues
from warren.app.configuration.rabbitmq_conf import ConfLine
from warren.app.configuration.sizes import share, size_bytes
from warren.app.configuration.store_options import STORE_KEYS
from warren.app.configuration.values import (
    Read,
    listener,
    log_level,
    milliseconds,
    name,
    pattern,
    port,
    truth,
    whole,
)
from warren.base.errors import Misuse
from warren.files.protocol import join
from warren.server.sasl import MECHANISMS
from warren.server.settings import ServerSettings

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
