"""Exchanges: names, types, flags and arguments. Deleting one deletes the bindings from it and to it, in one change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, or_, select
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Refused
from warren.base.ids import BindingId, ExchangeId, VhostId
from warren.catalog.rows import Arguments, RowKind, RowWriter, check_same, checked_name, from_json, image_of, to_json
from warren.catalog.schema import bindings, exchanges


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    id: ExchangeId
    vhost_id: VhostId
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Arguments = field(default_factory=dict)


def declare(
    writer: RowWriter,
    vhost_id: VhostId,
    name: str,
    type_: str = "direct",
    *,
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Arguments | None = None,
) -> ExchangeRow:
    """The exchange of this name, created if there is none; refused if it exists with other properties."""
    image = {"vhost_id": vhost_id, "name": checked_name("the exchange", name), "type": checked_name("the type", type_)}
    image |= {"durable": durable, "auto_delete": auto_delete, "internal": internal, "arguments": to_json(arguments)}
    row = _row(writer.connection, vhost_id, name)
    if row is not None:
        check_same(f"exchange {name!r}", image_of(RowKind.EXCHANGE, row), image)
        return _exchange(row)
    try:
        id_ = ExchangeId(writer.insert(RowKind.EXCHANGE, image))
    except IntegrityError as error:
        raise Refused(f"exchange {name!r} cannot be in vhost {vhost_id}: there is none", "declare it first") from error
    return ExchangeRow(id_, vhost_id, name, type_, durable, auto_delete, internal, dict(arguments or {}))


def delete(writer: RowWriter, id_: ExchangeId) -> list[BindingId]:
    """Returns the bindings that were deleted with it."""
    row = writer.connection.execute(select(exchanges.c.name).where(exchanges.c.id == id_)).one_or_none()
    if row is None:
        raise Refused(f"there is no exchange {id_}")
    if not row.name or row.name.startswith("amq."):
        raise Refused(f"exchange {row.name!r} belongs to its vhost", "it is deleted with the vhost")
    is_bound = or_(bindings.c.source_id == id_, bindings.c.exchange_id == id_)
    removed = [BindingId(each) for each in writer.connection.execute(select(bindings.c.id).where(is_bound)).scalars()]
    writer.removed_by_cascade(RowKind.BINDING, removed)
    writer.remove(RowKind.EXCHANGE, [id_])
    return removed


def get(connection: Connection, vhost_id: VhostId, name: str) -> ExchangeRow | None:
    row = _row(connection, vhost_id, name)
    return None if row is None else _exchange(row)


def every(connection: Connection, vhost_id: VhostId | None = None) -> list[ExchangeRow]:
    """All of them, or those of one vhost, by name."""
    query = select(exchanges)
    if vhost_id is not None:
        query = query.where(exchanges.c.vhost_id == vhost_id)
    rows = connection.execute(query).mappings()
    return [_exchange(row) for row in sorted(rows, key=itemgetter("vhost_id", "name"))]  # SQL collations differ


def _row(connection: Connection, vhost_id: VhostId, name: str) -> Mapping[Any, Any] | None:
    at = (exchanges.c.vhost_id == vhost_id) & (exchanges.c.name == name)
    return connection.execute(select(exchanges).where(at)).mappings().one_or_none()


def _exchange(row: Mapping[Any, Any]) -> ExchangeRow:
    return ExchangeRow(
        ExchangeId(row["id"]),
        VhostId(row["vhost_id"]),
        row["name"],
        row["type"],
        row["durable"],
        row["auto_delete"],
        row["internal"],
        from_json(json.loads(row["arguments"])),
    )
