"""Runtime parameters: any JSON value by component and name, in one vhost or global.

    (vhost, "policy", "ttl")           ──▶ {"pattern": "^tmp", "definition": {…}, "priority": 0, "apply-to": "queues"}
    (vhost, "operator_policy", "cap")  ──▶ the same
    (vhost, "vhost-limits", "limits")  ──▶ {"max-queues": 100}
    (none, "global", "site")           ──▶ a global parameter

Components and names are RabbitMQ's, so definitions can be exchanged with it. What a value means, and whether it is
valid, is decided by the module that uses it (`broker/policies`).

Invariants: there is at most one row for each key, also where the vhost is null; the row is deleted with its vhost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Refused
from warren.base.ids import ParameterId, VhostId
from warren.catalog.rows import RowKind, RowWriter, canonical, checked_name, identity
from warren.catalog.schema import parameters

GLOBAL = "global"  # component of parameters without a vhost


@dataclass(frozen=True, slots=True)
class ParameterRow:
    id: ParameterId
    vhost_id: VhostId | None
    component: str
    name: str
    value: Any


def put(writer: RowWriter, vhost_id: VhostId | None, component: str, name: str, value: Any) -> ParameterRow:
    """Set the value, replacing an earlier one."""
    _check_json(value)
    row = _row(writer.connection, vhost_id, checked_name("the component", component), checked_name("the name", name))
    if row is not None:
        if row["value"] != canonical(value):
            writer.replace(RowKind.PARAMETER, row, value=value)
        return ParameterRow(ParameterId(row["id"]), vhost_id, component, name, value)
    image = {"vhost_id": vhost_id, "component": component, "name": name, "value": value}
    try:
        id_ = writer.insert(RowKind.PARAMETER, image)
    except IntegrityError as error:
        raise Refused(f"parameter {name!r} cannot be in vhost {vhost_id}: there is none", "create it first") from error
    return ParameterRow(ParameterId(id_), vhost_id, component, name, value)


def clear(writer: RowWriter, vhost_id: VhostId | None, component: str, name: str) -> bool:
    """Whether there was a row."""
    row = _row(writer.connection, vhost_id, component, name)
    if row is not None:
        writer.remove(RowKind.PARAMETER, [row["id"]])
    return row is not None


def get(connection: Connection, vhost_id: VhostId | None, component: str, name: str) -> ParameterRow | None:
    row = _row(connection, vhost_id, component, name)
    return None if row is None else _parameter(row)


def every(connection: Connection, vhost_id: VhostId | None) -> list[ParameterRow]:
    """Those of one vhost, or the global ones, by component and name."""
    query = select(parameters).where(parameters.c.vhost_id.is_not_distinct_from(vhost_id))
    rows = connection.execute(query).mappings()
    return [_parameter(row) for row in sorted(rows, key=itemgetter("component", "name"))]  # SQL collations differ


def _row(connection: Connection, vhost_id: VhostId | None, component: str, name: str) -> Mapping[Any, Any] | None:
    key = identity(RowKind.PARAMETER, {"vhost_id": vhost_id, "component": component, "name": name})
    return connection.execute(select(parameters).where(parameters.c.identity == key)).mappings().one_or_none()


def _parameter(row: Mapping[Any, Any]) -> ParameterRow:
    vhost_id = None if row["vhost_id"] is None else VhostId(row["vhost_id"])
    value = json.loads(row["value"])
    return ParameterRow(ParameterId(row["id"]), vhost_id, row["component"], row["name"], value)


def _check_json(value: Any) -> None:
    """Refuse numbers that JSON cannot represent: a parser makes infinity of 1e999."""
    try:
        canonical(value)
    except ValueError as error:
        raise Refused(f"the value is not JSON: {error}") from error
