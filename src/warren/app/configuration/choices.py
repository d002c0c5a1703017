"""What one source says: a field for everything that can be chosen, None where it says nothing.

    command line ─┐
    environment ──┼──▶ merged: of each field, what the first of them says ──▶ options.configuration_of
    rabbitmq.conf ┘

Values are typed and were judged where they were read, so that whoever told a bad one is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from warren.snapshot.feeds import Mode


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
