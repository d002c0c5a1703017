"""Errors of queues, by what the caller must do."""

from __future__ import annotations

from warren.base.errors import Misuse, Refused, WarrenError


class UnknownQueue(Refused):
    """No queue has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no queue {name!r}", "declare it first")


class QueueDeleted(Refused):
    """The queue was deleted while it was in use."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} was deleted", "declare it again")


class QueueFull(Refused):
    """The queue is at its limit, and its overflow policy refuses publishes."""


class QueueDown(WarrenError):
    """The queue's code failed. It is restarted from durable data; after too many failures it stays down."""


class NotYours(Misuse):
    """The message is not pending: of another queue, already settled, or ready again since the queue was restarted."""


class QueuesClosed(Misuse):
    """The database was closed."""

    def __init__(self) -> None:
        super().__init__("the database is closed", "open it again")


class VhostDeleted(QueuesClosed):
    """The vhost was deleted while it was in use."""

    def __init__(self, name: str) -> None:
        Misuse.__init__(self, f"vhost '{name}' is deleted", "create it again")
