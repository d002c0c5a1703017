"""The headers CC and BCC: more routing keys for one message, chosen by its sender.

    routing key a, CC [b, c], BCC [d]     is routed by a, b, c and d;  stored without BCC

The message is routed by all its keys at once: a queue that several of them reach gets it once, and an alternate
exchange is asked only if none of them matched. What is stored, and so every consumer, must not see BCC: `without_blind`
is what whoever stores the message keeps of its headers.

As in RabbitMQ the names are case-sensitive, the value must be an array, and what is no text in it is passed over.
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
    """The same table if there is no BCC in it."""
    if BLIND not in headers:
        return headers
    return {name: value for name, value in headers.items() if name != BLIND}


def _keys(headers: Table, name: str) -> tuple[str, ...]:
    told = headers.get(name, ())
    if not isinstance(told, list | tuple):
        raise BadCopies(f"the header {name} is a {type(told).__name__}", "it is an array of strings")
    return tuple(_text(each) for each in told if isinstance(each, str | RawString))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
