"""The columns of each view, and the check of a requested schema.

Spark does not pass the columns of a query to a Python source. So any subset of a view's columns, in any order, is a
valid schema, and only the selected columns are decoded:

    spark.read.format("warren").schema("epoch long, key binary").load(path)

64-bit numbers are `long`, which is signed in Spark: a storage number from 2^63 on appears negative. `kind` is a word
("put", "remove", …); selected as `byte` it is the number stored in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from warren.base.errors import Refused


class TableFormat(StrEnum):
    """Formats of exported tables. Here and not beside their writers: the commands import it without pyarrow."""

    PARQUET = "parquet"
    DELTA = "delta"


class TableView(StrEnum):
    ENTRIES = "entries"  # the raw log: every entry as it was written
    KV = "kv"  # the state: the newest value of every key
    DAMAGE = "damage"  # what onDamage=skip leaves out


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    types: tuple[str, ...]  # as Spark spells them; the first is the usual one
    is_usual: bool = True  # False: only if selected by name


_LONG = ("bigint",)
_BINARY = ("binary",)
_KEY_VALUE = (Column("storage", _LONG), Column("key", _BINARY), Column("value", _BINARY))
_VERSION = (Column("major", _LONG), Column("minor", _LONG))

COLUMNS: dict[TableView, tuple[Column, ...]] = {
    TableView.ENTRIES: (
        Column("epoch", _LONG),
        Column("kind", ("string", "tinyint")),
        *_KEY_VALUE,
        *_VERSION,
        Column("stream", ("int",)),
        Column("lsn", _LONG),
        Column("file", _LONG),
        Column("undo_prev", _LONG, is_usual=False),
        Column("undo_next", _LONG, is_usual=False),
    ),
    TableView.KV: (*_KEY_VALUE, *_VERSION, Column("epoch", _LONG)),
    TableView.DAMAGE: (
        Column("path", ("string",)),
        Column("offset", _LONG),
        Column("length", _LONG),
        Column("what", ("string",)),
        Column("first_epoch", _LONG),
        Column("last_epoch", _LONG),
        Column("entries_max", _LONG),
    ),
}


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """A column of the requested schema."""

    name: str
    type: str


def usual_schema(view: TableView) -> str:
    return ", ".join(f"{column.name} {column.types[0]}" for column in COLUMNS[view] if column.is_usual)


def fields_of(view: TableView, schema: Any) -> list[SelectedColumn]:
    """The fields of a Spark StructType, if every one is a column of the view."""
    return checked(view, [SelectedColumn(field.name, field.dataType.simpleString()) for field in schema.fields])


def checked(view: TableView, fields: Sequence[SelectedColumn]) -> list[SelectedColumn]:
    known = {column.name: column for column in COLUMNS[view]}
    hint = f"its columns are: {', '.join(f'{column.name} {column.types[0]}' for column in COLUMNS[view])}"
    for field in fields:
        column = known.get(field.name)
        if column is None:
            raise Refused(f"view '{view}' has no column '{field.name}'", hint)
        if field.type not in column.types:
            raise Refused(f"column '{field.name}' of view '{view}' is {column.types[0]}, not {field.type}", hint)
    if not fields:
        raise Refused(f"a schema without columns does not fit view '{view}'", hint)
    return list(fields)
