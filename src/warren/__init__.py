"""Warren: a durable message broker on a log-structured transactional store.

import warren

with warren.open("/var/lib/app") as db:
    db.kv("users")[b"ada"] = b"countess"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from warren.embedded.database import OpenOptions
    from warren.embedded.public import (
        CatalogSettings,
        Damage,
        DiskFailure,
        ForkedProcess,
        Gone,
        Locked,
        LogSettings,
        MessageStoreSettings,
        Misuse,
        Mode,
        NotYours,
        OutOfRoom,
        QueueDeleted,
        QueueDown,
        QueueFull,
        QueuesClosed,
        QueueSettings,
        ReflectionSettings,
        Refused,
        SyncFailed,
        UnknownQueue,
        VariableQueueSettings,
        Warren,
        WarrenError,
    )

__version__ = "0.1.0"
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
    "__version__",
    "open",
]


def open(path: str | PathLike[str], **settings: Unpack[OpenOptions]) -> Warren:
    """Open a directory as an embedded store, or create it. Settings: `embedded.database.OpenOptions`."""
    from warren.embedded.database import open_embedded

    return open_embedded(path, **settings)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'warren' has no attribute {name!r}")
    from warren.embedded import public

    return getattr(public, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
