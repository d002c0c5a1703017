"""What RabbitMQ calls the types of values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from warren.amqp import types
from warren.broker.queue_arguments import is_integer, type_of

TYPES = {
    "void": None,
    "bool": True,
    "byte": types.Byte(1),
    "unsignedbyte": types.UnsignedByte(1),
    "short": types.Short(1),
    "unsignedshort": types.UnsignedShort(1),
    "signedint": 1,
    "unsignedint": types.UnsignedInt(1),
    "long": types.Long(1),
    "timestamp": types.Timestamp(1),
    "float": types.Float(1.5),
    "double": 1.5,
    "decimal": Decimal("1.5"),
    "longstr": "text",
    "binary": b"bytes",
    "array": [1],
    "table": {"a": 1},
}


@pytest.mark.parametrize("name", TYPES)
def test_types_have_rabbitmqs_names(name: str) -> None:
    assert type_of(TYPES[name]) == name


def test_wide_numbers_and_strange_texts_have_names_too() -> None:
    assert type_of(1 << 40) == "long"
    assert type_of(types.RawString(b"\xff")) == "longstr"


def test_times_and_flags_are_no_integers() -> None:
    assert [name for name, value in TYPES.items() if is_integer(value)] == [
        "byte",
        "unsignedbyte",
        "short",
        "unsignedshort",
        "signedint",
        "unsignedint",
        "long",
    ]
