"""Users: who may come in, by which hash of a password, and what they are for.

    users ◀── permissions ──▶ vhosts        what is permitted where: `permissions`, `topic_permissions`

A hash and the name of its algorithm are texts here; `broker/passwords` makes and judges them. An empty hash lets nobody
in by password, as in RabbitMQ. Limits are kept for whoever will count: names and integers, e.g. `max-connections`.

Always true: a user that is deleted takes along what was permitted to it, in the same change; one that comes later by
the same name has another id and none of it. A hash is in no `repr`, so that it gets into no log of events.
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
    """The user of this name as said here: made if there is none, and otherwise written over. Limits that are not said
    stay."""
    fields: dict[str, Any] = {"password_hash": password_hash, "hashing_algorithm": hashing_algorithm}
    fields["tags"] = _checked_tags(tags)
    if limits is not None:
        fields["limits"] = _checked_limits(limits)
    row = _row(writer.connection, checked_name("the user", name))
    if row is not None:
        return _replaced(writer, row, fields)
    image = {"name": name, "limits": {}} | fields
    id_ = UserId(writer.insert(RowKind.USER, image))
    return UserRow(id_, name, password_hash, hashing_algorithm, tuple(fields["tags"]), image["limits"])


def change_password(writer: RowWriter, id_: UserId, password_hash: str, hashing_algorithm: str) -> UserRow:
    fields = {"password_hash": password_hash, "hashing_algorithm": hashing_algorithm}
    return _replaced(writer, _there(writer, id_), fields)


def set_tags(writer: RowWriter, id_: UserId, tags: Sequence[str]) -> UserRow:
    return _replaced(writer, _there(writer, id_), {"tags": _checked_tags(tags)})


def set_limits(writer: RowWriter, id_: UserId, limits: Mapping[str, int]) -> UserRow:
    return _replaced(writer, _there(writer, id_), {"limits": _checked_limits(limits)})


def delete(writer: RowWriter, id_: UserId) -> None:
    """What was permitted to it goes, and then itself."""
    _there(writer, id_)
    for kind in (RowKind.TOPIC_PERMISSION, RowKind.PERMISSION):
        table = TABLES[kind]
        writer.remove(kind, writer.connection.execute(select(table.c.id).where(table.c.user_id == id_)).scalars())
    writer.remove(RowKind.USER, [id_])


def get(connection: Connection, name: str) -> UserRow | None:
    row = _row(connection, name)
    return None if row is None else _user(row)


def every(connection: Connection) -> list[UserRow]:
    """By name."""
    found = connection.execute(select(users)).mappings()
    return [_user(row) for row in sorted(found, key=itemgetter("name"))]  # SQL has an order of its own


def _replaced(writer: RowWriter, row: Mapping[Any, Any], fields: Mapping[str, Any]) -> UserRow:
    """The row with other fields; one that says the same already is not written."""
    image = image_of(RowKind.USER, row)
    if any(image[name] != value for name, value in fields.items()):
        writer.replace(RowKind.USER, row, **fields)
    return _user(writer.connection.execute(select(users).where(users.c.id == row["id"])).mappings().one())


def _there(writer: RowWriter, id_: UserId) -> Mapping[Any, Any]:
    row = writer.connection.execute(select(users).where(users.c.id == id_)).mappings().one_or_none()
    if row is None:
        raise Refused(f"there is no user {id_}")
    return row


def _checked_tags(tags: Sequence[str]) -> list[str]:
    """Each once, in the order they were said."""
    found = list(dict.fromkeys(checked_name("the tag", tag) for tag in tags))
    if len(found) > TAG_COUNT_MAX:
        raise Refused(f"a user cannot have {len(found)} tags", f"it has at most {TAG_COUNT_MAX}")
    return found


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
