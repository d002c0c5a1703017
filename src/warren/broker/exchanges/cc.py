"""Sender-selected distribution: the headers CC and BCC add routing keys to a message.

    routing key a, CC [b, c], BCC [d]     is routed by a, b, c and d;  stored without BCC

The message is routed by all its keys at once: a queue that several keys reach gets it once, and an alternate exchange
is used only if no key matched. Consumers must not see BCC: the stored message has the headers of `without_blind`.

As in RabbitMQ the names are case-sensitive, the value must be an array, and entries that are not text are ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from warren.amqp.types import RawString, Table
from warren.broker.exchanges.errors import BadCopies

OPEN = "CC"
BLIND = "BCC"


class Copies(NamedTuple):
    open: tuple[str, ...] = ()  # the keys in CC
    blind: tuple[str, ...] = ()  # the keys in BCC


NO_COPIES = Copies()


def copies_of(headers: Table) -> Copies:
    if OPEN not in headers and BLIND not in headers:
        return NO_COPIES
    return Copies(_keys(headers, OPEN), _keys(headers, BLIND))


def without_blind(headers: Table) -> Table:
    """The headers without BCC; the same table if there is none."""
    if BLIND not in headers:
        return headers
    return {name: value for name, value in headers.items() if name != BLIND}


def _keys(headers: Table, name: str) -> tuple[str, ...]:
    keys = headers.get(name, ())
    if not isinstance(keys, list | tuple):
        raise BadCopies(f"the header {name} is a {type(keys).__name__}", "it is an array of strings")
    return tuple(_text(each) for each in keys if isinstance(each, str | RawString))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
