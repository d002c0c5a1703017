"""Errors of exchanges, for publishers and for declarations."""

from __future__ import annotations

from warren.base.errors import Refused


class UnknownExchange(Refused):
    """The exchange does not exist (AMQP: 404)."""

    def __init__(self, which: object) -> None:
        super().__init__(f"there is no exchange {which!r}", "declare it first")


class UnknownExchangeType(Refused):
    """There is no exchange type of this name (AMQP: 503)."""

    def __init__(self, type_: str) -> None:
        super().__init__(f"there is no exchange type {type_!r}", "use direct, fanout, topic or headers")


class InternalExchange(Refused):
    """Only other exchanges may route to it (AMQP: 403)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"exchange {name!r} is internal", "publish to an exchange that is bound to it")


class BadBinding(Refused):
    """The arguments are invalid for this exchange type (AMQP: 406)."""


class BadCopies(Refused):
    """The CC or BCC header is not an array (AMQP: 406)."""
