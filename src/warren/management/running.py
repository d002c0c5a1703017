"""What the management reads of a running server: nothing more is asked of whoever starts it.

    app ──makes──▶ Running ◀──reads── routes, metrics

All of it may be asked for in any thread, and none of it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from warren.broker.counts import MessageCounters
from warren.broker.realms import Vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.users import UserRow
from warren.log.machine import Environment
from warren.server.sasl import Login
from warren.server.settings import ServerSettings
from warren.snapshot.database import Database


class Alarm(StrEnum):
    """What blocks publishers; the value is RabbitMQ's name for what is short. RabbitMQ has no alarm for cleanup."""

    MEMORY = "memory"
    DISK = "disk"
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Listener:
    """Where somebody is listened to."""

    protocol: str  # amqp, http, http/prometheus
    host: str
    port: int


class UserDirectory(Protocol):
    """Who may log in (`server.authentication.Users`)."""

    def check(self, login: Login, peer: str) -> UserRow:
        """Refused (`LoginRefused`) if it is not right. May take long: never in the loop."""
        ...


class BrokerView(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def node(self) -> str:
        """What this server calls itself: warren@host."""
        ...

    @property
    def started_ns(self) -> int:
        """By the wall clock."""
        ...

    @property
    def machine(self) -> Environment: ...

    @property
    def database(self) -> Database: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def realms(self) -> Vhosts: ...

    @property
    def users(self) -> UserDirectory: ...

    @property
    def counts(self) -> MessageCounters: ...

    @property
    def settings(self) -> ServerSettings: ...

    @property
    def listeners(self) -> Sequence[Listener]:
        """For clients; the management adds its own."""
        ...

    @property
    def alarms(self) -> Sequence[Alarm]:
        """That are raised now."""
        ...

    @property
    def damage(self) -> Sequence[str]:
        """What cannot be read on disk, by queue and file; part of `problems`."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """What an operator should look at, in words."""
        ...

    @property
    def memory_limit_bytes(self) -> int:
        """Of the process; above it publishers are blocked."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether it is being stopped: no new clients are taken."""
        ...

    @property
    def connection_count(self) -> int: ...

    @property
    def channel_count(self) -> int: ...
