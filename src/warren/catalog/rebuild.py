"""Rebuild: make SQL equal to the log's catalog, whichever of them is ahead.

    applied = the log's last change       in step: nothing to do, one query however large the catalog is
    applied < it                          behind: rows newer than `applied` are written, rows that are gone are deleted
    applied > it, or an earlier timeline  ahead: everything is written again, and reported
    a timeline that the log never had     foreign: refused, and not touched
    a row differs from the log's          damaged: set aside and made again; compared at each start

SQL falls behind by a crash between durable and its commit, or by losing its newest transactions or its file. It is
ahead when the log was restored to an earlier moment, or forked. Either way the rebuild is one SQL transaction, so that
a crash in the middle leaves the old rows.

`make_whole` (only with --force) repairs a log that lacks rows of its catalog:

    rows of the log ──▶ readable, and refer to rows that exist ──▶ they stay, and the row L counts them
                   └──▶ the others ──▶ set-aside/catalog-rows-….txt, a line for each ──▶ removed from the log

The file is durable before anything is removed. A queue whose row is lost is gone; its messages are skipped and go with
the files they are in. So this is the last resort, after a backup.

`remove_leftovers` runs at a start, in one change: it deletes what does not outlive the broker process: queues and
exchanges that are not durable, and exclusive queues. They are in the catalog like all others, so that names and
bindings have one source of truth.

Invariants
* After a rebuild SQL has exactly the rows of the view, and the mark names its epoch.
* A log with fewer rows than its last change counted, or with a row that refers to nothing, is refused (checklist C-21):
  messages of missing queues would look orphaned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, ExchangeId, QueueId, TimelineId
from warren.catalog import exchanges, queues
from warren.catalog.rows import CATALOG, LAST_CHANGE, TABLES, LastChange, RowKind, RowWriter, decode, id_of, row_of
from warren.catalog.schema import applied
from warren.catalog.schema import exchanges as exchange_rows
from warren.catalog.schema import queues as queue_rows
from warren.catalog.sql import SqlDamage, SqlDatabase
from warren.durability.timeline import Timeline
from warren.files.atomic import replace
from warren.files.protocol import join
from warren.snapshot.database import SET_ASIDE, Database
from warren.snapshot.store import StoreReader, StoreRow

_ROWS_AT_ONCE = 500
_WAY_OUT = (
    "restore a backup of the log, or name another catalog if this one belongs to another broker; with --force "
    "it is made of what the log holds, and what is in SQL now is set aside"
)


class ForeignCatalog(Refused):
    """SQL was made from another log."""


class MissingRows(Damage):
    """The log does not hold all rows of its catalog."""


class SqlMark(NamedTuple):
    """The last change that SQL has."""

    timeline: TimelineId
    epoch: Epoch


class CatalogState(NamedTuple):
    """The catalog in the log: the epoch of its last change, and that change's row L."""

    epoch: Epoch
    last: LastChange


def read_state(view: StoreReader) -> CatalogState:
    row = view.get(CATALOG, LAST_CHANGE)
    if row is None:
        return CatalogState(Epoch(0), LastChange())
    return CatalogState(Epoch(row.version[0]), LastChange.decode(row.value))


def rebuild_sql(sql: SqlDatabase, view: StoreReader, timeline: Timeline) -> tuple[CatalogState, str]:
    """Make SQL equal to the view. Returns the view's state, and a problem to report to the operator, or ""."""
    state = read_state(view)
    with sql.reading() as connection:
        mark, counts = read_mark(connection), _counts(connection)
    is_whole = all(counts[kind] == state.last.count(kind) for kind in TABLES)
    problem = _problem_of(sql.where, mark, state, timeline, is_whole)
    is_same = mark == SqlMark(timeline.id, state.epoch) and is_whole
    if not is_same:
        after = None if problem or mark is None else mark.epoch
        _write(sql, view, state, timeline.id, after)
    return state, problem


