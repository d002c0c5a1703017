"""Permissions: what a user may configure, write and read in one vhost, as three patterns of names.

    (user, vhost) ──▶ configure "^mine-"   write ".*"   read ""

A user without a row for a vhost may not enter it. One with three empty patterns may, and do nothing there. The patterns
are texts here: `broker/patterns` judges them, before they are put and again when they are used.

Always true: SQL knows the user and the vhost, and there is at most one row for both together. It goes with either.

Topic permissions: by which routing keys a user may write to one topic exchange, and read from it.

    (user, vhost, exchange) ──▶ write "^{username}\\."   read ".*"

They come on top of `permissions`: a user without a row for an exchange may use any key there. The exchange is a name,
which need not be there yet, and stays when the exchange goes, as in RabbitMQ. The patterns are texts here.

Always true: SQL knows the user and the vhost; the row goes with either.
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
    """Permit this much, and no more than this."""
    patterns = {"configure": configure, "write": write, "read": read}
    row = _row(writer.connection, user_id, vhost_id)
    if row is not None:
        if any(row[name] != pattern for name, pattern in patterns.items()):
            writer.replace(RowKind.PERMISSION, row, **patterns)
        return PermissionRow(PermissionId(row["id"]), user_id, vhost_id, **patterns)
    try:
        id_ = writer.insert(RowKind.PERMISSION, {"user_id": user_id, "vhost_id": vhost_id} | patterns)
    except IntegrityError as error:
        what = f"nothing can be permitted to user {user_id} in vhost {vhost_id}: one of them is not there"
        raise Refused(what, "make both first") from error
    return PermissionRow(PermissionId(id_), user_id, vhost_id, **patterns)


def clear(writer: RowWriter, user_id: UserId, vhost_id: VhostId) -> bool:
    """Whether anything had been permitted."""
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
    """All of them, or those of one user, or in one vhost, oldest first."""
    asked = select(permissions).order_by(permissions.c.id)
    if user_id is not None:
        asked = asked.where(permissions.c.user_id == user_id)
    if vhost_id is not None:
        asked = asked.where(permissions.c.vhost_id == vhost_id)
    return [_permission(row) for row in connection.execute(asked).mappings()]


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
    """Permit keys like these, and no others."""
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
        what = f"no topics can be permitted to user {user_id} in vhost {vhost_id}: one of them is not there"
        raise Refused(what, "make both first") from error
    return TopicPermissionRow(TopicPermissionId(id_), user_id, vhost_id, exchange, **patterns)


def clear_topic(writer: RowWriter, user_id: UserId, vhost_id: VhostId, exchange: str | None = None) -> int:
    """For one exchange, or for all of the vhost; how many there were."""
    found = [
        each.id
        for each in every_topic(writer.connection, user_id, vhost_id)
        if exchange is None or each.exchange == exchange
    ]
    writer.remove(RowKind.TOPIC_PERMISSION, found)
    return len(found)


def get_topic(connection: Connection, user_id: UserId, vhost_id: VhostId, exchange: str) -> TopicPermissionRow | None:
    row = _topic_row(connection, user_id, vhost_id, exchange)
    return None if row is None else _topic_permission(row)


def every_topic(
    connection: Connection, user_id: UserId | None = None, vhost_id: VhostId | None = None
) -> list[TopicPermissionRow]:
    """All of them, or those of one user, or in one vhost, oldest first."""
    asked = select(topic_permissions).order_by(topic_permissions.c.id)
    if user_id is not None:
        asked = asked.where(topic_permissions.c.user_id == user_id)
    if vhost_id is not None:
        asked = asked.where(topic_permissions.c.vhost_id == vhost_id)
    return [_topic_permission(row) for row in connection.execute(asked).mappings()]


def _topic_row(connection: Connection, user_id: UserId, vhost_id: VhostId, exchange: str) -> Mapping[Any, Any] | None:
    columns = topic_permissions.c
    at = (columns.user_id == user_id) & (columns.vhost_id == vhost_id) & (columns.exchange == exchange)
    return connection.execute(select(topic_permissions).where(at)).mappings().one_or_none()


def _topic_permission(row: Mapping[Any, Any]) -> TopicPermissionRow:
    ids = TopicPermissionId(row["id"]), UserId(row["user_id"]), VhostId(row["vhost_id"])
    return TopicPermissionRow(*ids, row["exchange"], row["write"], row["read"])
