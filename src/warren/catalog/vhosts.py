"""Vhosts: name spaces for everything else. A new one has the exchanges that every AMQP client expects.

Deleting a vhost deletes everything in it, all permissions for it and all its parameters, in one change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, select

from warren.base.errors import Refused
from warren.base.ids import QueueId, VhostId
from warren.catalog.rows import TABLES, RowKind, RowWriter, checked_name
from warren.catalog.schema import vhosts

# Name, type, internal. The first is the default exchange, to which every queue is bound by its name.
PREDECLARED: tuple[tuple[str, str, bool], ...] = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)


@dataclass(frozen=True, slots=True)
class VhostRow:
    id: VhostId
    name: str
    description: str
    tags: tuple[str, ...]


def declare(writer: RowWriter, name: str, description: str = "", tags: Sequence[str] = ()) -> VhostRow:
    """The vhost of this name, created if there is none. An existing one keeps its description and tags."""
    found = get(writer.connection, checked_name("the vhost", name))
    if found is not None:
        return found
    id_ = VhostId(writer.insert(RowKind.VHOST, {"name": name, "description": description, "tags": list(tags)}))
    for exchange, type_, is_internal in PREDECLARED:
        image = {"vhost_id": id_, "name": exchange, "type": type_, "durable": True, "auto_delete": False}
        writer.insert(RowKind.EXCHANGE, image | {"internal": is_internal, "arguments": {}})
    return VhostRow(id_, name, description, tuple(tags))


def describe(writer: RowWriter, id_: VhostId, description: str, tags: Sequence[str] = ()) -> VhostRow:
    """Replace description and tags. A row that has them already is not written."""
    row = writer.connection.execute(select(vhosts).where(vhosts.c.id == id_)).mappings().one_or_none()
    if row is None:
        raise Refused(f"there is no vhost {id_}")
    new = VhostRow(id_, row["name"], description, tuple(tags))
    if new != _vhost(row):
        writer.replace(RowKind.VHOST, row, description=description, tags=list(tags))
    return new


def delete(writer: RowWriter, id_: VhostId) -> list[QueueId]:
    """Delete everything in it, and then the vhost. Returns the queues that were deleted."""
    if not _exists(writer.connection, id_):
        raise Refused(f"there is no vhost {id_}")
    of_queues = select(TABLES[RowKind.QUEUE].c.id).where(TABLES[RowKind.QUEUE].c.vhost_id == id_)
    deleted = [QueueId(each) for each in writer.connection.execute(of_queues).scalars()]
    for kind in reversed(TABLES):
        table = TABLES[kind]
        if "vhost_id" not in table.c:
            continue
        writer.remove(kind, writer.connection.execute(select(table.c.id).where(table.c.vhost_id == id_)).scalars())
    writer.remove(RowKind.VHOST, [id_])
    return deleted


def get(connection: Connection, name: str) -> VhostRow | None:
    row = connection.execute(select(vhosts).where(vhosts.c.name == name)).mappings().one_or_none()
    return None if row is None else _vhost(row)


def every(connection: Connection) -> list[VhostRow]:
    found = connection.execute(select(vhosts)).mappings()
    return [_vhost(row) for row in sorted(found, key=itemgetter("name"))]  # SQL collations differ


def _exists(connection: Connection, id_: VhostId) -> bool:
    return connection.execute(select(vhosts.c.id).where(vhosts.c.id == id_)).one_or_none() is not None


def _vhost(row: Mapping[Any, Any]) -> VhostRow:
    return VhostRow(VhostId(row["id"]), row["name"], row["description"], tuple(json.loads(row["tags"])))
