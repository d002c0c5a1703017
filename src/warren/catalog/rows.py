"""A row of SQL and its image in the log: the same fields, by the same names.

    SQL      id  vhost_id  name  …  arguments '{"x":1}'   extra '{"colour":"red"}'   identity (bindings)
    image    key ┘         name  …  arguments {"x":1}     colour "red"               not in it: computed

Always true: an image that was made into a row and back is the same image. A field that the image of an older version
lacks gets the default of its column; one that this version does not know is kept in `extra`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import Table

from warren.base.errors import Damage
from warren.catalog.row_format import Image, RowKind, canonical
from warren.catalog.schema import bindings, exchanges, permissions, queues, topic_permissions, users, vhosts

TABLES: dict[RowKind, Table] = {  # whoever is referred to comes first
    RowKind.VHOST: vhosts,
    RowKind.EXCHANGE: exchanges,
    RowKind.QUEUE: queues,
    RowKind.BINDING: bindings,
    RowKind.USER: users,
    RowKind.PERMISSION: permissions,
    RowKind.TOPIC_PERMISSION: topic_permissions,
}
_AS_JSON = ("arguments", "tags", "limits")
_NOT_IN_IMAGE = ("id", "extra", "identity")


def row_of(kind: RowKind, id_: int, image: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"id": id_}
    rest = dict(image)
    for column in TABLES[kind].columns:
        if column.name in _NOT_IN_IMAGE:
            continue
        if column.name in rest:
            value = rest.pop(column.name)
            row[column.name] = canonical(value) if column.name in _AS_JSON else value
        elif column.default is not None or column.nullable:
            row[column.name] = getattr(column.default, "arg", None)
        else:
            raise Damage(f"the catalog's {kind.name.lower()} {id_} has no {column.name}")
    row["extra"] = canonical(rest)
    if kind is RowKind.BINDING:
        row["identity"] = _identity(row)
    return row


def image_of(kind: RowKind, row: Mapping[Any, Any]) -> Image:
    image: Image = json.loads(row["extra"])
    for column in TABLES[kind].columns:
        if column.name not in _NOT_IN_IMAGE:
            value = row[column.name]
            image[column.name] = json.loads(value) if column.name in _AS_JSON else value
    return image


def _identity(row: Mapping[str, Any]) -> str:
    names = ("source_id", "queue_id", "exchange_id", "routing_key", "arguments")
    return sha256(canonical([row[name] for name in names]).encode()).hexdigest()
