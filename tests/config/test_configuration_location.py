"""Where a broker keeps things, as the command line says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.simulator.volatile_store import VolatileStore
from warren.base.errors import Misuse
from warren.catalog.catalog import Catalog
from warren.catalog.database import SqlitePlace
from warren.catalog.postgres import PostgresPlace
from warren.catalog.settings import CatalogSettings
from warren.config.configuration import CatalogLocation, catalog_settings, resolve_location
from warren.config.data_directory import default_data_directory
from warren.files.environment import Environment
from warren.log.settings import LogSettings
from warren.snapshot.database import Database
from warren.snapshot.reflection import ReflectionSettings


def where_sql_is(places: CatalogLocation) -> str:
    return places.sql(Environment.real()).where


def test_the_connect_string_selects_the_sql_database() -> None:
    """OP-01: `--connect`."""
    assert where_sql_is(resolve_location("/data")) == "/data/catalog/warren.sqlite"
    assert where_sql_is(resolve_location("/data", connect="sqlite:////x/y.db")) == "/x/y.db"
    postgres = resolve_location("/data", connect="postgresql://ann:secret@host/shop")
    assert isinstance(postgres.sql(Environment.real()), PostgresPlace)
    assert where_sql_is(postgres) == "postgresql://ann@host/shop"


def test_the_catalog_is_named_within_its_database_system_or_by_a_connect_string() -> None:
    """OP-02: `--catalog`."""
    assert where_sql_is(resolve_location("/data", catalog="shop")) == "/data/catalog/shop.sqlite"
    there = {"connect": "postgresql://ann@host"}
    assert where_sql_is(resolve_location("/data", **there)) == "postgresql://ann@host/warren"  # type: ignore[arg-type]
    assert where_sql_is(resolve_location("/data", catalog="shop", **there)) == "postgresql://ann@host/shop"  # type: ignore[arg-type]
    assert catalog_settings("", "postgresql://h/x") == CatalogSettings("postgresql://h/x")
    assert catalog_settings("", "sqlite:////x.db") == CatalogSettings("sqlite:////x.db")
    with pytest.raises(Misuse, match="both name the SQL") as caught:
        catalog_settings("postgresql://ann:secret@host", "postgresql://ann:secret@host/x")
    assert "secret" not in str(caught.value)


def test_the_store_is_in_the_data_directory_unless_it_is_set_otherwise() -> None:
    """OP-03: `--store-dir`, by default the broker's `--data-dir`."""
    assert resolve_location("/data").directory == "/data"
    assert resolve_location("/data", "/store").directory == "/store"
    assert where_sql_is(resolve_location("/data", "/store")) == "/store/catalog/warren.sqlite"


def test_without_a_data_directory_the_store_needs_its_own() -> None:
    """OP-04: a start-up error otherwise, whatever the environment would offer."""
    assert resolve_location(store_dir="/store", no_data_dir=True).directory == "/store"
    with pytest.raises(Misuse, match="no place for the store") as caught:
        resolve_location(no_data_dir=True, environment={"WARREN_DATA_DIR": "/x", "HOME": "/home/ann"})
    assert "--store-dir" in caught.value.hint
    with pytest.raises(Misuse, match="contradict"):
        resolve_location("/data", no_data_dir=True)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"WARREN_DATA_DIR": "/w", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/w"),
        ({"WARREN_DATA_DIR": "", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/warren"),
        ({"HOME": "/h"}, "/h/.local/share/warren"),
    ],
)
def test_without_an_option_the_environment_counts(environment: dict[str, str], expected: str) -> None:
    assert default_data_directory(environment) == expected
    assert resolve_location(environment=environment).directory == expected
    assert resolve_location("/given", environment=environment).directory == "/given"


def test_where_not_even_a_home_is_known_a_directory_must_be_given() -> None:
    with pytest.raises(Misuse, match="no directory was given") as caught:
        resolve_location(environment={})
    assert "--data-dir" in caught.value.hint


@pytest.mark.parametrize(
    "connect",
    [
        "postgresql://ann:secret@host/shop",
        "postgresql://ann@host/shop?password=secret",
        "postgresql://ann:secret@host:secret/shop",
        "mysql://ann:secret@host/shop",
        "secret:ann:://secret@/",
    ],
)
def test_no_password_is_ever_printed(connect: str) -> None:
    try:
        places = resolve_location("/data", catalog=connect)
        texts = [
            repr(places),
            str(places),
            repr(places.catalog),
            where_sql_is(places),
            repr(places.sql(Environment.real())),
        ]
    except Misuse as error:
        texts = [repr(error), str(error), error.what, error.hint, repr(error.__cause__)]
    assert "secret" not in " ".join(texts)


def test_what_is_forced_is_forced_by_name_only() -> None:
    """Never unless it was said."""
    assert not resolve_location("/data", catalog="shop").catalog.is_forced
    assert resolve_location("/data", is_forced=True).catalog.is_forced


def test_a_catalog_is_opened_where_the_places_say(tmp_path: Path) -> None:
    """OP-02, OP-03: the log in one directory, SQL in another."""
    environment = Environment.real()
    places = resolve_location(str(tmp_path / "data"), str(tmp_path / "store"), catalog=f"sqlite:///{tmp_path}/x.db")
    place = places.sql(environment)
    assert isinstance(place, SqlitePlace)
    log, quick = LogSettings(use_worker_process=False), ReflectionSettings(bulk_bytes=0)
    database = Database.open(places.directory, lambda _, line: VolatileStore(line), log, quick, environment)
    Catalog.open(database, place, environment.threads).close()
    database.close()
    assert (tmp_path / "x.db").is_file()
    assert (tmp_path / "store" / "log").is_dir()
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "store" / "catalog").exists()
