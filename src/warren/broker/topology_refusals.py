"""What a client is told when its queues, exchanges and bindings are not as it asks: codes and texts as RabbitMQ's.

Clients and their tests look into these texts, so their shape is kept word by word where there is a table of them
(tests/broker/expected_topology.tsv).
"""

from __future__ import annotations

from warren.amqp.errors import PeerError, ReplyCode
from warren.base.errors import Refused, WarrenError
from warren.broker.arguments import BadArgument
from warren.broker.errors import QueueDown, QueuesClosed
from warren.broker.permissions import AccessRefused

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
    """The whole text is what client libraries compare."""
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
    """RabbitMQ takes line ends out of most names."""
    return name.replace("\r", "").replace("\n", "")


def told(error: WarrenError) -> WarrenError:
    """What the client hears of an error from below; it is passed on if it is none of the client's business."""
    if isinstance(error, AccessRefused):
        return refused(error.what)
    if isinstance(error, QueuesClosed):
        return PeerError(ReplyCode.CONNECTION_FORCED, "the broker is stopping")
    if isinstance(error, QueueDown):
        return PeerError(ReplyCode.NOT_FOUND, error.what)
    return failed(error.what) if isinstance(error, Refused) else error
