"""Connections, channels, consumers and login attempts in the API; closing connections.

    GET      /api/connections, /api/channels, /api/consumers     lists; of one vhost, one connection, one user
    DELETE   /api/connections/{name}, …/username/{user}          connection.close 320 with the text of X-Reason

Users with the tag monitoring or administrator see all clients, others their own. Administrators close every
connection, others their own. RabbitMQ 3.10 answers 500 to some users for connections that do not exist, and for all
requests by username; here these are 404, or the rule above.

Facts come from `server.clients`. Nothing here is done per message: there are no `message_stats` of a channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from warren.management.listing import columns, listed, listed_whole, shown
from warren.management.requests import (
    AccessRule,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    is_administrator,
    not_found,
    not_permitted,
    sees_server,
)
from warren.server.clients import ChannelFacts, ClientIdentity, ConnectionFacts, ConsumerFacts
from warren.server.tls import TlsSession, distinguished_name, validity

_DEFAULT_REASON: Final = "Closed via management plugin"  # RabbitMQ's
_PROTOCOL: Final = "AMQP 0-9-1"
# A connection without TLS.
_NO_TLS: Final = {
    "ssl": False,
    **dict.fromkeys(("ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash")),
    **dict.fromkeys(("peer_cert_subject", "peer_cert_issuer", "peer_cert_validity")),
}

Facts = TypeVar("Facts", ConnectionFacts, ChannelFacts, ConsumerFacts)


# -- connections -------------------------------------------------------------------------------------------------


def connections(request: HttpRequest) -> Any:
    """Of all vhosts, or of the vhost in the path."""
    found = _seen(request, request.broker.clients.connections())
    found.sort(key=lambda facts: (facts.client.vhost, facts.client.name))
    return listed([_connection_item(facts, request.broker.node) for facts in found], request.query)


def connection(request: HttpRequest) -> Any:
    facts = _connection(request, may_see_all=sees_server(request.user))
    item = _connection_item(facts, request.broker.node)
    return columns({name: "" if value is None else value for name, value in item.items()}, request.query)  # as RabbitMQ


def close_connection(request: HttpRequest) -> Any:
    return _close(request, [_connection(request, may_see_all=is_administrator(request.user))])


def connections_of_user(request: HttpRequest) -> Any:
    found = _connections_of_user(request, may_see_all=sees_server(request.user))
    node = request.broker.node
    items = [
        {"name": client.name, "vhost": client.vhost, "user": client.user, "node": node}
        for client in (facts.client for facts in found)
    ]
    return listed(items, request.query)


def close_connections_of_user(request: HttpRequest) -> Any:
    return _close(request, _connections_of_user(request, may_see_all=is_administrator(request.user)))


def _connection(request: HttpRequest, may_see_all: bool) -> ConnectionFacts:
    found = request.broker.clients.connections(request.names["name"])
    if not found:
        raise not_found()
    _check_owner(request, found[-1].client.user, may_see_all)  # the newest: an earlier one has lost its socket
    return found[-1]


def _connections_of_user(request: HttpRequest, may_see_all: bool) -> list[ConnectionFacts]:
    user = request.names["user"]
    _check_owner(request, user, may_see_all)
    return [facts for facts in request.broker.clients.connections() if facts.client.user == user]


def _check_owner(request: HttpRequest, owner: str, may_see_all: bool) -> None:
    if not may_see_all and owner != request.user.name:
        raise not_permitted("User not authorised to access object")


def _close(request: HttpRequest, found: Sequence[ConnectionFacts]) -> HttpResponse:
    reason = request.headers.get("x-reason", _DEFAULT_REASON)
    text = reason.encode("latin-1", "replace").decode(errors="replace")  # clients send UTF-8
    request.broker.clients.close(found, text, request.user.name)
    return HttpResponse(None, 204)


# -- channels ----------------------------------------------------------------------------------------------------


def channels(request: HttpRequest) -> Any:
    """Of all vhosts, or of the vhost in the path."""
    return _listed_channels(request, _seen(request, request.broker.clients.channels()))


def channels_of_connection(request: HttpRequest) -> Any:
    facts = _connection(request, may_see_all=sees_server(request.user))
    return _listed_channels(request, request.broker.clients.channels(facts.client.name))


def channel(request: HttpRequest) -> Any:
    clients, name = request.broker.clients, request.names["channel"]
    connection_name, _, _ = name.rpartition(" (")
    facts = next((each for each in clients.channels(connection_name) if each.name == name), None)
    if facts is None:
        raise not_found()
    _check_owner(request, facts.client.user, may_see_all=sees_server(request.user))
    consumers = [each for each in clients.consumers(connection_name) if each.channel == facts.number]
    node = request.broker.node
    item = _channel_item(facts, node) | {"consumer_details": [_consumer_item(each, node) for each in consumers]}
    return columns(item | {"publishes": [], "deliveries": []}, request.query)


def _listed_channels(request: HttpRequest, found: Iterable[ChannelFacts]) -> Any:
    ordered = sorted(found, key=lambda facts: (facts.client.vhost, facts.client.name, facts.number))
    return listed([_channel_item(facts, request.broker.node) for facts in ordered], request.query)


# -- consumers ---------------------------------------------------------------------------------------------------


def consumers(request: HttpRequest) -> Any:
    return _listed_consumers(request, request.broker.clients.consumers())


def consumers_of_vhost(request: HttpRequest) -> Any:
    """Not refused to a user without a permission there, who sees no consumer."""
    name = request.names["vhost"]
    if all(open_vhost.row.name != name for open_vhost in request.broker.vhosts.every()):
        raise not_found()
    found = request.broker.clients.consumers()
    return _listed_consumers(request, [each for each in found if each.client.vhost == name])


def queue_consumers(request: HttpRequest, queue: str) -> list[dict[str, Any]]:
    """`consumer_details` of a queue: all its consumers, also those of other users."""
    handle = request.vhost.started_queue(queue)
    found = [] if handle is None else request.broker.clients.consumers_of(handle)
    return [_consumer_item(facts, request.broker.node) for facts in found]


def _listed_consumers(request: HttpRequest, found: Iterable[ConsumerFacts]) -> Any:
    items = [_consumer_item(facts, request.broker.node) for facts in _seen(request, found)]
    return listed_whole(items, request.query)


def _seen(request: HttpRequest, found: Iterable[Facts]) -> list[Facts]:
    """What this user sees of it, in the vhost of the path if there is one."""
    user, is_limited = request.user.name, not sees_server(request.user)
    vhost = request.open_vhost.row.name if request.open_vhost is not None else None
    return [
        facts
        for facts in found
        if (vhost is None or facts.client.vhost == vhost) and (not is_limited or facts.client.user == user)
    ]


# -- login attempts ----------------------------------------------------------------------------------------------


def attempts(request: HttpRequest) -> Any:
    _check_node(request)
    return [
        {
            "protocol": each.protocol,
            "auth_attempts": each.succeeded + each.failed,
            "auth_attempts_failed": each.failed,
            "auth_attempts_succeeded": each.succeeded,
        }
        for each in request.broker.users.attempts()
    ]


def attempts_by_source(request: HttpRequest) -> Any:
    """Attempts are not recorded by address and user, which is also RabbitMQ's default."""
    _check_node(request)
    return []


