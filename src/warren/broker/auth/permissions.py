"""Permissions: which rights each operation needs, as one table, and the checks of a user's patterns against it.

    AUTHORIZE[operation] ──▶ (right, role) …        names by role ──▶ the pattern of each right against its name
    QUEUE_BIND               write QUEUE, read EXCHANGE

AMQP, HTTP and commands call `authorize` with the names that an operation touches. A need whose role was not named does
not apply (a queue without a dead-letter exchange); all others must be met.

The default exchange is called `amq.default` here, as in RabbitMQ. Routing keys at a topic exchange are checked in
addition, by `authorize_topic`; an exchange without topic permissions allows every key. In these patterns {username},
{vhost} and {client_id} stand for text, never for a part of a pattern: RabbitMQ inserts them unescaped, so that a client
called `.*` could read everything.

Invariants
* An operation that is not in the table cannot be authorized. A pattern that cannot be used permits nothing.
* A user without permissions in a vhost cannot open it.

Tags are for the management API, and are checked there, except `impersonator`: that user may publish messages with the
user id of another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from warren.base.errors import Refused
from warren.base.ids import VhostId
from warren.broker.auth.patterns import compiled, matches
from warren.catalog import permissions, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.users import UserRow
from warren.catalog.vhosts import VhostRow

DEFAULT_EXCHANGE = "amq.default"
LOOPBACK_USERS = frozenset({"guest"})
IMPERSONATOR = "impersonator"
_VARIABLE = re.compile(r"\{(username|vhost|client_id)\}")


class Right(Enum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class NameRole(Enum):
    """The role of a name in an operation; the value is used in the error text."""

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
    only_with: NameRole | None = None  # needed only if the operation names this one


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
    """The user has no right to do this: 403 in AMQP, 401 in HTTP."""


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Access:
    """A user in one vhost, with its permissions there."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str
    topics: Mapping[str, TopicPatterns]  # by exchange name
    may_impersonate: bool = False  # publish with the user id of another user

    def pattern(self, right: Right) -> str:
        return {Right.CONFIGURE: self.configure, Right.WRITE: self.write, Right.READ: self.read}[right]


def access_to(catalog: Catalog, user: UserRow, vhost: VhostRow) -> Access:
    """The user's access to a vhost; refused if it has no permissions there."""
    with catalog.reading() as connection:
        row = permissions.get(connection, user.id, vhost.id)
        topic_rows = permissions.every_topic(connection, user.id, vhost.id)
    if row is None:
        raise AccessRefused(f"access to vhost {vhost.name!r} refused for user {user.name!r}")
    topics = {each.exchange: TopicPatterns(each.write, each.read) for each in topic_rows}
    return Access(user.name, vhost.name, row.configure, row.write, row.read, topics, IMPERSONATOR in user.tags)


def accesses_of(catalog: Catalog, user: UserRow) -> dict[VhostId, Access]:
    """The user's access to each vhost in which it has permissions."""
    with catalog.reading() as connection:
        names = {row.id: row.name for row in vhosts.every(connection)}
        rows = permissions.every(connection, user.id)
        topic_rows = permissions.every_topic(connection, user.id)
    topics: dict[VhostId, dict[str, TopicPatterns]] = {row.vhost_id: {} for row in rows}
    for each in topic_rows:
        topics.setdefault(each.vhost_id, {})[each.exchange] = TopicPatterns(each.write, each.read)
    return {
        row.vhost_id: Access(user.name, names[row.vhost_id], row.configure, row.write, row.read, topics[row.vhost_id])
        for row in rows
    }


def authorize(access: Access, operation: Operation, names: Mapping[NameRole, str]) -> None:
    """Refused if any need of the operation is not met. `names` must have the role of every need that applies."""
    for right, role, only_with in AUTHORIZE[operation]:
        if only_with is not None and only_with not in names:
            continue
        name = names[role] if role is NameRole.QUEUE else names[role] or DEFAULT_EXCHANGE
        if not _permits(access.pattern(right), name):
            what = f"{role.value.partition(',')[0]} {name!r} in vhost {access.vhost!r}"
            raise AccessRefused(f"{right.value} access to {what} refused for user {access.user!r}")


def authorize_topic(access: Access, right: Right, exchange: str, routing_key: str, client_id: str = "") -> None:
    """For topic exchanges, in addition to `authorize`: WRITE to publish, READ to bind."""
    patterns = access.topics.get(exchange)
    if patterns is None:
        return
    values = {"username": access.user, "vhost": access.vhost, "client_id": client_id}
    pattern = expanded(patterns.write if right is Right.WRITE else patterns.read, values)
    if not _permits(pattern, routing_key):
        what = f"topic {routing_key!r} in exchange {exchange!r} in vhost {access.vhost!r}"
        raise AccessRefused(f"{right.value} access to {what} refused for user {access.user!r}")


def expanded(pattern: str, values: Mapping[str, str]) -> str:
    """Replace variables by their escaped values. One without a value matches only its own spelling."""
    return _VARIABLE.sub(lambda found: re.escape(values.get(found[1]) or found[0]), pattern)


def check_patterns(*patterns: str) -> None:
    """Called before patterns are put into the catalog: refused if one cannot be used."""
    for pattern in patterns:
        compiled(_VARIABLE.sub("x", pattern))


def may_come_from(user: str, peer: str, loopback_users: Collection[str] = LOOPBACK_USERS) -> bool:
    """Whether a user may log in from this address; an empty one is a socket of this machine."""
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
