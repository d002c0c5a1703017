"""Who may do what: one table, asked by everybody who does something for somebody.

    AUTHORIZE[operation] ──▶ (right, role) …        names by role ──▶ each need's pattern against its name
    QUEUE_BIND               write QUEUE, read EXCHANGE

Whoever serves a user (AMQP, HTTP, commands) asks `authorize` with the names it is about to touch. A need that belongs
to a role which was not named is not there (a queue without a dead-letter exchange); the others must all be met.

The default exchange is called `amq.default` here, as in RabbitMQ. Routing keys at a topic exchange are asked for
besides, by `authorize_topic`; where nothing was said about an exchange, every key will do. In its patterns {username},
{vhost} and {client_id} stand for themselves as text, never as part of a pattern: RabbitMQ puts them in as they are, so
that a client called `.*` could read everything.

Always true: what is not in the table cannot be asked for; a pattern that cannot be used permits nothing; a user who has
no permissions in a vhost does not enter it. Not here: tags, which are for the management (their operations come there).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from warren.base.errors import Refused
from warren.broker.auth.patterns import compiled, matches
from warren.catalog import permissions
from warren.catalog import permissions as topic_permissions
from warren.catalog.catalog import Catalog
from warren.catalog.users import UserRow
from warren.catalog.vhosts import VhostRow

DEFAULT_EXCHANGE = "amq.default"
LOOPBACK_USERS = frozenset({"guest"})
_VARIABLE = re.compile(r"\{(username|vhost|client_id)\}")


class Right(Enum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class NameRole(Enum):
    """What a name is in an operation; the value is what it is called when it is refused."""

    QUEUE = "queue"
    EXCHANGE = "exchange"
    DESTINATION = "exchange, as destination"
    DEAD_LETTERS = "exchange, for dead letters"
    ALTERNATE = "exchange, as alternate"


class Operation(Enum):
    QUEUE_DECLARE = "queue.declare"
    QUEUE_DECLARE_PASSIVE = "queue.declare (passive)"
    QUEUE_DELETE = "queue.delete"
    QUEUE_BIND = "queue.bind"
    QUEUE_UNBIND = "queue.unbind"
    QUEUE_PURGE = "queue.purge"
    EXCHANGE_DECLARE = "exchange.declare"
    EXCHANGE_DECLARE_PASSIVE = "exchange.declare (passive)"
    EXCHANGE_DELETE = "exchange.delete"
    EXCHANGE_BIND = "exchange.bind"
    EXCHANGE_UNBIND = "exchange.unbind"
    BASIC_PUBLISH = "basic.publish"
    BASIC_GET = "basic.get"
    BASIC_CONSUME = "basic.consume"


class Need(NamedTuple):
    right: Right
    role: NameRole
    only_with: NameRole | None = None  # needed only if this one was named


_BIND_QUEUE = (Need(Right.WRITE, NameRole.QUEUE), Need(Right.READ, NameRole.EXCHANGE))
_BIND_EXCHANGE = (Need(Right.WRITE, NameRole.DESTINATION), Need(Right.READ, NameRole.EXCHANGE))
_READ_QUEUE = (Need(Right.READ, NameRole.QUEUE),)

AUTHORIZE: dict[Operation, tuple[Need, ...]] = {
    Operation.QUEUE_DECLARE: (
        Need(Right.CONFIGURE, NameRole.QUEUE),
        Need(Right.READ, NameRole.QUEUE, NameRole.DEAD_LETTERS),
        Need(Right.WRITE, NameRole.DEAD_LETTERS, NameRole.DEAD_LETTERS),
    ),
    Operation.QUEUE_DECLARE_PASSIVE: (),
    Operation.QUEUE_DELETE: (Need(Right.CONFIGURE, NameRole.QUEUE),),
    Operation.QUEUE_BIND: _BIND_QUEUE,
    Operation.QUEUE_UNBIND: _BIND_QUEUE,
    Operation.QUEUE_PURGE: _READ_QUEUE,
    Operation.EXCHANGE_DECLARE: (
        Need(Right.CONFIGURE, NameRole.EXCHANGE),
        Need(Right.READ, NameRole.EXCHANGE, NameRole.ALTERNATE),
        Need(Right.WRITE, NameRole.ALTERNATE, NameRole.ALTERNATE),
    ),
    Operation.EXCHANGE_DECLARE_PASSIVE: (),
    Operation.EXCHANGE_DELETE: (Need(Right.CONFIGURE, NameRole.EXCHANGE),),
    Operation.EXCHANGE_BIND: _BIND_EXCHANGE,
    Operation.EXCHANGE_UNBIND: _BIND_EXCHANGE,
    Operation.BASIC_PUBLISH: (Need(Right.WRITE, NameRole.EXCHANGE),),
    Operation.BASIC_GET: _READ_QUEUE,
    Operation.BASIC_CONSUME: _READ_QUEUE,
}


class AccessRefused(Refused):
    """The user may not: 403 in AMQP, 401 in HTTP."""


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Access:
    """A user in one vhost, and what it is permitted there."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str
    topics: Mapping[str, TopicPatterns]  # by the name of the exchange

    def pattern(self, right: Right) -> str:
        return {Right.CONFIGURE: self.configure, Right.WRITE: self.write, Right.READ: self.read}[right]


