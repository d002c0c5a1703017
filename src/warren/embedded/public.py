"""The names of `import warren`: exceptions, settings, and the class of an open directory. Loaded at first use."""

from __future__ import annotations

from warren.base.errors import (
    Damage,
    DiskFailure,
    ForkedProcess,
    Gone,
    Locked,
    Misuse,
    OutOfRoom,
    Refused,
    SyncFailed,
    WarrenError,
)
from warren.broker.errors import NotYours, QueueDeleted, QueueDown, QueueFull, QueuesClosed, UnknownQueue
from warren.catalog.settings import CatalogSettings
from warren.embedded.database import Warren
from warren.log.settings import LogSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings, VariableQueueSettings
from warren.snapshot.reflection import Mode, ReflectionSettings

__all__ = [
    "CatalogSettings",
    "Damage",
    "DiskFailure",
    "ForkedProcess",
    "Gone",
    "Locked",
    "LogSettings",
    "MessageStoreSettings",
    "Misuse",
    "Mode",
    "NotYours",
    "OutOfRoom",
    "QueueDeleted",
    "QueueDown",
    "QueueFull",
    "QueueSettings",
    "QueuesClosed",
    "ReflectionSettings",
    "Refused",
    "SyncFailed",
    "UnknownQueue",
    "VariableQueueSettings",
    "Warren",
    "WarrenError",
]
