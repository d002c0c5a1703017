"""Opening the SQL database of the catalog: which one, and how.

    connect = ""                              <directory>/catalog/<catalog>.sqlite
    connect = "sqlite:////var/lib/x.db"       that file
    connect = "postgresql://host"             the database <catalog> there                       (postgres)
    connect = "postgresql://host/shop"        the database shop

SQLite runs with foreign keys, a write-ahead log of its own, and `synchronous = NORMAL`: it syncs at its checkpoints
only, so a power cut may take its newest transactions. That costs nothing here: whatever it forgets is in our log.

SQLite writes its files by itself, past the one door to the disk. So it is used in this room only, and holds nothing
that cannot be made again.
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
_BESIDE = ("", "-wal", "-shm")  # SQLite's files


def place_of(files: Files, rng: Random, directory: str, settings: CatalogSettings) -> SqlPlace:
    """The place that the settings name. `directory` is the database's. Nothing is opened yet."""
    url = parsed(settings.connect)
    if url.drivername == POSTGRESQL:
        return PostgresPlace(url if url.database else url.set(database=_checked(settings.catalog)), rng)
    path = url.database or join(directory, DIRECTORY, f"{_checked(settings.catalog)}.sqlite")
    return SqlitePlace(files, rng, directory, path)


class SqlitePlace:
    """A file of SQLite. Is an `SqlPlace`."""

    def __init__(self, files: Files, rng: Random, directory: str, path: str) -> None:
        self._files = files
        self._rng = rng
        self._directory = directory
        self.path = self.where = path

    def open(self) -> SqlDatabase:
        if self.path.startswith(join(self._directory, DIRECTORY)):
            self._files.make_directories(join(self._directory, DIRECTORY))
        for end in _BESIDE:
            restrict(self.path + end)
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
        for end in _BESIDE:
            if self._files.exists(self.path + end):
                self._files.rename(self.path + end, join(target, name + end))


def _check_pages(sql: SqlDatabase) -> None:
    """Trees and indexes are whole, and agree; about 1 µs a row. What stands in the rows is compared with the log."""
    with sql.reading() as connection:
        found = str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one())
    if found != "ok":
        what = f"the SQL catalog is damaged: {' '.join(found.split())}"
        raise SqlDamage(what, sql.where, 0, "it is made again from the log")


def prepare(engine: Engine, pragmas: tuple[str, ...]) -> None:
    """Let transactions begin when we say so, not when the driver thinks so: else a savepoint is no savepoint."""

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
