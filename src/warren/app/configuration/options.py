"""All sources together: what a broker is to be.

    command line  >  environment  >  rabbitmq.conf  >  defaults

Which file is read is itself a choice of the first two: `--config`, else WARREN_CONFIG, else RABBITMQ_CONFIG_FILE, and
RABBITMQ_CONFIG_FILES behind it. Sources never fail half way: a bad value anywhere is refused before anything is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from warren.app.configuration.choices import OptionValues, merged
from warren.app.configuration.conf_keys import read_keys
from warren.app.configuration.configuration import Configuration, FirstUser
from warren.app.configuration.environment import read_environment
from warren.app.configuration.memory import USUAL_SHARE, machine_bytes, messages_bytes
from warren.app.configuration.rabbitmq_conf import ConfLine, read_lines
from warren.app.places import resolve_places
from warren.base.errors import Misuse
from warren.files.protocol import Files, parent
from warren.log.settings import LogSettings
from warren.server.settings import ServerSettings

Settings = TypeVar("Settings", bound=Any)


def configuration_of(files: Files, command_line: OptionValues, environment: Mapping[str, str]) -> Configuration:
    """Ask all sources."""
    of_environment, ignored = read_environment(environment)
    chosen = merged(command_line, of_environment)
    of_files, passed_over = read_keys(_lines(files, chosen))
    chosen = merged(chosen, of_files)
    places = resolve_places(
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
    total_bytes = machine_bytes(files)
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
