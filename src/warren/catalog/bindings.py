"""Bindings: from an exchange to a queue or to another exchange, with a routing key and arguments.

SQL checks that both ends exist and are in one vhost: nothing is looked up first. Binding twice is the same as binding
once, and unbinding what is not bound succeeds, as in RabbitMQ.

`remove_unused` deletes auto-delete exchanges that have lost their last binding. Deleting one also deletes the bindings
to it, which may have been the last ones of other exchanges: these are deleted in the same change, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Refused
from warren.base.ids import BindingId, ExchangeId, QueueId, VhostId
from warren.catalog import exchanges
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow
from warren.catalog.rows import Arguments, RowKind, RowWriter, checked_name, from_json, row_of, to_json
from warren.catalog.schema import bindings
from warren.catalog.schema import exchanges as exchange_rows


@dataclass(frozen=True, slots=True)
class BindingRow:
    id: BindingId
    vhost_id: VhostId
    source_id: ExchangeId
    queue_id: QueueId | None  # one of these two
    exchange_id: ExchangeId | None
    routing_key: str
    arguments: Arguments = field(default_factory=dict)


def bind(
    writer: RowWriter,
    source: ExchangeRow,
    target: QueueRow | ExchangeRow,
    routing_key: str = "",
    arguments: Arguments | None = None,
) -> BindingRow:
    """The existing binding, or a new one."""
    image = _image(source, target, routing_key, arguments)
    binding = _find(writer.connection, image)
    if binding is not None:
        return binding
    if not source.name:
        raise Refused("the default exchange has a binding to every queue, and takes no other", "use another exchange")
    try:
        id_ = BindingId(writer.insert(RowKind.BINDING, image))
    except IntegrityError as error:
        raise Refused(
            f"{source.name!r} cannot be bound to {target.name!r}: one of them does not exist, or is in another vhost",
            "declare both in one vhost first",
        ) from error
    fields = {name: image[name] for name in ("vhost_id", "source_id", "queue_id", "exchange_id", "routing_key")}
    return BindingRow(id_, **fields, arguments=dict(arguments or {}))


class NewBinding(NamedTuple):
    source: ExchangeRow
    target: QueueRow | ExchangeRow
    routing_key: str
    arguments: Arguments


def create(writer: RowWriter, vhost_id: VhostId, new: Sequence[NewBinding]) -> list[BindingRow]:
    """Those of these that do not exist, by one statement; both ends are in the vhost. For thousands of them."""
    query = select(bindings.c.identity).where(bindings.c.vhost_id == vhost_id)
    known = set(writer.connection.execute(query).scalars())
    images: dict[str, tuple[dict[str, Any], NewBinding]] = {}
    for each in new:
        image = _image(*each)
        identity = row_of(RowKind.BINDING, 0, image)["identity"]
        if identity not in known:
            images.setdefault(identity, (image, each))
    ids = writer.insert_many(RowKind.BINDING, [image for image, _ in images.values()])
    return [
        BindingRow(
            BindingId(id_),
            vhost_id,
            each.source.id,
            image["queue_id"],
            image["exchange_id"],
            each.routing_key,
            dict(each.arguments),
        )
        for id_, (image, each) in zip(ids, images.values(), strict=True)
    ]


def unbind(
    writer: RowWriter,
    source: ExchangeRow,
    target: QueueRow | ExchangeRow,
    routing_key: str = "",
    arguments: Arguments | None = None,
) -> bool:
    """Whether there was such a binding."""
    binding = _find(writer.connection, _image(source, target, routing_key, arguments))
    if binding is not None:
        writer.remove(RowKind.BINDING, [binding.id])
    return binding is not None


def find(
    connection: Connection,
    source: ExchangeRow,
    target: QueueRow | ExchangeRow,
    routing_key: str = "",
    arguments: Arguments | None = None,
) -> BindingRow | None:
    return _find(connection, _image(source, target, routing_key, arguments))


def every(
    connection: Connection,
    vhost_id: VhostId | None = None,
    *,
    source: ExchangeId | None = None,
    queue: QueueId | None = None,
    exchange: ExchangeId | None = None,
) -> list[BindingRow]:
    """All of them, or those of one vhost, from one exchange, to one queue or to one exchange, oldest first."""
    query = select(bindings).order_by(bindings.c.id)
    wanted = {"vhost_id": vhost_id, "source_id": source, "queue_id": queue, "exchange_id": exchange}
    for column, value in wanted.items():
        if value is not None:
            query = query.where(bindings.c[column] == value)
    return [_binding(row) for row in connection.execute(query).mappings()]


def _image(
    source: ExchangeRow, target: QueueRow | ExchangeRow, routing_key: str, arguments: Arguments | None
) -> dict[str, Any]:
    is_queue = isinstance(target, QueueRow)
    return {
        "vhost_id": source.vhost_id,
        "source_id": source.id,
        "queue_id": target.id if is_queue else None,
        "exchange_id": None if is_queue else target.id,
        "routing_key": checked_name("the routing key", routing_key, may_be_empty=True),
        "arguments": to_json(arguments),
    }


def _find(connection: Connection, image: Mapping[str, Any]) -> BindingRow | None:
    identity = row_of(RowKind.BINDING, 0, image)["identity"]
    row = connection.execute(select(bindings).where(bindings.c.identity == identity)).mappings().one_or_none()
    return None if row is None else _binding(row)


def _binding(row: Mapping[Any, Any]) -> BindingRow:
    return BindingRow(
        BindingId(row["id"]),
        VhostId(row["vhost_id"]),
        ExchangeId(row["source_id"]),
        row["queue_id"],
        row["exchange_id"],
        row["routing_key"],
        from_json(json.loads(row["arguments"])),
    )


def sources_of(
    connection: Connection, *, queue: QueueId | None = None, exchange: ExchangeId | None = None
) -> list[int]:
    """The exchanges with a binding to this queue, or to this exchange."""
    is_bound = bindings.c.queue_id == queue if queue is not None else bindings.c.exchange_id == exchange
    return list(connection.execute(select(bindings.c.source_id).where(is_bound).distinct()).scalars())


def is_source(connection: Connection, id_: int) -> bool:
    """Whether anything is bound from this exchange."""
    query = select(bindings.c.id).where(bindings.c.source_id == id_).limit(1)
    return connection.execute(query).one_or_none() is not None


def remove_unused(writer: RowWriter, candidates: Iterable[int]) -> list[ExchangeId]:
    """Delete those of these exchanges, and of their sources, that are auto-delete and have no binding left."""
    removed: list[ExchangeId] = []
    left = list(candidates)
    while left:
        id_ = ExchangeId(left.pop())
        if not _is_auto_delete(writer.connection, id_) or is_source(writer.connection, id_):
            continue
        left += sources_of(writer.connection, exchange=id_)
        exchanges.delete(writer, id_)
        removed.append(id_)
    return removed


def _is_auto_delete(connection: Connection, id_: ExchangeId) -> bool:
    """False for an exchange that does not exist any more."""
    query = select(exchange_rows.c.auto_delete).where(exchange_rows.c.id == id_)
    return bool(connection.execute(query).scalar())
