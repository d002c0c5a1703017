"""Password hashes of users, left out where entries of the log leave the store: tables, streams, dumps.

A row of a user is in storage 1 under a key of kind U (row_format). What is shown in its place is the same row with an
empty hash. A row that this version cannot read is shown as an empty value if the word "password" is in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warren.base.errors import WarrenError
from warren.catalog.row_format import CATALOG, KEY, RowKind, decode, encode
from warren.records.columns import EntryColumns, Texts

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
