"""Errors of declarations, with RabbitMQ's codes and texts; and the check of a declaration against an existing object.

Clients and their tests parse these texts, so they are RabbitMQ's word by word where there is a table of them
(tests/broker/expected_topology.tsv).

Declaring an existing queue or exchange succeeds if it is equivalent; otherwise the error names the difference. Flags
are compared first, then the arguments that have a meaning; others may differ. Arguments are compared as in RabbitMQ:
integers by value, of any width; 10 and 10.0 differ. The width of an existing one is not stored: the error names the
narrowest type that clients send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from warren.amqp.errors import PeerError, ReplyCode
from warren.base.errors import Refused, WarrenError
from warren.broker.auth.permissions import AccessRefused
from warren.broker.errors import QueueDown, QueuesClosed, VhostDeleted
from warren.broker.exchanges.headers import comparable
from warren.broker.queue_arguments import BACKING, BadArgument, type_of
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import NewQueue, QueueRow

RESERVED = "amq."


def queue_in(vhost: str, name: str) -> str:
    return f"queue '{name}' in vhost '{vhost}'"


def exchange_in(vhost: str, name: str) -> str:
    return f"exchange '{name}' in vhost '{vhost}'"


def not_found(what: str) -> PeerError:
    return PeerError(ReplyCode.NOT_FOUND, f"no {what}")


def refused(text: str) -> PeerError:
    return PeerError(ReplyCode.ACCESS_REFUSED, text)


def failed(text: str) -> PeerError:
    return PeerError(ReplyCode.PRECONDITION_FAILED, text)


def locked(what: str) -> PeerError:
    """Client libraries compare the whole text."""
    return PeerError(
        ReplyCode.RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {what}. It could be originally declared on another connection or "
        "the exclusive property value does not match that of the original declaration.",
    )


def bad_argument(what: str, error: BadArgument, type_: str) -> PeerError:
    if not error.reason:
        return failed(f"invalid arg '{error.name}' for {what} of queue type {type_}")
    return failed(f"invalid arg '{error.name}' for {what}: {error.reason}")


def check_not_default(*exchanges: str) -> None:
    if "" in exchanges:
        raise refused("operation not permitted on the default exchange")


def check_name(kind: str, name: str) -> None:
    if name.startswith(RESERVED):
        raise refused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def plain(name: str) -> str:
    """RabbitMQ removes line ends from most names."""
    return name.replace("\r", "").replace("\n", "")


def client_error(error: WarrenError) -> WarrenError:
    """The error for the client. An error that the client did not cause is returned unchanged."""
    if isinstance(error, AccessRefused):
        return refused(error.what)
    if isinstance(error, VhostDeleted):
        return PeerError(ReplyCode.CONNECTION_FORCED, error.what)
    if isinstance(error, QueuesClosed):
        return PeerError(ReplyCode.CONNECTION_FORCED, "the broker is stopping")
    if isinstance(error, QueueDown):
        return PeerError(ReplyCode.NOT_FOUND, error.what)
    return failed(error.what) if isinstance(error, Refused) else error


QUEUE_ARGUMENTS: Final = (  # in the order of comparison
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


def check_same_queue(
    what: str, current: QueueRow | NewQueue, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
) -> None:
    _check("durable", what, current.durable, durable)
    _check("auto_delete", what, current.auto_delete, auto_delete)
    _check_arguments(what, _with_type(current.arguments), _with_type(arguments), QUEUE_ARGUMENTS)


def check_same_exchange(
    what: str,
    current: ExchangeRow,
    type_: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, Any],
) -> None:
    _check("type", what, current.type, type_)
    _check("durable", what, current.durable, durable)
    _check("auto_delete", what, current.auto_delete, auto_delete)
    _check("internal", what, current.internal, internal)
    _check_arguments(what, current.arguments, arguments, EXCHANGE_ARGUMENTS)


def _with_type(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The type classic is the default, and counts as not given."""
    if arguments.get(QUEUE_TYPE) != "classic":
        return arguments
    return {name: value for name, value in arguments.items() if name != QUEUE_TYPE}


def _check_arguments(
    what: str, existing: Mapping[str, Any], declared: Mapping[str, Any], names: tuple[str, ...]
) -> None:
    for name in names:
        current, received = existing.get(name), declared.get(name)  # an argument without a value counts as not given
        if current is not None and received is not None:
            if not _is_same(current, received):
                raise _differs(name, what, f"'{_text(received)}'", f"'{_text(current)}'")
        elif current is not None and name in declared:
            raise _differs(name, what, "none", f"'{_text(current)}'")
        elif current is not None or received is not None:
            raise _differs(name, what, _typed(received), _typed(current))


def _is_same(current: object, received: object) -> bool:
    is_same_kind = isinstance(current, float) == isinstance(received, float)
    return is_same_kind and comparable(current) == comparable(received)


def _typed(value: object) -> str:
    return "none" if value is None else f"the value '{_text(value)}' of type '{type_of(value)}'"


def _check(name: str, what: str, current: object, received: object) -> None:
    if current != received:
        raise _differs(name, what, f"'{_text(received)}'", f"'{_text(current)}'")


def _differs(name: str, what: str, received: str, current: str) -> PeerError:
    return failed(f"inequivalent arg '{name}' for {what}: received {received} but current is {current}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
