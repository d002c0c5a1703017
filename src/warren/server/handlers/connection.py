"""Methods on channel 0: login, tuning, opening of a vhost, and close.

    start ──▶ start-ok: the login, in another thread ──▶ tune ──▶ tune-ok ──▶ open: permitted? ──▶ open-ok

A refused login is answered after a delay: by `connection.close` if the client has the capability
`authentication_failure_close`, otherwise the socket is closed, as in the standard.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from warren import __version__
from warren.amqp.connection import Tuning, offered
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from warren.broker.auth.permissions import Access, AccessRefused, access_to
from warren.broker.policies import MAX_CONNECTIONS
from warren.broker.vhosts import UnknownVhost
from warren.catalog.users import UserRow
from warren.server import event_lines
from warren.server.authentication import ANONYMOUS, EXTERNAL, Login, LoginRefused, read_login
from warren.server.event_lines import CloseReason
from warren.server.tls import certificate_user

if TYPE_CHECKING:
    from warren.server.connection import ServerConnection
    from warren.server.vhost_loop import VhostLoop


CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
_OPEN: Final = (10, 40)
_UPDATE_SECRET: Final = (10, 70)


def greet(connection: ServerConnection) -> None:
    settings = connection.settings
    properties: dict[str, Any] = {
        "capabilities": dict.fromkeys(CAPABILITIES, True),
        "product": settings.product,
        "version": settings.announced_version,
        "platform": "Python",
        "information": f"Warren {__version__}",
    }
    mechanisms = " ".join(_offered(connection)).encode()
    connection.send_method(0, ConnectionStart(server_properties=properties, mechanisms=mechanisms))


def handle(connection: ServerConnection, method: Method) -> None:
    match method:
        case ConnectionStartOk():
            _log_in(connection, method)
        case ConnectionTuneOk():
            tuning = connection.amqp.tuning
            connection.frame_max = tuning.frame_max
        case ConnectionOpen():
            _open(connection, method)
        case ConnectionClose():
            connection.set_close_reason(CloseReason("client", method.reply_text, method.reply_code))
            connection.release()
            _send_close(connection)
        case ConnectionUpdateSecret():
            _update_secret(connection, method)
        case ConnectionSecureOk():
            raise PeerError(ReplyCode.CHANNEL_ERROR, "unexpected connection.secure-ok")


def _send_close(connection: ServerConnection) -> None:
    """Exclusive queues are deleted first: after the reply a client may use their names."""
    if connection.owner.exclusive:
        release = partial(connection.served.declarations.release, connection.owner)
        connection.offload(release, lambda _: _send_close_ok(connection))
    else:
        _send_close_ok(connection)


def _send_close_ok(connection: ServerConnection) -> None:
    connection.send_method(0, ConnectionCloseOk())
    connection.end()


def _log_in(connection: ServerConnection, method: ConnectionStartOk) -> None:
    capabilities = method.client_properties.get("capabilities")
    if isinstance(capabilities, dict):
        connection.capabilities = frozenset(str(name) for name, value in capabilities.items() if value is True)
    connection.client_properties = dict(method.client_properties)
    connection.set_mechanism(method.mechanism)

    def call() -> UserRow | LoginRefused:
        try:
            return _authenticated(connection, method.mechanism, method.response)
        except LoginRefused as refusal:
            return refusal

    connection.offload(call, partial(_logged_in, connection))


def _authenticated(connection: ServerConnection, mechanism: str, response: bytes) -> UserRow:
    users, settings, peer = connection.server.users, connection.settings, connection.peer
    if mechanism == ANONYMOUS and settings.anonymous_login_user:
        return users.trust(settings.anonymous_login_user, mechanism, peer)
    if mechanism == EXTERNAL and mechanism in _offered(connection):
        certificate = connection.tls.certificate if connection.tls is not None else None
        return users.trust(certificate_user(certificate, settings.certificate_user_from) or "", mechanism, peer)
    return users.check(read_login(mechanism, response, _offered(connection)), peer)


def _offered(connection: ServerConnection) -> list[str]:
    """EXTERNAL only over TLS."""
    offered = connection.settings.offered_mechanisms
    return [name for name in offered if name != EXTERNAL or connection.tls is not None]


def _logged_in(connection: ServerConnection, outcome: object) -> None:
    if isinstance(outcome, UserRow):
        connection.logged_in(outcome)
        settings = connection.settings
        offer = Tuning(settings.channel_max, settings.frame_max, settings.heartbeat_seconds)
        connection.send_method(0, offered(offer))
        return
    assert isinstance(outcome, LoginRefused), "a login is accepted or refused"
    connection.suspend(outcome.delay_seconds, partial(_send_refusal, connection, outcome))


def _send_refusal(connection: ServerConnection, refusal: LoginRefused) -> None:
    if "authentication_failure_close" in connection.capabilities:
        connection.close(ConnectionClose(ReplyCode.ACCESS_REFUSED, refusal.text, 0, 0))
    else:
        connection.set_close_reason(CloseReason("broker", refusal.text))
        connection.end()


def _open(connection: ServerConnection, method: ConnectionOpen) -> None:
    """Changes of users, permissions or vhosts reach connections in the loop. What was read before such a change is read
    again."""
    name, server = method.virtual_host, connection.server
    updates = server.access_updates

    def call() -> tuple[VhostLoop, UserRow, Access]:
        user = server.users.find(connection.user)
        try:
            served = server.served(name)
        except UnknownVhost as error:
            raise PeerError(ReplyCode.NOT_ALLOWED, f"vhost {name} not found", *_OPEN) from error
        try:
            if user is None or user.id != connection.user_id:
                raise AccessRefused(f"user {connection.user!r} was deleted")
            return served, user, access_to(server.catalog, user, served.vhost.row)
        except AccessRefused as error:
            what = f"access to vhost '{name}' refused for user '{connection.user}'"
            raise PeerError(ReplyCode.NOT_ALLOWED, what, *_OPEN) from error

    def opened(outcome: object) -> None:
        if server.access_updates != updates:
            _open(connection, method)
        else:
            _opened(connection, outcome)

    connection.offload(call, opened)


def _opened(connection: ServerConnection, outcome: object) -> None:
    assert isinstance(outcome, tuple), "a vhost, the user, and its permissions there"
    _check_connection_limit(connection, outcome[0])
    connection.enter(*outcome)
    event_lines.authenticated(connection)
    connection.send_method(0, ConnectionOpenOk())
    connection.server.opened(connection)


def _check_connection_limit(connection: ServerConnection, served: VhostLoop) -> None:
    limit = served.vhost.policies.limit(MAX_CONNECTIONS)
    if limit is not None and connection.server.open_count(served) >= limit:
        what = f"access to vhost '{served.vhost.row.name}' refused for user '{connection.user}'"
        raise PeerError(ReplyCode.NOT_ALLOWED, f"{what}: connection limit ({limit}) is reached", *_OPEN)


def _update_secret(connection: ServerConnection, method: ConnectionUpdateSecret) -> None:
    """Check the new secret as at a login, and read the permissions of the user again. RabbitMQ checks only secrets that
    expire, such as tokens; for its own users any secret will do."""
    server = connection.server

    def call() -> Access:
        try:
            secret = method.new_secret.decode()
            user = server.users.check(Login(connection.user, secret, "update-secret"), connection.peer)
            return access_to(server.catalog, user, connection.served.vhost.row)
        except (LoginRefused, AccessRefused, UnicodeDecodeError) as error:
            what = "New secret was refused by one of the backends"
            raise PeerError(ReplyCode.NOT_ALLOWED, what, *_UPDATE_SECRET) from error

    connection.offload(call, partial(_secret_updated, connection))


def _secret_updated(connection: ServerConnection, access: object) -> None:
    assert isinstance(access, Access), "permissions in the open vhost"
    connection.set_access(access)
    connection.send_method(0, ConnectionUpdateSecretOk())