def reset_attempts(request: HttpRequest) -> Any:
    _check_node(request)
    request.broker.users.reset_attempts()
    return HttpResponse(None, 204)


def _check_node(request: HttpRequest) -> None:
    if request.names["node"] != request.broker.node:
        raise not_found()


# -- items -------------------------------------------------------------------------------------------------------


def _connection_item(facts: ConnectionFacts, node: str) -> dict[str, Any]:
    client, properties = facts.client, shown(facts.client_properties)
    item = {
        "name": client.name,
        "user": client.user,
        "user_who_performed_action": client.user,
        "vhost": client.vhost,
        "node": node,
        "type": "network",
        "protocol": _PROTOCOL,
        "auth_mechanism": facts.mechanism,
        "host": facts.host,
        "port": facts.port,
        "peer_host": client.peer_host,
        "peer_port": client.peer_port,
        "state": facts.state,
        "connected_at": facts.connected_ms,
        "timeout": facts.heartbeat_seconds,
        "frame_max": facts.frame_max,
        "channel_max": facts.channel_max,
        "channels": facts.channel_count,
        "client_properties": properties,
        "recv_oct": facts.received_bytes,
        "recv_cnt": facts.reads,
        "send_oct": facts.sent_bytes,
        "send_cnt": facts.writes,
        "send_pend": facts.unsent_bytes,
        **_tls_item(facts.tls),
    }
    return item if "connection_name" not in properties else item | {"user_provided_name": properties["connection_name"]}


def _tls_item(tls: TlsSession | None) -> dict[str, Any]:
    """Names and forms are RabbitMQ's."""
    if tls is None:
        return _NO_TLS
    suite, certificate = tls.cipher_suite, tls.certificate
    names = {"ssl_key_exchange": suite.key_exchange, "ssl_cipher": suite.cipher, "ssl_hash": suite.mac}
    item = _NO_TLS | {"ssl": True, "ssl_protocol": tls.version} | names
    if not certificate:
        return item
    subject, issuer = (distinguished_name(certificate[name]) for name in ("subject", "issuer"))
    item |= {"peer_cert_subject": subject, "peer_cert_issuer": issuer}
    return item | {"peer_cert_validity": " - ".join(f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in validity(certificate))}


