"""Queues: names, properties and arguments. Messages are elsewhere.

Deleting a queue deletes its bindings in the same change. An id is never used twice, so a missing one was deleted: what
the log still has about such a queue is skipped (checklist HS-06).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Refused
from warren.base.ids import BindingId, QueueId, VhostId
from warren.catalog.rows import Arguments, RowKind, RowWriter, check_same, checked_name, from_json, image_of, to_json
from warren.catalog.schema import bindings, queues


@dataclass(frozen=True, slots=True)
class QueueRow:
    id: QueueId
    vhost_id: VhostId
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Arguments = field(default_factory=dict)


def declare(
    writer: RowWriter,
    vhost_id: VhostId,
    name: str,
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: Arguments | None = None,
) -> QueueRow:
    """The queue of this name, created if there is none; refused if it exists with other properties."""
    image = {"vhost_id": vhost_id, "name": checked_name("the queue", name), "durable": durable}
    image |= {"exclusive": exclusive, "auto_delete": auto_delete, "arguments": to_json(arguments)}
    row = _row(writer.connection, vhost_id, name)
    if row is not None:
        check_same(f"queue {name!r}", image_of(RowKind.QUEUE, row), image)
        return _queue(row)
    try:
        id_ = QueueId(writer.insert(RowKind.QUEUE, image))
    except IntegrityError as error:
        raise Refused(f"queue {name!r} cannot be in vhost {vhost_id}: there is none", "declare it first") from error
    return QueueRow(id_, vhost_id, name, durable, exclusive, auto_delete, dict(arguments or {}))


class NewQueue(NamedTuple):
    name: str
    durable: bool
    auto_delete: bool
    arguments: Arguments


def create(writer: RowWriter, vhost_id: VhostId, new: Sequence[NewQueue]) -> list[QueueRow]:
    """Queues that do not exist, by one statement. For thousands of them."""
    common = {"vhost_id": vhost_id, "exclusive": False}
    images = [{**common, **each._asdict(), "arguments": to_json(each.arguments)} for each in new]
    ids = writer.insert_many(RowKind.QUEUE, images)
    return [
        QueueRow(QueueId(id_), vhost_id, each.name, each.durable, False, each.auto_delete, dict(each.arguments))
        for id_, each in zip(ids, new, strict=True)
    ]


def delete(writer: RowWriter, id_: QueueId) -> list[BindingId]:
    """Returns the bindings that were deleted with it."""
    if by_id(writer.connection, id_) is None:
        raise Refused(f"there is no queue {id_}")
    query = select(bindings.c.id).where(bindings.c.queue_id == id_)
    removed = [BindingId(each) for each in writer.connection.execute(query).scalars()]
    writer.removed_by_cascade(RowKind.BINDING, removed)
    writer.remove(RowKind.QUEUE, [id_])
    return removed


def get(connection: Connection, vhost_id: VhostId, name: str) -> QueueRow | None:
    row = _row(connection, vhost_id, name)
    return None if row is None else _queue(row)


def by_id(connection: Connection, id_: QueueId) -> QueueRow | None:
    row = connection.execute(select(queues).where(queues.c.id == id_)).mappings().one_or_none()
    return None if row is None else _queue(row)


def some(connection: Connection, ids_: Collection[QueueId]) -> list[QueueRow]:
    """The queues of these ids that exist. SQL limits the number of values in one statement."""
    rows = connection.execute(select(queues).where(queues.c.id.in_(ids_)).order_by(queues.c.id)).mappings()
    return [_queue(row) for row in rows]


def every(connection: Connection, vhost_id: VhostId | None = None) -> list[QueueRow]:
    """All of them, or those of one vhost, by name."""
    query = select(queues)
    if vhost_id is not None:
        query = query.where(queues.c.vhost_id == vhost_id)
    rows = connection.execute(query).mappings()
    return [_queue(row) for row in sorted(rows, key=itemgetter("vhost_id", "name"))]  # SQL collations differ


def count(connection: Connection, vhost_id: VhostId) -> int:
    query = select(func.count()).select_from(queues).where(queues.c.vhost_id == vhost_id)
    return int(connection.execute(query).scalar_one())


def ids(connection: Connection) -> set[QueueId]:
    return {QueueId(each) for each in connection.execute(select(queues.c.id)).scalars()}


def _row(connection: Connection, vhost_id: VhostId, name: str) -> Mapping[Any, Any] | None:
    at = (queues.c.vhost_id == vhost_id) & (queues.c.name == name)
    return connection.execute(select(queues).where(at)).mappings().one_or_none()


def _queue(row: Mapping[Any, Any]) -> QueueRow:
    return QueueRow(
        QueueId(row["id"]),
        VhostId(row["vhost_id"]),
        row["name"],
        row["durable"],
        row["exclusive"],
        row["auto_delete"],
        from_json(json.loads(row["arguments"])),
    )
