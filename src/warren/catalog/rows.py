"""The rows of the catalog as the log holds them: a key, and the full image of a row.

    key      | kind 1 byte | id u64, big-endian |      9 bytes: rows of one kind lie together, oldest first
    value    | format u8 | a JSON object, UTF-8 |      names in order, no spaces: equal rows are equal bytes

One row of kind L, with id 0, goes with every change: its version in the log is the epoch of the catalog's last change,
and its image says how many rows of each kind there are and the highest id that was given out.

Always true: what this version does not know stays. A field that a newer one added is kept beside the others and written
again (`rows`); rows of an unknown kind are left alone, and so is their count. A newer one that must not be mended by an
older one raises the format byte of the row L, which everybody reads first. Bytes: docs/formats/catalog_rows.md.

A row of SQL and its image in the log: the same fields, by the same names.

    SQL      id  vhost_id  name  …  arguments '{"x":1}'   extra '{"colour":"red"}'   identity (bindings)
    image    key ┘         name  …  arguments {"x":1}     colour "red"               not in it: computed

Always true: an image that was made into a row and back is the same image. A field that the image of an older version
lacks gets the default of its column; one that this version does not know is kept in `extra`.

A change of the catalog under way: rows written to SQL, inside a transaction, and their images for the log.

    insert     SQL checks it, the log will hold it; its id is a new position of the log. In a savepoint of its own: what
               PostgreSQL refuses would otherwise take along all that the change has done so far
    replace    the same row with another image; what a newer version said about it stays
    remove     SQL lets go of it, and of what goes with it; `gone_with_it` names that for the log

Whether it comes to anything is decided elsewhere (`projection`): of work that is refused half way nothing ever was.

Arguments of queues, exchanges and bindings as JSON, whatever AMQP lets a table hold.

    JSON says it itself    null, true, 7, 1.5, "text", [ … ], { … }
    with a mark            {"!": "bytes", "value": "AAE="}            base64
                           {"!": "time", "value": 1700000000}         seconds since 1970, UTC
                           {"!": "decimal", "value": "1.50"}
                           {"!": "float", "value": "nan"}             and inf, -inf
                           {"!": "table", "value": { … }}             a table that has a key "!" itself

Always true: what comes back is what went in, its type too, and equal values have one spelling. How wide an integer was
on the wire is not kept: no queue asks. Bounds are judged here, since what is declared is replayed at every start.

Password hashes of users, left out where entries of the log leave the store: tables, streams, dumps.

A row of a user is in storage 1 under a key of kind U (row_format). What is shown in its place is the same row with an
empty hash. A row that this version cannot read is shown as an empty value if the word "password" is in it.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, delete, insert, update

from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import StorageId
from warren.catalog.schema import bindings, exchanges, permissions, queues, topic_permissions, users, vhosts
from warren.records.columns import EntryColumns, Texts
from warren.records.format import ENTRY_BYTES_MAX

CATALOG = StorageId(1)  # the storage of all of it; numbers given by the log begin far above
FORMAT = 1

KEY = struct.Struct(">cQ")
assert KEY.size == 9

Image = dict[str, Any]  # what JSON can say


class RowKind(Enum):
    """The letters are on disk: never change one, only add."""

    VHOST = b"V"
    EXCHANGE = b"E"
    QUEUE = b"Q"
    BINDING = b"B"
    USER = b"U"
    PERMISSION = b"A"
    TOPIC_PERMISSION = b"T"


LAST_CHANGE = KEY.pack(b"L", 0)


def key_of(kind: RowKind, id_: int) -> bytes:
    return KEY.pack(kind.value, id_)


def id_of(key: bytes) -> int:
    if len(key) != KEY.size:
        raise Damage(f"a row of the catalog has the key {key.hex()}, which is not {KEY.size} bytes long")
    return int(KEY.unpack(key)[1])


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: object) -> str:
    """JSON in one spelling only."""
    return _ENCODER.encode(value)


def encode(image: Mapping[str, Any]) -> bytes:
    raw = bytes([FORMAT]) + canonical(image).encode()
    if len(raw) + KEY.size > ENTRY_BYTES_MAX:
        raise Refused(
            f"this takes {len(raw)} bytes in the catalog, at most {ENTRY_BYTES_MAX} go", "give it fewer arguments"
        )
    return raw


def decode(key: bytes, value: bytes) -> Image:
    what = f"row {key[:1].decode('latin-1')} {key[1:].hex()} of the catalog"
    if not value or value[0] != FORMAT:
        told = value[0] if value else "none"
        raise Refused(
            f"{what} is of format {told}, this version of warren reads {FORMAT}", "use the version that wrote it"
        )
    try:
        image = json.loads(value[1:])
    except (ValueError, RecursionError) as error:
        raise Damage(f"{what} is not JSON: {error}") from error
    if not isinstance(image, dict):
        raise Damage(f"{what} is no JSON object")
    return image


@dataclass(frozen=True, slots=True)
class LastChange:
    """The row L: what goes with every change."""

    rows: Mapping[str, int] = field(default_factory=dict)  # by the letter of their kind
    last_id: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def with_rows(self, kind: RowKind, more: int) -> LastChange:
        letter = kind.value.decode()
        return replace(self, rows={**self.rows, letter: self.count(kind) + more})

    def count(self, kind: RowKind) -> int:
        return self.rows.get(kind.value.decode(), 0)

    def encode(self) -> bytes:
        return encode({**self.extra, "rows": dict(self.rows), "last_id": self.last_id})

    @classmethod
    def decode(cls, value: bytes) -> LastChange:
        image = decode(LAST_CHANGE, value)
        try:
            rows = {str(letter): int(count) for letter, count in image.pop("rows").items()}
            return cls(rows, int(image.pop("last_id")), image)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise Damage(f"the row of the catalog's last change does not say what it must: {error!r}") from error


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


_IDS_AT_ONCE = 500  # SQL takes only so many values in one statement
NAME_BYTES_MAX = 255


class RowWriter:
    """Made by `Projection`; whoever works with it reads and writes by its connection."""

    def __init__(self, connection: Connection, take_id: Callable[[], int], last: LastChange) -> None:
        self.connection = connection
        self.last = last
        self.entries: list[tuple[bytes, bytes | None]] = []  # key, image; None: removed
        self._take_id = take_id

    def insert(self, kind: RowKind, image: Mapping[str, Any]) -> int:
        """A new row; its id. What SQL says against it passes by as an `IntegrityError`."""
        checked_texts(image)
        id_ = self._take_id()
        with self.connection.begin_nested():
            self.connection.execute(insert(TABLES[kind]), row_of(kind, id_, image))
        self.entries.append((key_of(kind, id_), encode(image)))
        self.last = replace(self.last.with_rows(kind, 1), last_id=max(self.last.last_id, id_))
        return id_

    def replace(self, kind: RowKind, row: Mapping[Any, Any], **fields: Any) -> None:
        """Other fields for a row as SQL has it."""
        checked_texts(fields)
        table, image = TABLES[kind], image_of(kind, row) | fields
        self.connection.execute(update(table).where(table.c.id == row["id"]), row_of(kind, row["id"], image))
        self.entries.append((key_of(kind, row["id"]), encode(image)))

    def remove(self, kind: RowKind, ids: Iterable[int]) -> None:
        ids, table = list(ids), TABLES[kind]
        for start in range(0, len(ids), _IDS_AT_ONCE):
            self.connection.execute(delete(table).where(table.c.id.in_(ids[start : start + _IDS_AT_ONCE])))
        self.gone_with_it(kind, ids)

    def gone_with_it(self, kind: RowKind, ids: Iterable[int]) -> None:
        """SQL lets these go by itself when what they refer to is removed."""
        ids = list(ids)
        self.entries += [(key_of(kind, id_), None) for id_ in ids]
        self.last = self.last.with_rows(kind, -len(ids))


def checked_texts(fields: Mapping[str, Any]) -> None:
    """Texts as every SQL database can hold them, wherever they stand."""
    for name, value in fields.items():
        try:
            raw = canonical(value).encode()
        except UnicodeEncodeError as error:
            raise Refused(f"the {name.replace('_', ' ')} cannot be written in UTF-8") from error
        if isinstance(value, str) and "\0" in value:
            raise Refused(f"the {name.replace('_', ' ')} has a zero byte among its {len(raw) - 2}", "leave it out")


def checked_name(what: str, name: str, may_be_empty: bool = False) -> str:
    """A name as AMQP can carry it and every SQL database can hold it."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise Refused(f"{what} {name!r} cannot be written in UTF-8") from error
    if size > NAME_BYTES_MAX or "\0" in name or not (name or may_be_empty):
        least = 0 if may_be_empty else 1
        raise Refused(f"{what} {name[:40]!r} has {size} bytes", f"it has {least} … {NAME_BYTES_MAX}, and no zero byte")
    return name


