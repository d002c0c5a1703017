"""Permissions: what a user may configure, write and read in one vhost, as three patterns of names.

    (user, vhost) ──▶ configure "^mine-"   write ".*"   read ""

A user without a row for a vhost may not enter it. One with three empty patterns may, and do nothing there. The patterns
are texts here: `broker/patterns` judges them, before they are put and again when they are used.

Always true: SQL knows the user and the vhost, and there is at most one row for both together. It goes with either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Refused
from warren.base.ids import PermissionId, UserId, VhostId
from warren.catalog.change import Change
from warren.catalog.row_format import RowKind
from warren.catalog.schema import permissions


@dataclass(frozen=True, slots=True)
class PermissionRow:
    id: PermissionId
    user_id: UserId
    vhost_id: VhostId
    configure: str
    write: str
    read: str


def put(change: Change, user_id: UserId, vhost_id: VhostId, configure: str, write: str, read: str) -> PermissionRow:
    """Permit this much, and no more than this."""
    patterns = {"configure": configure, "write": write, "read": read}
    row = _row(change.connection, user_id, vhost_id)
    if row is not None:
        if any(row[name] != pattern for name, pattern in patterns.items()):
            change.replace(RowKind.PERMISSION, row, **patterns)
        return PermissionRow(PermissionId(row["id"]), user_id, vhost_id, **patterns)
    try:
        id_ = change.insert(RowKind.PERMISSION, {"user_id": user_id, "vhost_id": vhost_id} | patterns)
    except IntegrityError as error:
        what = f"nothing can be permitted to user {user_id} in vhost {vhost_id}: one of them is not there"
        raise Refused(what, "make both first") from error
    return PermissionRow(PermissionId(id_), user_id, vhost_id, **patterns)


def clear(change: Change, user_id: UserId, vhost_id: VhostId) -> bool:
    """Whether anything had been permitted."""
    row = _row(change.connection, user_id, vhost_id)
    if row is not None:
        change.remove(RowKind.PERMISSION, [row["id"]])
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