def check_rows(sql: SqlDatabase, view: StoreReader) -> None:
    """Compare every row of SQL, rebuilt to this view, with the log's. SQLite has no checksums: a flipped bit gives a
    queue another name. Less than 0.1 ms a row."""
    with sql.reading() as connection:
        for kind, table in TABLES.items():
            rows = connection.execute(select(table).order_by(table.c.id)).mappings()
            for row, logged in zip_longest(rows, view.prefix(CATALOG, kind.value)):
                if row is None or logged is None or dict(row) != _values(kind, logged):
                    id_ = id_of(logged.key) if row is None else row["id"]
                    what = f"row {id_} of its table {table.name} differs from the log"
                    raise SqlDamage(
                        f"the SQL catalog is damaged: {what}", sql.where, 0, "it is made again from the log"
                    )


def read_mark(connection: Connection) -> SqlMark | None:
    row = connection.execute(select(applied)).one_or_none()
    return None if row is None else SqlMark(TimelineId(int(row.timeline, 16)), Epoch(row.epoch))


def write_mark(connection: Connection, mark: SqlMark) -> None:
    values = {"timeline": f"{mark.timeline:016x}", "epoch": mark.epoch}
    if connection.execute(update(applied).values(values)).rowcount == 0:
        connection.execute(insert(applied).values(id=1, **values))


def _problem_of(where: str, mark: SqlMark | None, state: CatalogState, timeline: Timeline, is_whole: bool) -> str:
    """Why all rows must be written again; empty if SQL is in step or just behind."""
    if mark is None:
        return ""
    if mark.timeline != timeline.id:
        if not any(ancestor.timeline == mark.timeline for ancestor in timeline.ancestry):
            raise ForeignCatalog(
                f"the SQL catalog {where} was made from timeline {mark.timeline:016x}, which this log never was on "
                f"(it is on {timeline.id:016x}): it does not cover what is there",
                _WAY_OUT,
            )
        return f"the SQL catalog was of timeline {mark.timeline:016x}, which this log has left: it was made again"
    if mark.epoch > state.epoch:
        lost = f"the log's last change of the catalog is of epoch {state.epoch}: later changes are not in the log"
        return f"the SQL catalog had come to epoch {mark.epoch}, {lost}, and SQL was put back"
    if mark.epoch == state.epoch and not is_whole:
        return f"the SQL catalog did not hold what it had at epoch {mark.epoch}: it was made again"
    return ""


def _write(sql: SqlDatabase, view: StoreReader, state: CatalogState, timeline: TimelineId, after: Epoch | None) -> None:
    """One transaction. `after`: only rows newer than this epoch; None: all."""
    try:
        with sql.transaction() as connection:
            for kind in reversed(TABLES):
                _remove_gone(connection, kind, view, is_all=after is None)
            for kind in TABLES:
                count = _put_newer(connection, kind, view, after or Epoch(0))
                if count != state.last.count(kind):
                    what = f"the log holds {count} rows of kind {kind.name.lower()}, its last change of the catalog "
                    raise Damage(f"{what}(epoch {state.epoch}) counted {state.last.count(kind)}")
            write_mark(connection, SqlMark(timeline, state.epoch))
    except SqlDamage:
        raise
    except Damage as error:
        raise MissingRows(error.bare, hint=_WAY_OUT) from error
    except IntegrityError as error:
        raise MissingRows(f"a row of the catalog in the log refers to nothing: {error.orig}", hint=_WAY_OUT) from error


def _remove_gone(connection: Connection, kind: RowKind, view: StoreReader, is_all: bool) -> None:
    table = TABLES[kind]
    if is_all:
        connection.execute(delete(table))
        return
    there = {id_of(row.key) for row in view.prefix(CATALOG, kind.value)}
    gone = sorted(_ids(connection, kind) - there)
    for start in range(0, len(gone), _ROWS_AT_ONCE):
        connection.execute(delete(table).where(table.c.id.in_(gone[start : start + _ROWS_AT_ONCE])))


def _put_newer(connection: Connection, kind: RowKind, view: StoreReader, after: Epoch) -> int:
    """Returns the number of rows of the kind in the view."""
    table, known, count = TABLES[kind], _ids(connection, kind), 0
    rows = view.prefix(CATALOG, kind.value)
    while part := list(islice(rows, _ROWS_AT_ONCE)):
        count += len(part)
        new = [_values(kind, row) for row in part if id_of(row.key) not in known]
        if new:
            connection.execute(insert(table), new)
        for values in _changed(kind, part, known, after):
            connection.execute(update(table).where(table.c.id == values["id"]), values)
    return count


