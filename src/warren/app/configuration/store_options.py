"""Options of the log and of reflection: one table for the command line, the environment and rabbitmq.conf.

    container_size    --container-size    WARREN_CONTAINER_SIZE    container_size = 1MiB

The name is the same in all three; what it sets is documented with `LogSettings` and `ReflectionSettings`.
"""

from __future__ import annotations

from typing import Any

from warren.app.configuration.sizes import size_bytes
from warren.app.configuration.values import Read, seconds, whole
from warren.base.errors import Misuse
from warren.snapshot.buffer_kinds import MEMORY, ROCKSDB
from warren.snapshot.feeds import Mode

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
