"""Lines of the event log about clients: a few for each connection, none for a message.

    connection accepted ──▶ authenticated ──▶ connection closed              info      by=client or by=broker, and why
                                          └─▶ connection closed abruptly     warning   without connection.close
    connection error, channel error                                          error     method, code and text as sent

Texts and levels follow RabbitMQ's. A connection counts as accepted when its protocol header has arrived: a load
balancer that only probes the port is logged at debug level. Facts that a client chooses (names, texts) are quoted by
the formatter; no fact is a password, or a part of a message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from warren.amqp.methods import METHODS, ChannelClose, ConnectionClose

if TYPE_CHECKING:
    from warren.server.connection import ServerConnection

CONNECTION_LOG: Final = logging.getLogger("warren.connection")
CHANNEL_LOG: Final = logging.getLogger("warren.channel")
QUEUE_LOG: Final = logging.getLogger("warren.queue")
_PAYLOAD: Final = " octets: "  # begins the first bytes of a frame in a reply text


class CloseReason(NamedTuple):
    """The first reason for which a connection is closed."""

    closed_by: str  # client or broker
    text: str
    code: int = 0  # of connection.close; 0: it was not sent
    is_error: bool = False  # for which no other line is written


def client_facts(connection: ServerConnection) -> dict[str, object]:
    """Address; name, user and vhost as far as they are known."""
    name = connection.client_properties.get("connection_name")
    facts: dict[str, object] = {"client": connection.owner.name, "name": name, "user": connection.user}
    if connection.access is not None:
        facts["vhost"] = connection.access.vhost
    return {key: value for key, value in facts.items() if value}


def accepted(connection: ServerConnection) -> None:
    CONNECTION_LOG.info("connection accepted", extra={"facts": {"client": connection.owner.name}})


def authenticated(connection: ServerConnection) -> None:
    facts = {**client_facts(connection), "mechanism": connection.mechanism}
    CONNECTION_LOG.info("authenticated", extra={"facts": facts})


def closed(connection: ServerConnection, reason: CloseReason | None, error: Exception | None) -> None:
    facts = client_facts(connection)
    if reason is not None:
        facts["by"] = reason.closed_by
        facts |= {"code": reason.code} if reason.code else {}
        level = logging.ERROR if reason.is_error else logging.INFO
        CONNECTION_LOG.log(level, "connection closed", extra={"facts": {**facts, "why": without_payload(reason.text)}})
    elif not connection.is_accepted:
        CONNECTION_LOG.debug("connection closed without a protocol header", extra={"facts": facts})
    else:
        facts["why"] = error or "client closed the socket without connection.close"
        CONNECTION_LOG.warning("connection closed abruptly", extra={"facts": facts})


def connection_error(connection: ServerConnection, close: ConnectionClose) -> None:
    facts = {**client_facts(connection), **_error_facts(close)}
    CONNECTION_LOG.error("connection error", extra={"facts": facts})


def channel_error(connection: ServerConnection, channel: int, close: ChannelClose) -> None:
    facts = {**client_facts(connection), "channel": channel, **_error_facts(close)}
    CHANNEL_LOG.error("channel error", extra={"facts": facts})


def _error_facts(close: ChannelClose | ConnectionClose) -> dict[str, object]:
    spec = METHODS.get((close.class_id, close.method_id))
    method = {"method": spec.name} if spec is not None else {}
    return {**method, "code": int(close.reply_code), "text": without_payload(close.reply_text)}


def without_payload(text: str) -> str:
    """The reply to an unexpected frame quotes its first bytes, which may be those of a message."""
    before, found, _ = text.partition(_PAYLOAD)
    return f"{before} octets" if found else text
