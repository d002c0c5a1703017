"""Actions of administrators on a running broker (`management.control`).

    worker thread of the management ──▶ a coroutine in the event loop ──▶ waits for its end, for a limited time

Limits of memory and disk, and levels of the event log, change until the process ends: the configuration has the lasting
ones. A limit is checked as soon as it is set, so the alarm is set or cleared when the command returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from warren.app import event_log
from warren.app.event_log import NAME
from warren.base.errors import Misuse, Refused
from warren.config.configuration import Configuration, messages_bytes, system_memory_bytes
from warren.config.options import GROUPS, Option
from warren.config.parse import log_level, size_bytes
from warren.server.server import Server

_LOG = logging.getLogger(__name__)
ACTION_SECONDS = 30.0  # beyond the time that clients have to disconnect
DEFAULT_CATEGORY = "default"


class ServerControl:
    """Thread-safe."""

    def __init__(self, server: Server, configuration: Configuration) -> None:
        self.memory_limit_bytes = configuration.memory_limit_bytes
        self.is_stop_requested = False  # polled by the life cycle
        self._server = server
        self._configuration = configuration

    def stop(self) -> None:
        self.is_stop_requested = True

    def suspend_clients(self) -> None:
        _LOG.warning("clients suspended by a command")
        self._run(self._server.suspend())

    def resume_clients(self) -> None:
        try:
            self._run(self._server.resume())
        except OSError as error:
            raise Refused(f"cannot listen again: {error.strerror or error}", "free the port, then start_app") from error
        _LOG.warning("clients resumed by a command")

    def set_memory_limit(self, absolute: str | None, relative: float | None) -> int:
        limit = self._bytes(absolute, relative)
        self._run(self._server.set_memory_limit(limit, messages_bytes(limit)))
        self.memory_limit_bytes = limit
        _LOG.warning("memory limit set by a command", extra={"facts": {"bytes": limit}})
        return limit

    def set_disk_limit(self, absolute: str | None, relative: float | None) -> int:
        limit = self._bytes(absolute, relative)
        self._run(self._server.set_disk_free_min(limit))
        _LOG.warning("disk limit set by a command", extra={"facts": {"bytes": limit}})
        return limit

    def set_log_level(self, category: str, level: str) -> None:
        try:
            chosen = log_level(level)
        except Misuse as error:
            raise Refused(error.what, error.hint) from error
        if not all(part.isidentifier() for part in category.split(".")) and category:
            raise Refused(f"{category[:40]!r} is no category", "connection, channel, queue, or nothing for all")
        name = NAME if category in ("", DEFAULT_CATEGORY) else f"{NAME}.{category}"
        logging.getLogger(name).setLevel(chosen.upper())
        _LOG.warning("log level set by a command", extra={"facts": {"level": chosen, "category": category or "all"}})

    def reopen_log(self) -> None:
        event_log.reopen()

    def environment(self) -> dict[str, dict[str, str]]:
        groups = {group.title: [each for each in group.options if each.fields] for group in GROUPS}
        shown = {
            title: {option.name: _shown(option, self._configuration) for option in options}
            for title, options in groups.items()
            if options
        }
        running = {
            "data_directory": self._configuration.places.directory,
            "memory_limit_bytes": str(self.memory_limit_bytes),
            "disk_free_min_bytes": str(self._server.settings.disk_free_min_bytes),
            "log_level": logging.getLevelName(logging.getLogger(NAME).level).lower(),
        }
        return {"Running": running} | shown

    def _bytes(self, absolute: str | None, relative: float | None) -> int:
        if absolute is None:
            return int(system_memory_bytes(self._server.environment.files) * (relative or 0.0))
        try:
            return int(size_bytes(absolute))
        except Misuse as error:
            raise Refused(error.what, error.hint) from error

    def _run(self, action: Coroutine[Any, Any, None]) -> None:
        seconds = ACTION_SECONDS + self._server.settings.drain_seconds
        future = asyncio.run_coroutine_threadsafe(action, self._server.loop)
        try:
            future.result(seconds)
        except TimeoutError as error:
            future.cancel()
            raise Refused(f"not done within {seconds:g} s", "see the log of the broker") from error


def _shown(option: Option, configuration: Configuration) -> str:
    if option.is_secret:
        return "(secret)"
    value: Any = configuration
    for name in option.fields[0].split("."):
        value = getattr(value, name)
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(getattr(value, "value", value))
