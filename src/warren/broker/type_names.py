"""What AMQP calls the type of a value in a table, in RabbitMQ's words: errors show it to clients."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

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


def type_of(value: object) -> str:
    """What AMQP calls its type, in RabbitMQ's words."""
    if type(value) is int and value not in _INT32:
        return "long"
    return next((name for kind, name in _TYPES if isinstance(value, kind)), type(value).__name__)


def is_integer(value: object) -> bool:
    """Of whatever width. A time is none, and neither is a flag."""
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)
