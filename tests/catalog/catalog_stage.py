"""A catalog over a database on a memory disk, with SQL in memory that forgets, or in a real file.

`check` is what is always true: SQL holds exactly the rows of the log, and its mark is that of their last change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import select

from tests.snapshot.crash_stage import CrashStage
from tests.snapshot.database_stage import DatabaseStage
from tools.simulator.volatile_catalog import VolatileCatalog
from warren.base.ids import VhostId
from warren.base.threads import SystemThreads, Threads
from warren.catalog import bindings, exchanges, queues, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.queues import QueueRow
from warren.catalog.rebuild import read_mark, read_state
from warren.catalog.rows import CATALOG, TABLES, Image, RowKind, decode, id_of, image_of
from warren.catalog.sql import SqlPlace
from warren.catalog.vhosts import VhostRow
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.testing.memory_files import ALL, CrashModel

Rows = dict[tuple[RowKind, int], Image]


class CatalogStage(DatabaseStage):
    """A machine with a catalog on it."""

    def __init__(self, place: SqlPlace | None = None, mode: Mode = Mode.NOTIFY, seed: int = 1) -> None:
        super().__init__(mode, seed)
        self.place: SqlPlace = place or VolatileCatalog()

    def begin(self) -> Catalog:
        self.database = self.open()
        self.catalog = Catalog.open(self.database, self.place, SystemThreads())
        return self.catalog

    def stop(self) -> None:
        self.catalog.close()
        self.database.close()

    def again(self) -> Catalog:
        self.stop()
        return self.begin()

    def again_without_catalog(self) -> Catalog:
        """The catalog was closed already, and something was done to the log or to SQL."""
        self.database.close()
        return self.begin()

    @property
    def forgetful(self) -> VolatileCatalog:
        assert isinstance(self.place, VolatileCatalog)
        return self.place


class CatalogCrashStage(CrashStage):
    """The same where the power can be cut at any step: a commit of SQL is a step among the others."""

    def __init__(self) -> None:
        super().__init__(Mode.NOTIFY)
        self.sql = VolatileCatalog()

    def open_catalog(self, database: Database, threads: Threads) -> Catalog:
        self.sql.as_step = self._sql_step
        return Catalog.open(database, self.sql, threads)

    def crashed(self, model: CrashModel, seed: int) -> CatalogCrashStage:
        other = super().crashed(model, seed)
        assert isinstance(other, CatalogCrashStage)
        return other

    def crash(self, model: CrashModel, seed: int) -> None:
        super().crash(model, seed)
        self.sql = self.sql.crash(self.rng)

    def _sql_step(self, name: str, call: Any) -> None:
        if self._files is None:
            call()
        else:
            self._files._change(name, ("the catalog",), call)


def rows_in_sql(catalog: Catalog) -> Rows:
    with catalog.reading() as connection:
        return {
            (kind, row["id"]): image_of(kind, row)
            for kind, table in TABLES.items()
            for row in connection.execute(select(table)).mappings()
        }


def rows_in_log(database: Database) -> Rows:
    view = database.view_now()
    try:
        return {
            (kind, id_of(row.key)): decode(row.key, row.value)
            for kind in TABLES
            for row in view.prefix(CATALOG, kind.value)
        }
    finally:
        view.close()


def check(catalog: Catalog, database: Database) -> None:
    rows = rows_in_sql(catalog)
    assert rows == rows_in_log(database)
    view = database.view_now()
    state = read_state(view)
    view.close()
    assert {kind: state.last.count(kind) for kind in TABLES} == {
        kind: sum(each is kind for each, _ in rows) for kind in TABLES
    }
    assert all(id_ <= state.last.last_id for _, id_ in rows)
    with catalog.reading() as connection:
        assert read_mark(connection) == (database.log.manifest.state.timeline.id, state.epoch)
    assert catalog.applied == state.epoch <= database.log.durable


def home(catalog: Catalog) -> VhostRow:
    return catalog.change(lambda writer: vhosts.declare(writer, "/"))


def declared(catalog: Catalog, vhost_id: VhostId, name: str, **properties: Any) -> QueueRow:
    return catalog.change(lambda writer: queues.declare(writer, vhost_id, name, **properties))


def bound(catalog: Catalog, exchange: str, queue: QueueRow, key: str = "", **more: Any) -> bindings.BindingRow:
    def work(writer: Any) -> bindings.BindingRow:
        source = exchanges.get(writer.connection, queue.vhost_id, exchange)
        assert source is not None
        return bindings.bind(writer, source, queue, key, **more)

    return catalog.change(work)


def names(catalog: Catalog) -> list[str]:
    with catalog.reading() as connection:
        return [queue.name for queue in queues.every(connection)]


def copy_of(stage: CatalogStage) -> CatalogStage:
    """Another machine with the same disks."""
    other = CatalogStage()
    other.disk, other.log_settings, other.reflection = (
        stage.disk.crash(ALL, stage.rng),
        stage.log_settings,
        replace(stage.reflection),
    )
    assert stage.store is not None
    other.store = stage.store.reopened(stage.store.applied.timeline)
    return other
