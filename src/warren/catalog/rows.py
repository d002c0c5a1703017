"""Rows: the catalog's rows in the log and in SQL, and the changes of them.

    key      | kind 1 byte | id u64, big-endian |      9 bytes: rows of one kind are adjacent, oldest first
    value    | format u8 | a JSON object, UTF-8 |      names in order, no spaces: equal rows are equal bytes

    SQL      id  vhost_id  name  …  arguments '{"x":1}'   extra '{"colour":"red"}'   identity (bindings)
    image    key ┘         name  …  arguments {"x":1}     colour "red"               not in it: computed

One row of kind L, with id 0, is written with every change: its version in the log is the epoch of the catalog's last
change, and its image has the number of rows of each kind and the highest id that was used.

`RowWriter` writes rows to SQL, inside a transaction, and collects their images for the log:

    insert     SQL checks the row; its id is a new position of the log. In a savepoint of its own: PostgreSQL would
               otherwise undo the whole change when it refuses a row
    replace    the same row with another image; fields of a newer version stay
    remove     deletes a row; `removed_by_cascade` names for the log what SQL deletes with it

Arguments of queues, exchanges and bindings are stored as JSON, with a mark for what JSON lacks:

    as JSON                null, true, 7, 1.5, "text", [ … ], { … }
    with a mark            {"!": "bytes", "value": "AAE="}            base64
                           {"!": "time", "value": 1700000000}         seconds since 1970, UTC
                           {"!": "decimal", "value": "1.50"}
                           {"!": "float", "value": "nan"}             and inf, -inf
                           {"!": "table", "value": { … }}             a table that has a key "!" itself

Password hashes are left out where entries of the log leave the store (tables, streams, dumps): `without_credentials`
shows the row of a user (storage 1, kind U) with an empty hash. A row that this version cannot read is shown as an empty
value if it contains the word "password".

Invariants
* An image converted to a row and back is the same image. A field that an older image lacks gets its column's default.
* Unknown data stays. A field that a newer version added is kept in `extra` and written again; rows of an unknown kind,
  and their count, are not touched. A version that older ones must not repair raises the format byte of the row L,
  which is read first.
* Arguments come back as they went in, with their types, and equal values have one spelling. The width of an integer on
  the wire is not kept: no queue needs it. Limits are checked here, because declarations are replayed at every start.

`catalog` decides whether a change is committed: a refused one leaves nothing. Bytes: docs/formats/catalog_rows.md.

Equivalence: declaring an existing object succeeds if it is the same; otherwise the error names the differences.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from warren.catalog.schema import bindings, exchanges, parameters, permissions, queues, topic_permissions, users, vhosts
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
    PARAMETER = b"P"


LAST_CHANGE = KEY.pack(b"L", 0)


def key_of(kind: RowKind, id_: int) -> bytes:
    return KEY.pack(kind.value, id_)


def id_of(key: bytes) -> int:
    if len(key) != KEY.size:
        raise Damage(f"a row of the catalog has the key {key.hex()}, which is not {KEY.size} bytes long")
    return int(KEY.unpack(key)[1])


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: object) -> str:
    """JSON with one spelling for equal values."""
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
        version = value[0] if value else "none"
        raise Refused(
            f"{what} is of format {version}, this version of warren reads {FORMAT}", "use the version that wrote it"
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
    """The row L, written with every change."""

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


TABLES: dict[RowKind, Table] = {  # a table comes after those that it refers to
    RowKind.VHOST: vhosts,
    RowKind.EXCHANGE: exchanges,
    RowKind.QUEUE: queues,
    RowKind.BINDING: bindings,
    RowKind.USER: users,
    RowKind.PERMISSION: permissions,
    RowKind.TOPIC_PERMISSION: topic_permissions,
    RowKind.PARAMETER: parameters,
}
_AS_JSON = ("arguments", "tags", "limits", "value")
_IDENTITIES = {  # columns that identify a row where SQL has no unique constraint over them
    RowKind.BINDING: ("source_id", "queue_id", "exchange_id", "routing_key", "arguments"),
    RowKind.PARAMETER: ("vhost_id", "component", "name"),
}
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
    if kind in _IDENTITIES:
        row["identity"] = identity(kind, row)
    return row


def image_of(kind: RowKind, row: Mapping[Any, Any]) -> Image:
    image: Image = json.loads(row["extra"])
    for column in TABLES[kind].columns:
        if column.name not in _NOT_IN_IMAGE:
            value = row[column.name]
            image[column.name] = json.loads(value) if column.name in _AS_JSON else value
    return image


def identity(kind: RowKind, row: Mapping[str, Any]) -> str:
    return sha256(canonical([row[name] for name in _IDENTITIES[kind]]).encode()).hexdigest()


_IDS_AT_ONCE = 500  # SQL takes only so many values in one statement
NAME_BYTES_MAX = 255


class RowWriter:
    """One change of rows, under way. Created by `Catalog`; reads go through `connection`."""

    def __init__(self, connection: Connection, take_id: Callable[[], int], last: LastChange) -> None:
        self.connection = connection
        self.last = last
        self.entries: list[tuple[bytes, bytes | None]] = []  # key, image; None: removed
        self._take_id = take_id

    def insert(self, kind: RowKind, image: Mapping[str, Any]) -> int:
        """A new row; its id. An `IntegrityError` of SQL is passed on."""
        return self.insert_many(kind, [image])[0]

    def insert_many(self, kind: RowKind, images: Sequence[Mapping[str, Any]]) -> list[int]:
        """New rows by one statement; their ids. All of them, or none."""
        if not images:
            return []
        for image in images:
            checked_texts(image)
        ids = [self._take_id() for _ in images]
        with self.connection.begin_nested():
            rows = [row_of(kind, id_, image) for id_, image in zip(ids, images, strict=True)]
            self.connection.execute(insert(TABLES[kind]), rows)
        self.entries += [(key_of(kind, id_), encode(image)) for id_, image in zip(ids, images, strict=True)]
        self.last = replace(self.last.with_rows(kind, len(ids)), last_id=max(self.last.last_id, *ids))
        return ids

    def replace(self, kind: RowKind, row: Mapping[Any, Any], **fields: Any) -> None:
        """Other fields for a row that was read from SQL."""
        checked_texts(fields)
        table, image = TABLES[kind], image_of(kind, row) | fields
        self.connection.execute(update(table).where(table.c.id == row["id"]), row_of(kind, row["id"], image))
        self.entries.append((key_of(kind, row["id"]), encode(image)))

    def remove(self, kind: RowKind, ids: Iterable[int]) -> None:
        ids, table = list(ids), TABLES[kind]
        for start in range(0, len(ids), _IDS_AT_ONCE):
            self.connection.execute(delete(table).where(table.c.id.in_(ids[start : start + _IDS_AT_ONCE])))
        self.removed_by_cascade(kind, ids)

    def removed_by_cascade(self, kind: RowKind, ids: Iterable[int]) -> None:
        """SQL deletes these itself when a row that they refer to is deleted."""
        ids = list(ids)
        self.entries += [(key_of(kind, id_), None) for id_ in ids]
        self.last = self.last.with_rows(kind, -len(ids))


def checked_texts(fields: Mapping[str, Any]) -> None:
    """Refuse texts that some SQL database cannot store, at any depth."""
    for name, value in fields.items():
        try:
            raw = canonical(value).encode()
        except UnicodeEncodeError as error:
            raise Refused(f"the {name.replace('_', ' ')} cannot be written in UTF-8") from error
        if isinstance(value, str) and "\0" in value:
            raise Refused(f"the {name.replace('_', ' ')} has a zero byte among its {len(raw) - 2}", "leave it out")


def checked_name(what: str, name: str, may_be_empty: bool = False) -> str:
    """A name that AMQP can carry and every SQL database can store."""
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
    """A table as a JSON object; the outermost one never has a mark."""
    return {_text(key): _to_json(value, 1) for key, value in (arguments or {}).items()}


def from_json(image: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _from_json(value) for key, value in image.items()}


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
            raise Refused(f"the time {value} has no time zone", "give it one: UTC")
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


def _from_json(image: Any) -> Any:
    if isinstance(image, list):
        return [_from_json(each) for each in image]
    if not isinstance(image, dict):
        return image
    if MARK not in image:
        return from_json(image)
    value = image.get("value")
    match image[MARK]:
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
    raise Damage(f"an argument of the catalog has the unknown mark {image[MARK]!r}")


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
    """The same entries; only values with a hash are changed. Costs nothing for entries of other storages."""
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
    """The value to show; None: unchanged."""
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


class Inequivalent(Refused):
    """The object exists with other properties (AMQP: 406 precondition failed)."""


def check_same(what: str, current: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Compare images field by field, arguments one by one. A number differs from its text."""
    differing = _differing(_flatten(current), _flatten(declared))
    if differing:
        raise Inequivalent(
            f"{what} exists with {_listed(differing, 0)}; it was declared with {_listed(differing, 1)}",
            "declare it as it is, or delete it first",
        )


def _flatten(image: Mapping[str, Any]) -> dict[str, str]:
    plain = {name: canonical(value) for name, value in image.items() if name != "arguments"}
    return plain | {f"argument {name}": canonical(value) for name, value in image.get("arguments", {}).items()}


def _differing(current: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = [*declared, *(name for name in current if name.startswith("argument ") and name not in declared)]
    pairs = {name: (current.get(name, "none"), declared.get(name, "none")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _listed(differing: Mapping[str, tuple[str, str]], side: int) -> str:
    return ", ".join(f"{name} {pair[side]}" for name, pair in differing.items())
