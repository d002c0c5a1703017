"""Every SQL database that may stand behind the catalog. PostgreSQL is started by the first test that uses it; every
test gets a database of its own.

A test that takes `places`, `place` or `stage` runs over each kind; what is on `stage` is checked when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.catalog_stage import CatalogStage, check
from tests.catalog.postgres_server import PostgresServer, postgres_server
from tests.catalog.sql_locations import ForgetfulPlaces, PostgresPlaces, SqlitePlaces, SqlPlaces
from warren.catalog.sql import SqlPlace


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["forgetful", "sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> SqlPlaces:
    if request.param == "forgetful":
        return ForgetfulPlaces()
    return SqlitePlaces(tmp_path) if request.param == "sqlite" else PostgresPlaces(request.getfixturevalue("postgres"))


@pytest.fixture
def place(places: SqlPlaces) -> SqlPlace:
    return places.new()


@pytest.fixture
def stage(place: SqlPlace) -> Iterator[CatalogStage]:
    new_stage = CatalogStage(place)
    new_stage.begin()
    yield new_stage
    check(new_stage.catalog, new_stage.database)
    new_stage.stop()