def _changed(kind: RowKind, part: list[StoreRow], known: set[int], after: Epoch) -> Iterator[dict[str, object]]:
    return (_values(kind, row) for row in part if row.version[0] > after and id_of(row.key) in known)


def _values(kind: RowKind, row: StoreRow) -> dict[str, object]:
    return row_of(kind, id_of(row.key), decode(row.key, row.value))


def _ids(connection: Connection, kind: RowKind) -> set[int]:
    return set(connection.execute(select(TABLES[kind].c.id)).scalars())


def _counts(connection: Connection) -> dict[RowKind, int]:
    queries = {kind: select(func.count()).select_from(table) for kind, table in TABLES.items()}
    return {kind: int(connection.execute(each).scalar_one()) for kind, each in queries.items()}


_Key = tuple[str, tuple[str, ...], tuple[Any, ...]]  # table, columns, values


def make_whole(database: Database) -> list[str]:
    """Reduce the log's catalog to its valid rows; what was done, for the operator. Durable when it returns."""
    with closing(database.view_now()) as view:
        last, valid, lost = read_state(view).last, _ValidRows(), list[StoreRow]()
        for kind, row in _rows(view):
            if not valid.add(kind, row):
                lost.append(row)
    if lost:
        _save_lost(database, lost)
    counted = LastChange({**last.rows, **valid.counts()}, max(last.last_id, valid.last_id), last.extra)
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
    return [f"rows of the catalog are missing in the log, and were dropped: {', '.join(missing)}"] if missing else []


class _ValidRows:
    """Rows that are readable, have a unique name, and refer to rows that exist."""

    def __init__(self) -> None:
        self.last_id = 0
        self._counts = dict.fromkeys(TABLES, 0)
        self._keys: set[_Key] = set()

    def add(self, kind: RowKind, row: StoreRow) -> bool:
        """Whether the row is valid. Called in the order of `TABLES`: a row comes after the rows it refers to."""
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
    """The values that must be unique, by the constraints of the schema."""
    keys = (each for each in table.constraints if isinstance(each, UniqueConstraint | PrimaryKeyConstraint))
    columns = (tuple(column.name for column in each.columns) for each in keys)
    return {(table.name, names, tuple(values[name] for name in names)) for names in columns}


def _referred(table: Table, values: Mapping[str, Any]) -> set[_Key]:
    keys: set[_Key] = set()
    for key in table.foreign_key_constraints:
        ends = tuple(values[column.name] for column in key.columns)
        if None not in ends:
            keys.add((key.referred_table.name, tuple(each.column.name for each in key.elements), ends))
    return keys


def _rows(view: StoreReader) -> Iterator[tuple[RowKind, StoreRow]]:
    """Newest first: of two rows with one name the newer one is valid."""
    return ((kind, row) for kind in TABLES for row in view.prefix(CATALOG, kind.value, reverse=True))


def _save_lost(database: Database, rows: list[StoreRow]) -> None:
    environment = database.log.environment
    directory = join(database.directory, SET_ASIDE)
    environment.files.make_directories(directory)
    lines = "".join(f"{row.key.hex()} {row.value.hex()}\n" for row in rows)
    replace(environment.files, join(directory, f"catalog-rows-{environment.rng.id64():016x}.txt"), [lines.encode()])


def remove_leftovers(writer: RowWriter) -> set[QueueId]:
    """Returns the deleted queues; their messages are deleted as well."""
    connection = writer.connection
    is_leftover = or_(not_(queue_rows.c.durable), queue_rows.c.exclusive)
    deleted = {QueueId(id_) for id_ in connection.execute(select(queue_rows.c.id).where(is_leftover)).scalars()}
    for id_ in sorted(deleted):
        queues.delete(writer, id_)
    transient = select(exchange_rows.c.id).where(not_(exchange_rows.c.durable)).order_by(exchange_rows.c.id)
    for each in list(connection.execute(transient).scalars()):
        exchanges.delete(writer, ExchangeId(each))
    return deleted
