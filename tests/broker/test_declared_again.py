"""What RabbitMQ calls the types of values, and which of them are the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from warren.amqp import types
from warren.amqp.errors import PeerError
from warren.base.ids import QueueId, VhostId
from warren.broker.declared_again import check_queue, type_of
from warren.catalog.queues import Queue

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


def again(there: Any, asked: Any) -> None:
    row = Queue(QueueId(1), VhostId(1), "q", False, False, False, {"x-message-ttl": there})
    check_queue("queue 'q' in vhost '/'", row, False, False, {"x-message-ttl": asked})


@pytest.mark.parametrize("name", TYPES)
def test_types_have_rabbitmqs_names(name: str) -> None:
    assert type_of(TYPES[name]) == name


def test_wide_numbers_and_strange_texts_have_names_too() -> None:
    assert type_of(1 << 40) == "long"
    assert type_of(types.RawString(b"\xff")) == "longstr"


def test_a_number_is_itself_however_wide_it_was_sent() -> None:
    """What differs raises: see the next test."""
    for value in (types.Byte(5), types.UnsignedShort(5), types.Long(5)):
        again(5, value)


@pytest.mark.parametrize(("there", "asked"), [(5, 6), (5, "5"), (1, True), ("a", "b"), ([1], [2]), (None, 0)])
def test_other_values_differ(there: Any, asked: Any) -> None:
    with pytest.raises(PeerError, match="inequivalent arg 'x-message-ttl' for queue 'q'"):
        again(there, asked)
