"""Something is declared that is there: fine if it is the same, else a text that says in what it differs.

Flags are compared first, then those arguments that mean something; the others may differ. Arguments are compared as
RabbitMQ does: whole numbers by their value, however wide they were sent; 10 and 10.0 differ. How wide one was that is
there already is not kept: it is told as the narrowest that a client sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from warren.amqp.errors import PeerError
from warren.broker.arguments import BACKING
from warren.broker.exchanges.headers import comparable
from warren.broker.topology_refusals import failed
from warren.broker.type_names import type_of
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow

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


def check_queue(what: str, there: QueueRow, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]) -> None:
    _check("durable", what, there.durable, durable)
    _check("auto_delete", what, there.auto_delete, auto_delete)
    _check_arguments(what, _with_type(there.arguments), _with_type(arguments), QUEUE_ARGUMENTS)


def check_exchange(
    what: str,
    there: ExchangeRow,
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


def _with_type(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """To be a classic queue is not worth saying."""
    if arguments.get(QUEUE_TYPE) != "classic":
        return arguments
    return {name: value for name, value in arguments.items() if name != QUEUE_TYPE}


def _check_arguments(what: str, there: Mapping[str, Any], asked: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        current, received = there.get(name), asked.get(name)  # an argument without a value counts as not given
        if current is not None and received is not None:
            if not _is_same(current, received):
                raise _differs(name, what, f"'{_text(received)}'", f"'{_text(current)}'")
        elif current is not None and name in asked:
            raise _differs(name, what, "none", f"'{_text(current)}'")
        elif current is not None or received is not None:
            raise _differs(name, what, _typed(received), _typed(current))


def _is_same(current: object, received: object) -> bool:
    is_as_whole = isinstance(current, float) == isinstance(received, float)
    return is_as_whole and comparable(current) == comparable(received)


def _typed(value: object) -> str:
    return "none" if value is None else f"the value '{_text(value)}' of type '{type_of(value)}'"


def _check(name: str, what: str, current: object, received: object) -> None:
    if current != received:
        raise _differs(name, what, f"'{_text(received)}'", f"'{_text(current)}'")


def _differs(name: str, what: str, received: str, current: str) -> PeerError:
    return failed(f"inequivalent arg '{name}' for {what}: received {received} but current is {current}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
