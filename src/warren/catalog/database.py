"""SQL location: which SQL database holds the catalog, and how SQLite is opened.

    connect = ""                              <directory>/catalog/<catalog>.sqlite
    connect = "sqlite:////var/lib/x.db"       that file
    connect = "postgresql://host"             the database <catalog> there                       (postgres)
    connect = "postgresql://host/shop"        the database shop

SQLite runs with foreign keys, its own write-ahead log, and `synchronous = NORMAL`: it syncs only at its checkpoints, so
a power cut may take its newest transactions. That costs nothing here: the log has them.

SQLite writes its files itself, without the file seam (`files/protocol`). So only this package uses it, for data that
can be made again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import StaticPool

from warren.base.environment import Random
from warren.base.errors import Misuse
from warren.catalog.postgres import PostgresPlace
from warren.catalog.settings import CatalogSettings
from warren.catalog.sql import POSTGRESQL, SQLITE, SqlDamage, SqlDatabase, SqlPlace, parsed
from warren.files.local import make_private_file, restrict
from warren.files.protocol import Files, join
from warren.snapshot.database import SET_ASIDE

DIRECTORY = "catalog"
_BUSY_MS = 5000
_PRAGMAS = ("foreign_keys = ON", "journal_mode = WAL", "synchronous = NORMAL", f"busy_timeout = {_BUSY_MS}")
_SUFFIXES = ("", "-wal", "-shm")  # of SQLite's files
_IN_MEMORY = ":memory:"  # SQLite's name for a database without files


def place_of(files: Files, rng: Random, directory: str, settings: CatalogSettings) -> SqlPlace:
    """The location that the settings name; nothing is opened yet. `directory`: of the database."""
    url = parsed(settings.connect)
    if url.drivername == POSTGRESQL:
        return PostgresPlace(url if url.database else url.set(database=_checked(settings.catalog)), rng)
    path = url.database or join(directory, DIRECTORY, f"{_checked(settings.catalog)}.sqlite")
    return SqlitePlace(files, rng, directory, path)


class SqlitePlace:
    """An SQLite file. Implements `SqlPlace`."""

    def __init__(self, files: Files, rng: Random, directory: str, path: str) -> None:
        self._files = files
        self._rng = rng
        self._directory = directory
        self.path = self.where = path

    def open(self) -> SqlDatabase:
        if self.path.startswith(join(self._directory, DIRECTORY)):
            self._files.make_directories(join(self._directory, DIRECTORY))
        if self.path != _IN_MEMORY:
            for suffix in _SUFFIXES:
                restrict(self.path + suffix)
            make_private_file(self.path)  # SQLite gives the files beside it the same mode
        url = URL.create(SQLITE, database=self.path)
        arguments = {"check_same_thread": False}
        engine = create_engine(url, poolclass=StaticPool, connect_args=arguments, hide_parameters=True)
        prepare(engine, _PRAGMAS)
        try:
            sql = SqlDatabase(engine, self.path)
        except BaseException:
            engine.dispose()
            raise
        try:
            _check_pages(sql)
        except BaseException:
            sql.close()
            raise
        return sql

    def set_aside(self) -> None:
        target = join(self._directory, SET_ASIDE)
        self._files.make_directories(target)
        name = f"catalog-{self._rng.id64():016x}.sqlite"
        for suffix in _SUFFIXES:
            if self._files.exists(self.path + suffix):
                self._files.rename(self.path + suffix, join(target, name + suffix))


def _check_pages(sql: SqlDatabase) -> None:
    """Check trees and indexes; about 1 µs a row. `rebuild` compares the contents of rows with the log."""
    with sql.reading() as connection:
        report = str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one())
    if report != "ok":
        what = f"the SQL catalog is damaged: {' '.join(report.split())}"
        raise SqlDamage(what, sql.where, 0, "it is made again from the log")


def prepare(engine: Engine, pragmas: tuple[str, ...]) -> None:
    """Begin transactions explicitly instead of by the driver; otherwise savepoints do not work."""

    @event.listens_for(engine, "connect")
    def connected(raw: Any, record: object) -> None:
        raw.isolation_level = None
        cursor = raw.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def _checked(catalog: str) -> str:
    if not catalog or "/" in catalog or "\0" in catalog or catalog.startswith("."):
        raise Misuse(f"a catalog cannot be called {catalog!r}", "use letters, digits, - and _")
    return catalog
