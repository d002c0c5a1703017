"""What goes wrong with queues, by what the reader must do."""

from __future__ import annotations

from warren.base.errors import Misuse, Refused, WarrenError


class UnknownQueue(Refused):
    """There is no queue of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no queue {name!r}", "declare it first")


class QueueDeleted(Refused):
    """It was deleted while somebody used it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} was deleted", "declare it again")


class QueueFull(Refused):
    """It takes no more, and was asked to refuse what is over its limit."""


class QueueDown(WarrenError):
    """Its own code failed. It is made again from what is durable; if it failed too often, it stays down."""


class NotYours(Misuse):
    """What was to be settled is not this queue's, was settled already, or was ready again when the queue restarted."""


class QueuesClosed(Misuse):
    """The database was closed."""

    def __init__(self) -> None:
        super().__init__("the database is closed", "open it again")