def access_to(catalog: Catalog, user: UserRow, vhost: VhostRow) -> Access:
    """Let a user into a vhost; refused if nothing at all is permitted to it there."""
    with catalog.reading() as connection:
        found = permissions.get(connection, user.id, vhost.id)
        told = topic_permissions.every_topic(connection, user.id, vhost.id)
    if found is None:
        raise AccessRefused(f"access to vhost {vhost.name!r} refused for user {user.name!r}")
    topics = {each.exchange: TopicPatterns(each.write, each.read) for each in told}
    return Access(user.name, vhost.name, found.configure, found.write, found.read, topics)


def authorize(access: Access, operation: Operation, names: Mapping[NameRole, str]) -> None:
    """Refused if any need of the operation is not met. A name that a need speaks of must be there."""
    for right, role, only_with in AUTHORIZE[operation]:
        if only_with is not None and only_with not in names:
            continue
        name = names[role] if role is NameRole.QUEUE else names[role] or DEFAULT_EXCHANGE
        if not _permits(access.pattern(right), name):
            what = f"{role.value.partition(',')[0]} {name!r} in vhost {access.vhost!r}"
            raise AccessRefused(f"{right.value} access to {what} refused for user {access.user!r}")


def authorize_topic(access: Access, right: Right, exchange: str, routing_key: str, client_id: str = "") -> None:
    """For topic exchanges, and besides `authorize`: WRITE when something is published, READ when it is bound."""
    told = access.topics.get(exchange)
    if told is None:
        return
    values = {"username": access.user, "vhost": access.vhost, "client_id": client_id}
    pattern = expanded(told.write if right is Right.WRITE else told.read, values)
    if not _permits(pattern, routing_key):
        what = f"topic {routing_key!r} in exchange {exchange!r} in vhost {access.vhost!r}"
        raise AccessRefused(f"{right.value} access to {what} refused for user {access.user!r}")


def expanded(pattern: str, values: Mapping[str, str]) -> str:
    """Variables by their values, as text. One that has no value matches nothing but its own spelling."""
    return _VARIABLE.sub(lambda found: re.escape(values.get(found[1]) or found[0]), pattern)


def check_patterns(*patterns: str) -> None:
    """Before they are put into the catalog: refused if one cannot be used."""
    for pattern in patterns:
        compiled(_VARIABLE.sub("x", pattern))


def may_come_from(user: str, peer: str, loopback_users: Collection[str] = LOOPBACK_USERS) -> bool:
    """Whether a user may log in from this address; no address is a socket of this machine."""
    return user not in loopback_users or not peer or _is_loopback(peer)


def _permits(pattern: str, name: str) -> bool:
    try:
        return matches(pattern, name)
    except Refused:
        return False


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
