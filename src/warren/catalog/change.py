"""A change of the catalog under way: rows written to SQL, inside a transaction, and their images for the log.

    insert     SQL checks it, the log will hold it; its id is a new position of the log. In a savepoint of its own: what
               PostgreSQL refuses would otherwise take along all that the change has done so far
    replace    the same row with another image; what a newer version said about it stays
    remove     SQL lets go of it, and of what goes with it; `gone_with_it` names that for the log

Whether it comes to anything is decided elsewhere (`projection`): of work that is refused half way nothing ever was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, insert, update

from warren.base.errors import Refused
from warren.catalog.row_format import LastChange, RowKind, canonical, encode, key_of
from warren.catalog.rows import TABLES, image_of, row_of

_IDS_AT_ONCE = 500  # SQL takes only so many values in one statement
NAME_BYTES_MAX = 255


class Change:
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
