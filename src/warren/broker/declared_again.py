"""Something is declared that is there: fine if it is the same, else a text that says in what it differs.

Flags are compared first, then those arguments that mean something; the others may differ. Arguments are compared as
RabbitMQ does: whole numbers by their value, however wide they were sent. How wide one was that is there already is not
kept: it is told as the narrowest that a client sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from warren.amqp.errors import PeerError
from warren.amqp.types import (
    Byte,
    Float,
    Long,
    RawString,
    Short,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
)
from warren.broker.arguments import BACKING
from warren.broker.exchanges.headers import comparable
from warren.broker.topology_refusals import failed
from warren.catalog.exchanges import Exchange
from warren.catalog.queues import Queue

QUEUE_ARGUMENTS: Final = (  # in the order in which they are looked at
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-delivery-limit",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    BACKING,
)
EXCHANGE_ARGUMENTS: Final = ("alternate-exchange",)
QUEUE_TYPE: Final = "x-queue-type"
_INT32: Final = range(-(1 << 31), 1 << 31)

# The first that fits: what plain Python would lose comes before what it is made of.
_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (type(None), "void"),
    (bool, "bool"),
    (Byte, "byte"),
    (UnsignedByte, "unsignedbyte"),
    (Short, "short"),
    (UnsignedShort, "unsignedshort"),
    (UnsignedInt, "unsignedint"),
    (Long, "long"),
    (Timestamp, "timestamp"),
    (int, "signedint"),
    (Float, "float"),
    (float, "double"),
    (Decimal, "decimal"),
    (str, "longstr"),
    (RawString, "longstr"),
    (bytes, "binary"),
    (list, "array"),
    (tuple, "array"),
    (Mapping, "table"),
)


def check_queue(what: str, there: Queue, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]) -> None:
    _check("durable", what, there.durable, durable)
    _check("auto_delete", what, there.auto_delete, auto_delete)
    _check_arguments(what, _with_type(there.arguments), _with_type(arguments), QUEUE_ARGUMENTS)


def check_exchange(
    what: str,
    there: Exchange,
    type_: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, Any],
) -> None:
    _check("type", what, there.type, type_)
    _check("durable", what, there.durable, durable)
    _check("auto_delete", what, there.auto_delete, auto_delete)
    _check("internal", what, there.internal, internal)
    _check_arguments(what, there.arguments, arguments, EXCHANGE_ARGUMENTS)


def type_of(value: object) -> str:
    """What AMQP calls its type, in RabbitMQ's words."""
    if type(value) is int and value not in _INT32:
        return "long"
    return next((name for kind, name in _TYPES if isinstance(value, kind)), type(value).__name__)


def _with_type(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """To be a classic queue is not worth saying."""
    if arguments.get(QUEUE_TYPE) != "classic":
        return arguments
    return {name: value for name, value in arguments.items() if name != QUEUE_TYPE}


def _check_arguments(what: str, there: Mapping[str, Any], asked: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name in there and name in asked:
            if comparable(there[name]) != comparable(asked[name]):
                raise _differs(name, what, f"'{_text(asked[name])}'", f"'{_text(there[name])}'")
        elif name in there or name in asked:
            raise _differs(name, what, _typed(asked, name), _typed(there, name))


def _typed(arguments: Mapping[str, Any], name: str) -> str:
    if name not in arguments:
        return "none"
    return f"the value '{_text(arguments[name])}' of type '{type_of(arguments[name])}'"


def _check(name: str, what: str, current: object, received: object) -> None:
    if current != received:
        raise _differs(name, what, f"'{_text(received)}'", f"'{_text(current)}'")


def _differs(name: str, what: str, received: str, current: str) -> PeerError:
    return failed(f"inequivalent arg '{name}' for {what}: received {received} but current is {current}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
