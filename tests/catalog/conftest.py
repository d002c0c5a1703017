"""Every SQL database that may stand behind the catalog. PostgreSQL is started when the first test asks for it; every
test gets a database of its own.

`place` is one after the other; a test that takes `stage` runs over each of them, and is checked when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.catalog_stage import CatalogStage, check
from tests.catalog.postgres_server import PostgresServer, postgres_server
from warren.catalog.database import SqlitePlace
from warren.catalog.sql_database import SqlPlace
from warren.files.local import LocalFiles
from warren.testing.forgetful_catalog import ForgetfulCatalog
from warren.testing.seeded_chance import SeededChance


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["forgetful", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SqlPlace:
    if request.param == "forgetful":
        return ForgetfulCatalog()
    if request.param == "sqlite":
        return SqlitePlace(LocalFiles(), SeededChance(1), str(tmp_path), str(tmp_path / "catalog.sqlite"))
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.place(server.make_database())


@pytest.fixture
def stage(place: SqlPlace) -> Iterator[CatalogStage]:
    made = CatalogStage(place)
    made.begin()
    yield made
    check(made.catalog, made.database)
    made.stop()