MARK = "!"
DEPTH_MAX = 32

Arguments = Mapping[str, Any]


def to_json(arguments: Arguments | None) -> dict[str, Any]:
    """A table as a JSON object; the outermost one has no mark, whatever its keys are."""
    return {_text(key): _to_json(value, 1) for key, value in (arguments or {}).items()}


def from_json(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _from_json(value) for key, value in told.items()}


def _to_json(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise Refused(f"the arguments are nested deeper than {DEPTH_MAX}", "make them flatter")
    match value:
        case None | bool() | int():
            return value
        case str():
            return _text(value)
        case float():
            return value if math.isfinite(value) else {MARK: "float", "value": str(value)}
        case bytes() | bytearray() | memoryview():
            return {MARK: "bytes", "value": base64.b64encode(value).decode()}
        case datetime() if value.tzinfo is None:
            raise Refused(f"the time {value} says nothing of its zone", "give it one: UTC")
        case datetime():
            return {MARK: "time", "value": int(value.timestamp())}
        case Decimal():
            return {MARK: "decimal", "value": str(value)}
        case list() | tuple():
            return [_to_json(each, depth + 1) for each in value]
        case Mapping():
            table = {_text(key): _to_json(each, depth + 1) for key, each in value.items()}
            return {MARK: "table", "value": table} if MARK in table else table
    raise Refused(f"an argument cannot be a {type(value).__name__}", "use what an AMQP table can hold")


def _from_json(told: Any) -> Any:
    if isinstance(told, list):
        return [_from_json(each) for each in told]
    if not isinstance(told, dict):
        return told
    if MARK not in told:
        return from_json(told)
    value = told.get("value")
    match told[MARK]:
        case "bytes":
            return base64.b64decode(str(value))
        case "time":
            return datetime.fromtimestamp(int(str(value)), UTC)
        case "decimal":
            return Decimal(str(value))
        case "float":
            return float(str(value))
        case "table" if isinstance(value, dict):
            return from_json(value)
    raise Damage(f"an argument of the catalog has the unknown mark {told[MARK]!r}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"the name of an argument is text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{value!r} cannot be written in UTF-8", "pass it as bytes") from error
    return value


_HASH = "password_hash"
_SIGN = b"password"


def without_credentials(columns: EntryColumns) -> EntryColumns:
    """The same entries; values change only where a hash is in one. Costs nothing for entries of other storages."""
    rows = _rows_of_catalog(columns)
    changed = {row: value for row in rows if (value := _redacted(columns, row)) is not None}
    if not changed:
        return columns
    values = [changed[row] if row in changed else columns.values.at(row) for row in range(columns.count)]
    return replace(columns, values=Texts.of_list(values))


def _rows_of_catalog(columns: EntryColumns) -> list[int]:
    storages = columns.storages
    if storages.is_constant:
        return list(range(columns.count)) if columns.count and storages.base == CATALOG else []
    return [int(row) for row in np.flatnonzero(storages.array() == CATALOG)]


def _redacted(columns: EntryColumns, row: int) -> bytes | None:
    """The value to show; None: as it is."""
    key = columns.keys.at(row)
    if len(key) != KEY.size or key[:1] != RowKind.USER.value:
        return None
    value = columns.values.at(row)
    if _SIGN not in value:
        return None
    try:
        image = decode(key, value)
    except WarrenError:
        return b""
    return encode({**image, _HASH: ""}) if _HASH in image else b""
