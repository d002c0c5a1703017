"""Permissions: what a user may configure, write and read in one vhost, as patterns of names; and topic permissions.

    (user, vhost) ──▶ configure "^mine-"   write ".*"   read ""
    (user, vhost, exchange) ──▶ write "^{username}\\."   read ".*"       routing keys at one topic exchange

A user without a row for a vhost may not open it. A user with three empty patterns may open it, and do nothing there.
Topic permissions restrict further: a user without a row for an exchange may use any key there. The exchange is a name,
which need not exist yet, and the row stays when the exchange is deleted, as in RabbitMQ. Patterns are texts here:
`broker/auth/patterns` checks them before they are put, and again when they are used.

Invariants: the user and the vhost exist in SQL; there is at most one row for each key; the row is deleted with either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Refused
from warren.base.ids import PermissionId, TopicPermissionId, UserId, VhostId
from warren.catalog.rows import RowKind, RowWriter, checked_name
from warren.catalog.schema import permissions, topic_permissions


@dataclass(frozen=True, slots=True)
class PermissionRow:
    id: PermissionId
    user_id: UserId
    vhost_id: VhostId
    configure: str
    write: str
    read: str


def put(writer: RowWriter, user_id: UserId, vhost_id: VhostId, configure: str, write: str, read: str) -> PermissionRow:
    """Set the permissions, replacing earlier ones."""
    patterns = {"configure": configure, "write": write, "read": read}
    row = _row(writer.connection, user_id, vhost_id)
    if row is not None:
        if any(row[name] != pattern for name, pattern in patterns.items()):
            writer.replace(RowKind.PERMISSION, row, **patterns)
        return PermissionRow(PermissionId(row["id"]), user_id, vhost_id, **patterns)
    try:
        id_ = writer.insert(RowKind.PERMISSION, {"user_id": user_id, "vhost_id": vhost_id} | patterns)
    except IntegrityError as error:
        what = f"user {user_id} cannot get permissions in vhost {vhost_id}: one of them does not exist"
        raise Refused(what, "create both first") from error
    return PermissionRow(PermissionId(id_), user_id, vhost_id, **patterns)


def clear(writer: RowWriter, user_id: UserId, vhost_id: VhostId) -> bool:
    """Whether there was a row."""
    row = _row(writer.connection, user_id, vhost_id)
    if row is not None:
        writer.remove(RowKind.PERMISSION, [row["id"]])
    return row is not None


def get(connection: Connection, user_id: UserId, vhost_id: VhostId) -> PermissionRow | None:
    row = _row(connection, user_id, vhost_id)
    return None if row is None else _permission(row)


def every(
    connection: Connection, user_id: UserId | None = None, vhost_id: VhostId | None = None
) -> list[PermissionRow]:
    """All rows, or those of one user or one vhost, oldest first."""
    query = select(permissions).order_by(permissions.c.id)
    if user_id is not None:
        query = query.where(permissions.c.user_id == user_id)
    if vhost_id is not None:
        query = query.where(permissions.c.vhost_id == vhost_id)
    return [_permission(row) for row in connection.execute(query).mappings()]


def _row(connection: Connection, user_id: UserId, vhost_id: VhostId) -> Mapping[Any, Any] | None:
    at = (permissions.c.user_id == user_id) & (permissions.c.vhost_id == vhost_id)
    return connection.execute(select(permissions).where(at)).mappings().one_or_none()


def _permission(row: Mapping[Any, Any]) -> PermissionRow:
    patterns = row["configure"], row["write"], row["read"]
    return PermissionRow(PermissionId(row["id"]), UserId(row["user_id"]), VhostId(row["vhost_id"]), *patterns)


@dataclass(frozen=True, slots=True)
class TopicPermissionRow:
    id: TopicPermissionId
    user_id: UserId
    vhost_id: VhostId
    exchange: str
    write: str
    read: str


def put_topic(
    writer: RowWriter, user_id: UserId, vhost_id: VhostId, exchange: str, write: str, read: str
) -> TopicPermissionRow:
    """Set the permitted routing keys, replacing earlier ones."""
    checked_name("the exchange", exchange, may_be_empty=True)
    patterns = {"write": write, "read": read}
    row = _topic_row(writer.connection, user_id, vhost_id, exchange)
    if row is not None:
        if any(row[name] != pattern for name, pattern in patterns.items()):
            writer.replace(RowKind.TOPIC_PERMISSION, row, **patterns)
        return TopicPermissionRow(TopicPermissionId(row["id"]), user_id, vhost_id, exchange, **patterns)
    image = {"user_id": user_id, "vhost_id": vhost_id, "exchange": exchange} | patterns
    try:
        id_ = writer.insert(RowKind.TOPIC_PERMISSION, image)
    except IntegrityError as error:
        what = f"user {user_id} cannot get topic permissions in vhost {vhost_id}: one of them does not exist"
        raise Refused(what, "create both first") from error
    return TopicPermissionRow(TopicPermissionId(id_), user_id, vhost_id, exchange, **patterns)


def clear_topic(writer: RowWriter, user_id: UserId, vhost_id: VhostId, exchange: str | None = None) -> int:
    """For one exchange, or for all of the vhost; the number of rows that were removed."""
    ids = [
        each.id
        for each in every_topic(writer.connection, user_id, vhost_id)
        if exchange is None or each.exchange == exchange
    ]
    writer.remove(RowKind.TOPIC_PERMISSION, ids)
    return len(ids)


def get_topic(connection: Connection, user_id: UserId, vhost_id: VhostId, exchange: str) -> TopicPermissionRow | None:
    row = _topic_row(connection, user_id, vhost_id, exchange)
    return None if row is None else _topic_permission(row)


def every_topic(
    connection: Connection, user_id: UserId | None = None, vhost_id: VhostId | None = None
) -> list[TopicPermissionRow]:
    """All rows, or those of one user or one vhost, oldest first."""
    query = select(topic_permissions).order_by(topic_permissions.c.id)
    if user_id is not None:
        query = query.where(topic_permissions.c.user_id == user_id)
    if vhost_id is not None:
        query = query.where(topic_permissions.c.vhost_id == vhost_id)
    return [_topic_permission(row) for row in connection.execute(query).mappings()]


def _topic_row(connection: Connection, user_id: UserId, vhost_id: VhostId, exchange: str) -> Mapping[Any, Any] | None:
    columns = topic_permissions.c
    at = (columns.user_id == user_id) & (columns.vhost_id == vhost_id) & (columns.exchange == exchange)
    return connection.execute(select(topic_permissions).where(at)).mappings().one_or_none()


def _topic_permission(row: Mapping[Any, Any]) -> TopicPermissionRow:
    ids = TopicPermissionId(row["id"]), UserId(row["user_id"]), VhostId(row["vhost_id"])
    return TopicPermissionRow(*ids, row["exchange"], row["write"], row["read"])
