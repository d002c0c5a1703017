"""What a publisher or a declarer is told when an exchange does not do what was asked."""

from __future__ import annotations

from warren.base.errors import Refused


class UnknownExchange(Refused):
    """There is no such exchange (AMQP's 404)."""

    def __init__(self, which: object) -> None:
        super().__init__(f"there is no exchange {which!r}", "declare it first")


class UnknownExchangeType(Refused):
    """Nobody knows how such an exchange routes (AMQP's 503)."""

    def __init__(self, type_: str) -> None:
        super().__init__(f"there is no exchange type {type_!r}", "use direct, fanout, topic or headers")


class InternalExchange(Refused):
    """Only other exchanges hand messages to it (AMQP's 403)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"exchange {name!r} is internal", "publish to an exchange that is bound to it")


class BadBinding(Refused):
    """Its arguments mean nothing to this kind of exchange (AMQP's 406)."""


class BadCopies(Refused):
    """The CC or BCC header is no array (AMQP's 406)."""
