"""SQL databases that can be copied: so a test has SQL as it was a while ago, whatever kind it is of."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Protocol

from tests.catalog.postgres_server import PostgresServer
from tools.simulator.volatile_catalog import VolatileCatalog
from warren.catalog.database import SqlitePlace
from warren.catalog.sql import SqlPlace
from warren.files.local import LocalFiles
from warren.testing.fakes import SeededRandom


class SqlPlaces(Protocol):
    def new(self) -> SqlPlace: ...

    def copy(self, place: SqlPlace) -> SqlPlace:
        """A copy of the present database, as another place; it must not be open."""
        ...

    def aside(self, place: SqlPlace) -> list[SqlPlace]:
        """What was set aside there, as places that can be opened."""
        ...


class ForgetfulPlaces:
    def new(self) -> SqlPlace:
        return _Remembering()

    def copy(self, place: SqlPlace) -> SqlPlace:
        assert isinstance(place, VolatileCatalog)
        return _Remembering(list(place.states))

    def aside(self, place: SqlPlace) -> list[SqlPlace]:
        assert isinstance(place, _Remembering)
        return [VolatileCatalog(states) for states in place.aside]


class _Remembering(VolatileCatalog):
    def __init__(self, states: list[bytes] | None = None) -> None:
        super().__init__(states)
        self.aside: list[list[bytes]] = []

    def set_aside(self) -> None:
        self.aside.append(self.states)
        super().set_aside()


class SqlitePlaces:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count(1)

    def new(self) -> SqlPlace:
        own = self._directory / f"{next(self._numbers)}"
        own.mkdir()
        return SqlitePlace(LocalFiles(), SeededRandom(1), str(own), str(own / "catalog.sqlite"))

    def copy(self, place: SqlPlace) -> SqlPlace:
        other = self.new()
        shutil.copy(place.where, other.where)
        return other

    def aside(self, place: SqlPlace) -> list[SqlPlace]:
        found = sorted(Path(place.where).parent.glob("set-aside/*.sqlite"))
        return [SqlitePlace(LocalFiles(), SeededRandom(1), str(self._directory), str(path)) for path in found]


class PostgresPlaces:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def new(self) -> SqlPlace:
        return self._server.place(self._server.make_database())

    def copy(self, place: SqlPlace) -> SqlPlace:
        return self._server.place(self._server.copy_of(_database(place)))

    def aside(self, place: SqlPlace) -> list[SqlPlace]:
        query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, 'warren_aside_') ORDER BY nspname"
        found = self._server.fetch_all(query, _database(place))
        return [self._as_place(place, name) for (name,) in found]

    def _as_place(self, place: SqlPlace, schema: str) -> SqlPlace:
        """A database in which that schema is the one in use."""
        other = self._server.copy_of(_database(place))
        self._server.fetch_all(f"DROP SCHEMA warren CASCADE; ALTER SCHEMA {schema} RENAME TO warren", other)
        return self._server.place(other)


def _database(place: SqlPlace) -> str:
    return place.where.rpartition("/")[2]
