"""Opening the SQL database of the catalog: which one, and how.

    connect = ""                              <directory>/catalog/<catalog>.sqlite
    connect = "sqlite:////var/lib/x.db"       that file
    connect = "postgresql://…"                comes later, by the same code; refused by name until then

SQLite runs with foreign keys, a write-ahead log of its own, and `synchronous = NORMAL`: it syncs at its checkpoints
only, so a power cut may take its newest transactions. That costs nothing here: whatever it forgets is in our log.

SQLite writes its files by itself, past the one door to the disk. So it is used in this room only, and holds nothing
that cannot be made again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import StaticPool

from warren.base.chance import Chance
from warren.base.errors import Misuse, Refused
from warren.catalog.settings import CatalogSettings
from warren.catalog.sql_database import SqlDatabase
from warren.files.protocol import Files, join
from warren.snapshot.layout import SET_ASIDE

DIRECTORY = "catalog"
_BUSY_MS = 5000
_PRAGMAS = ("foreign_keys = ON", "journal_mode = WAL", "synchronous = NORMAL", f"busy_timeout = {_BUSY_MS}")
_BESIDE = ("", "-wal", "-shm")  # SQLite's files


class SqlitePlace:
    """A file of SQLite. Is an `SqlPlace`."""

    def __init__(self, files: Files, chance: Chance, directory: str, path: str) -> None:
        self._files = files
        self._chance = chance
        self._directory = directory
        self.path = path

    @classmethod
    def of(cls, files: Files, chance: Chance, directory: str, settings: CatalogSettings) -> SqlitePlace:
        """The place that the settings name. `directory` is the database's."""
        url = _url(settings.connect)
        if url.get_backend_name() != "sqlite":
            raise Refused(
                f"the catalog cannot be in {url.render_as_string(hide_password=True)} yet: only SQLite is supported",
                "leave `connect` empty, or name a file: sqlite:////var/lib/warren/catalog.sqlite",
            )
        if url.database:
            return cls(files, chance, directory, url.database)
        return cls(files, chance, directory, join(directory, DIRECTORY, f"{_file_name(settings.catalog)}.sqlite"))

    def open(self) -> SqlDatabase:
        if self.path.startswith(join(self._directory, DIRECTORY)):
            self._files.make_directories(join(self._directory, DIRECTORY))
        url = URL.create("sqlite", database=self.path)
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        prepare(engine, _PRAGMAS)
        try:
            return SqlDatabase(engine, self.path)
        except BaseException:
            engine.dispose()
            raise

    def set_aside(self) -> None:
        target = join(self._directory, SET_ASIDE)
        self._files.make_directories(target)
        name = f"catalog-{self._chance.id64():016x}.sqlite"
        for end in _BESIDE:
            if self._files.exists(self.path + end):
                self._files.rename(self.path + end, join(target, name + end))


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


def _url(connect: str) -> URL:
    if not connect:
        return URL.create("sqlite")
    try:
        return make_url(connect)
    except ArgumentError as error:
        raise Misuse("the connect string of the catalog is none", "like sqlite:////var/lib/x.db") from error


def _file_name(catalog: str) -> str:
    if not catalog or "/" in catalog or "\0" in catalog or catalog.startswith("."):
        raise Misuse(f"a catalog cannot be called {catalog!r}", "use letters, digits, - and _")
    return catalog
