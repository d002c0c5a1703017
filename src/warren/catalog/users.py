"""Users: names, password hashes, tags and limits.

    users ◀── permissions ──▶ vhosts        what a user may do in a vhost: `permissions`

A hash and the name of its algorithm are texts here; `broker/auth/passwords` makes and verifies them. With an empty hash
no password is accepted, as in RabbitMQ. Limits are stored only: names and integers, e.g. `max-connections`.

Invariants
* Deleting a user deletes its permissions in the same change. A later user of the same name has another id and none of
  them.
* A hash is in no `repr`, so that no event log contains it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, select

from warren.base.errors import Refused
from warren.base.ids import UserId
from warren.catalog.rows import TABLES, RowKind, RowWriter, checked_name, image_of
from warren.catalog.schema import users

TAG_COUNT_MAX = 64


@dataclass(frozen=True, slots=True)
class UserRow:
    id: UserId
    name: str
    password_hash: str = field(repr=False)
    hashing_algorithm: str
    tags: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)


def put(
    writer: RowWriter,
    name: str,
    password_hash: str,
    hashing_algorithm: str,
    tags: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
) -> UserRow:
    """Create or replace the user of this name. `limits` None keeps the present ones."""
    fields: dict[str, Any] = {"password_hash": password_hash, "hashing_algorithm": hashing_algorithm}
    fields["tags"] = _checked_tags(tags)
    if limits is not None:
        fields["limits"] = _checked_limits(limits)
    row = _row(writer.connection, checked_name("the user", name))
    if row is not None:
        return _replace(writer, row, fields)
    image = {"name": name, "limits": {}} | fields
    id_ = UserId(writer.insert(RowKind.USER, image))
    return UserRow(id_, name, password_hash, hashing_algorithm, tuple(fields["tags"]), image["limits"])


def change_password(writer: RowWriter, id_: UserId, password_hash: str, hashing_algorithm: str) -> UserRow:
    fields = {"password_hash": password_hash, "hashing_algorithm": hashing_algorithm}
    return _replace(writer, _existing(writer, id_), fields)


def set_tags(writer: RowWriter, id_: UserId, tags: Sequence[str]) -> UserRow:
    return _replace(writer, _existing(writer, id_), {"tags": _checked_tags(tags)})


def set_limits(writer: RowWriter, id_: UserId, limits: Mapping[str, int]) -> UserRow:
    return _replace(writer, _existing(writer, id_), {"limits": _checked_limits(limits)})


def delete(writer: RowWriter, id_: UserId) -> None:
    """Delete the permissions of the user, and then the user."""
    _existing(writer, id_)
    for kind in (RowKind.TOPIC_PERMISSION, RowKind.PERMISSION):
        table = TABLES[kind]
        writer.remove(kind, writer.connection.execute(select(table.c.id).where(table.c.user_id == id_)).scalars())
    writer.remove(RowKind.USER, [id_])


def get(connection: Connection, name: str) -> UserRow | None:
    row = _row(connection, name)
    return None if row is None else _user(row)


def every(connection: Connection) -> list[UserRow]:
    """By name."""
    rows = connection.execute(select(users)).mappings()
    return [_user(row) for row in sorted(rows, key=itemgetter("name"))]  # SQL collations differ


def _replace(writer: RowWriter, row: Mapping[Any, Any], fields: Mapping[str, Any]) -> UserRow:
    """The row with other fields. A row that has them already is not written."""
    image = image_of(RowKind.USER, row)
    if any(image[name] != value for name, value in fields.items()):
        writer.replace(RowKind.USER, row, **fields)
    return _user(writer.connection.execute(select(users).where(users.c.id == row["id"])).mappings().one())


def _existing(writer: RowWriter, id_: UserId) -> Mapping[Any, Any]:
    row = writer.connection.execute(select(users).where(users.c.id == id_)).mappings().one_or_none()
    if row is None:
        raise Refused(f"there is no user {id_}")
    return row


def _checked_tags(tags: Sequence[str]) -> list[str]:
    """Each tag once, in the given order."""
    unique = list(dict.fromkeys(checked_name("the tag", tag) for tag in tags))
    if len(unique) > TAG_COUNT_MAX:
        raise Refused(f"a user cannot have {len(unique)} tags", f"it has at most {TAG_COUNT_MAX}")
    return unique


def _checked_limits(limits: Mapping[str, Any]) -> dict[str, int]:
    for name, limit in limits.items():
        checked_name("the limit", name)
        if not isinstance(limit, int) or isinstance(limit, bool):
            raise Refused(f"the limit {name} is {str(limit)[:40]!r}", "it is an integer; below zero: no limit")
    return dict(limits)


def _row(connection: Connection, name: str) -> Mapping[Any, Any] | None:
    return connection.execute(select(users).where(users.c.name == name)).mappings().one_or_none()


def _user(row: Mapping[Any, Any]) -> UserRow:
    return UserRow(
        UserId(row["id"]),
        row["name"],
        row["password_hash"],
        row["hashing_algorithm"],
        tuple(json.loads(row["tags"])),
        json.loads(row["limits"]),
    )