def _channel_item(facts: ChannelFacts, node: str) -> dict[str, Any]:
    client = facts.client
    item = {
        "name": facts.name,
        "number": facts.number,
        "user": client.user,
        "user_who_performed_action": client.user,
        "vhost": client.vhost,
        "node": node,
        "connection_details": {
            "name": client.name,
            "peer_host": client.peer_host,
            "peer_port": client.peer_port,
        },
        "state": facts.state,
        "confirm": facts.is_confirming,
        "transactional": False,
        "consumer_count": facts.consumer_count,
        "prefetch_count": facts.prefetch,
        "global_prefetch_count": facts.shared_prefetch,
        "messages_unacknowledged": facts.unacked,
        "messages_unconfirmed": facts.unconfirmed,
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
    }
    return item if facts.idle_since_ms is None else item | {"idle_since": _time_text(facts.idle_since_ms)}


def _consumer_item(facts: ConsumerFacts, node: str) -> dict[str, Any]:
    return {
        "consumer_tag": facts.tag,
        "queue": {"name": facts.queue, "vhost": facts.client.vhost},
        "channel_details": _channel_details(facts.client, facts.channel, facts.channel_name, node),
        "ack_required": not facts.is_auto_ack,
        "exclusive": facts.is_exclusive,
        "prefetch_count": facts.prefetch,
        "active": facts.is_active,
        "activity_status": facts.activity_status,
        "arguments": shown(facts.arguments),
    }


def _channel_details(client: ClientIdentity, number: int, name: str, node: str) -> dict[str, Any]:
    return {
        "name": name,
        "number": number,
        "user": client.user,
        "node": node,
        "connection_name": client.name,
        "peer_host": client.peer_host,
        "peer_port": client.peer_port,
    }


def _time_text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


_ATTEMPTS: Final = "/api/auth/attempts/{node}"

ROUTES: Final[tuple[HttpRoute, ...]] = (
    HttpRoute(
        "/api/connections",
        "GET",
        AccessRule.MANAGEMENT,
        connections,
        summary="connections: all for monitoring and administrator, otherwise the user's own",
    ),
    HttpRoute("/api/connections/{name}", "GET", AccessRule.MANAGEMENT, connection, summary="one connection"),
    HttpRoute(
        "/api/connections/{name}",
        "DELETE",
        AccessRule.MANAGEMENT,
        close_connection,
        summary="closes it with 320 and the text of the header `X-Reason`; administrators every connection, "
        "others their own",
    ),
    HttpRoute(
        "/api/connections/username/{user}",
        "GET",
        AccessRule.MANAGEMENT,
        connections_of_user,
        summary="connections of a user: name, vhost, user, node",
    ),
    HttpRoute(
        "/api/connections/username/{user}",
        "DELETE",
        AccessRule.MANAGEMENT,
        close_connections_of_user,
        summary="close them",
    ),
    HttpRoute(
        "/api/connections/{name}/channels",
        "GET",
        AccessRule.MANAGEMENT,
        channels_of_connection,
        summary="channels of a connection",
    ),
    HttpRoute(
        "/api/vhosts/{vhost}/connections", "GET", AccessRule.MANAGEMENT, connections, summary="connections to a vhost"
    ),
    HttpRoute("/api/channels", "GET", AccessRule.MANAGEMENT, channels, summary="channels, as for connections"),
    HttpRoute(
        "/api/channels/{channel}", "GET", AccessRule.MANAGEMENT, channel, summary="one channel, with its consumers"
    ),
    HttpRoute("/api/vhosts/{vhost}/channels", "GET", AccessRule.MANAGEMENT, channels, summary="channels in a vhost"),
    HttpRoute(
        "/api/consumers",
        "GET",
        AccessRule.MANAGEMENT,
        consumers,
        summary="consumers, as for connections; without pages",
    ),
    HttpRoute(
        "/api/consumers/{vhost}",
        "GET",
        AccessRule.MANAGEMENT,
        consumers_of_vhost,
        opens_vhost=False,
        summary="of one vhost",
    ),
    HttpRoute(_ATTEMPTS, "GET", AccessRule.MONITORING, attempts, summary="logins accepted and refused, by protocol"),
    HttpRoute(_ATTEMPTS, "DELETE", AccessRule.MONITORING, reset_attempts, summary="set these counters to 0"),
    HttpRoute(
        f"{_ATTEMPTS}/source",
        "GET",
        AccessRule.MONITORING,
        attempts_by_source,
        summary="always empty: attempts are not recorded by address, as by default in RabbitMQ",
    ),
    HttpRoute(
        f"{_ATTEMPTS}/source", "DELETE", AccessRule.MONITORING, reset_attempts, summary="the same as without `/source`"
    ),
)
