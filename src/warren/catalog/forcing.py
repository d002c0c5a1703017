"""A log that lacks rows of its catalog, made to say what it holds: only when whoever runs it has asked for that.

    rows of the log ──▶ those that can be read, and refer to what is there ──▶ they stay, and the row L counts them
                   └──▶ the others ──▶ set-aside/catalog-rows-….txt, a line for each ──▶ removed from the log

The file is on the disk before anything is removed. What is missing stays missing: a queue whose row is lost is gone,
and its messages are passed over and go with the files they are in. So this is the last thing to try, behind a backup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from sqlalchemy import PrimaryKeyConstraint, Table, UniqueConstraint

from warren.base.errors import Damage
from warren.catalog.bringing import truth_of
from warren.catalog.row_format import CATALOG, LAST_CHANGE, LastChange, RowKind, decode, id_of
from warren.catalog.rows import TABLES, row_of
from warren.files.atomic import replace
from warren.files.protocol import join
from warren.snapshot.database import Database
from warren.snapshot.layout import SET_ASIDE
from warren.snapshot.snapshot_store import StoreReader, StoreRow

_Key = tuple[str, tuple[str, ...], tuple[Any, ...]]  # table, columns, values


def make_whole(database: Database) -> list[str]:
    """Let the log's catalog be what can be had of it; what was done, for people. Durable when it returns."""
    with closing(database.view_now()) as view:
        last, kept, lost = truth_of(view).last, _ValidRows(), list[StoreRow]()
        for kind, row in _rows(view):
            if not kept.takes(kind, row):
                lost.append(row)
    if lost:
        _put_away(database, lost)
    counted = LastChange({**last.rows, **kept.counts()}, max(last.last_id, kept.last_id), last.extra)
    session = database.begin()
    try:
        for row in lost:
            session.remove(CATALOG, row.key)
        session.put(CATALOG, LAST_CHANGE, counted.encode())
    except BaseException:
        session.abort()
        raise
    database.log.wait(session.end())
    missing = [
        f"{last.count(kind) - counted.count(kind)} of kind {kind.name.lower()}"
        for kind in TABLES
        if last.count(kind) != counted.count(kind)
    ]
    return [f"rows of the catalog are missing in the log, and were given up: {', '.join(missing)}"] if missing else []


class _ValidRows:
    """The rows that are whole: they can be read, nothing else has their name, and what they refer to is there."""

    def __init__(self) -> None:
        self.last_id = 0
        self._counts = dict.fromkeys(TABLES, 0)
        self._keys: set[_Key] = set()

    def takes(self, kind: RowKind, row: StoreRow) -> bool:
        """In the order of `TABLES`: what a row refers to comes before it."""
        try:
            id_ = id_of(row.key)
            values = row_of(kind, id_, decode(row.key, row.value))
        except Damage:
            return False
        own = _unique(TABLES[kind], values)
        if own & self._keys or not _referred(TABLES[kind], values) <= self._keys:
            return False
        self._keys |= own
        self._counts[kind] += 1
        self.last_id = max(self.last_id, id_)
        return True

    def counts(self) -> dict[str, int]:
        return {kind.value.decode(): count for kind, count in self._counts.items()}


def _unique(table: Table, values: Mapping[str, Any]) -> set[_Key]:
    """By what nobody else may be known, as the schema says it."""
    keys = (each for each in table.constraints if isinstance(each, UniqueConstraint | PrimaryKeyConstraint))
    columns = (tuple(column.name for column in each.columns) for each in keys)
    return {(table.name, names, tuple(values[name] for name in names)) for names in columns}


def _referred(table: Table, values: Mapping[str, Any]) -> set[_Key]:
    found: set[_Key] = set()
    for key in table.foreign_key_constraints:
        ends = tuple(values[column.name] for column in key.columns)
        if None not in ends:
            found.add((key.referred_table.name, tuple(each.column.name for each in key.elements), ends))
    return found


def _rows(view: StoreReader) -> Iterator[tuple[RowKind, StoreRow]]:
    """The newest first: of two by one name it is the one that counts."""
    return ((kind, row) for kind in TABLES for row in view.prefix(CATALOG, kind.value, reverse=True))


def _put_away(database: Database, rows: list[StoreRow]) -> None:
    machine = database.log.machine
    directory = join(database.directory, SET_ASIDE)
    machine.files.make_directories(directory)
    told = "".join(f"{row.key.hex()} {row.value.hex()}\n" for row in rows)
    replace(machine.files, join(directory, f"catalog-rows-{machine.chance.id64():016x}.txt"), [told.encode()])
