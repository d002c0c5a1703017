"""Which SQL database it is, how it is opened, and what becomes of one that cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from tests.catalog.catalog_stage import CatalogStage, check, declared, home, names
from warren.base.errors import DiskFailure, Locked, Misuse, OutOfRoom
from warren.catalog import queues
from warren.catalog.database import SqlitePlace, place_of
from warren.catalog.postgres import PostgresPlace
from warren.catalog.settings import CatalogSettings
from warren.catalog.sql import SqlDamage, SqlDatabase, SqlPlace, sql_error
from warren.files.local import LocalFiles
from warren.testing.fakes import SeededRandom


def named(directory: Path, connect: str = "", catalog: str = "warren") -> SqlPlace:
    return place_of(LocalFiles(), SeededRandom(1), str(directory), CatalogSettings(connect, catalog))


def sqlite_at(directory: Path, connect: str = "", catalog: str = "warren") -> SqlitePlace:
    place = named(directory, connect, catalog)
    assert isinstance(place, SqlitePlace)
    return place


def scalar(sql: SqlDatabase, what: str) -> object:
    with sql.reading() as connection:
        return connection.execute(text(what)).scalar_one()


def test_the_catalog_is_a_file_in_the_directory_unless_settings_name_another(tmp_path: Path) -> None:
    """OP-01, OP-02: connect string and name of the SQL database."""
    assert sqlite_at(tmp_path).path == str(tmp_path / "catalog" / "warren.sqlite")
    assert sqlite_at(tmp_path, catalog="shop").path == str(tmp_path / "catalog" / "shop.sqlite")
    other = tmp_path / "elsewhere.db"
    assert sqlite_at(tmp_path, f"sqlite:///{other}", "shop").path == str(other)
    for place in (sqlite_at(tmp_path, catalog="shop"), sqlite_at(tmp_path, f"sqlite:///{other}")):
        sql = place.open()
        with sql.transaction() as connection:
            connection.execute(text("CREATE TABLE x (y INTEGER)"))
        sql.close()
        assert Path(place.path).is_file()


@pytest.mark.parametrize(
    ("connect", "where"),
    [
        ("postgresql://ann:secret@host", "postgresql://ann@host/shop"),
        ("postgres://ann:secret@host:7/x", "postgresql://ann@host:7/x"),
        ("postgresql+psycopg:///?host=/run/pg&user=ann&password=secret", "postgresql:///run/pg/shop"),
    ],
)
def test_a_connect_string_may_name_postgresql_and_the_catalog_its_database(
    tmp_path: Path, connect: str, where: str
) -> None:
    """OP-01, OP-02: and messages about it do not contain the password."""
    place = named(tmp_path, connect, "shop")
    assert isinstance(place, PostgresPlace)
    assert place.where == where


@pytest.mark.parametrize("name", ["", "../x", ".x", "a\0b"])
def test_a_name_that_leads_elsewhere_is_misuse(tmp_path: Path, name: str) -> None:
    """OP-02"""
    with pytest.raises(Misuse):
        named(tmp_path, catalog=name)
    with pytest.raises(Misuse):
        named(tmp_path, "postgresql://host", catalog=name)


def test_sqlite_checks_foreign_keys_and_syncs_at_its_checkpoints_only(tmp_path: Path) -> None:
    sql = sqlite_at(tmp_path).open()
    assert scalar(sql, "PRAGMA foreign_keys") == 1
    assert scalar(sql, "PRAGMA journal_mode") == "wal"
    assert scalar(sql, "PRAGMA synchronous") == 1
    sql.close()


def test_a_transaction_begins_explicitly(tmp_path: Path) -> None:
    """Tables made in it go with it, and a savepoint is one."""
    sql = sqlite_at(tmp_path).open()
    sql.begin()
    sql.connection.execute(text("CREATE TABLE x (y INTEGER)"))
    savepoint = sql.connection.begin_nested()
    sql.connection.execute(text("INSERT INTO x VALUES (1)"))
    savepoint.rollback()
    assert sql.connection.execute(text("SELECT count(*) FROM x")).scalar_one() == 0
    sql.rollback()
    assert scalar(sql, "SELECT count(*) FROM sqlite_master") == 0
    sql.close()


@pytest.mark.parametrize("rubbish", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_set_aside_and_made_again(tmp_path: Path, rubbish: bytes) -> None:
    stage = CatalogStage(sqlite_at(tmp_path))
    here = home(stage.begin())
    declared(stage.catalog, here.id, "orders")
    stage.stop()
    (tmp_path / "catalog" / "warren.sqlite").write_bytes(rubbish)
    catalog = stage.begin()
    assert names(catalog) == ["orders"]
    check(catalog, stage.database)
    assert "set aside and made again" in catalog.problems[0]
    [aside] = (tmp_path / "set-aside").glob("catalog-*.sqlite")
    assert aside.read_bytes() == rubbish
    stage.stop()


@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize("which", ["the first", "the last", "all of them"])
def test_a_flipped_bit_in_the_name_of_a_queue_is_found_at_the_next_start(tmp_path: Path, which: str, bit: int) -> None:
    """The name stands in the row and in an index: either differs from the other, or both differ from the log."""
    stage = CatalogStage(sqlite_at(tmp_path))
    here = home(stage.begin())
    declared(stage.catalog, here.id, "orders-of-today")
    stage.stop()
    path = tmp_path / "catalog" / "warren.sqlite"
    raw = bytearray(path.read_bytes())
    found = [match.start() for match in re.finditer(b"orders-of-today", raw)]
    assert len(found) == 2
    for at in {"the first": found[:1], "the last": found[1:]}.get(which, found):
        raw[at] ^= bit
    path.write_bytes(raw)
    catalog = stage.begin()
    assert names(catalog) == ["orders-of-today"]
    with catalog.reading() as connection:
        assert queues.get(connection, here.id, "orders-of-today") is not None
    check(catalog, stage.database)
    assert "set aside and made again: the SQL catalog is damaged" in catalog.problems[0]
    assert len(list((tmp_path / "set-aside").glob("catalog-*.sqlite"))) == 1
    stage.stop()
    assert not stage.begin().problems
    stage.stop()


def test_what_lies_beside_a_file_is_set_aside_with_it(tmp_path: Path) -> None:
    """A log of SQLite's that stays would be played into the new file."""
    place = sqlite_at(tmp_path)
    place.open().close()
    for end in ("", "-wal", "-shm"):
        Path(place.path + end).write_text(end)
    place.set_aside()
    assert list((tmp_path / "catalog").iterdir()) == []
    assert sorted(path.read_text() for path in (tmp_path / "set-aside").iterdir()) == ["", "-shm", "-wal"]
    place.set_aside()  # there is nothing, and that is fine


def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    stage = CatalogStage(sqlite_at(tmp_path))
    declared(stage.begin(), home(stage.catalog).id, "orders")
    stage.stop()
    (tmp_path / "catalog" / "warren.sqlite").unlink()
    assert names(stage.begin()) == ["orders"]
    assert not stage.catalog.problems
    stage.stop()


@pytest.mark.parametrize(
    ("message", "family"),
    [
        ("database or disk is full", OutOfRoom),
        ("disk I/O error", DiskFailure),
        ("database is locked", Locked),
        ("database disk image is malformed", SqlDamage),
    ],
)
def test_errors_of_sql_become_errors_of_warren(message: str, family: type[Exception]) -> None:
    with pytest.raises(family, match=message), sql_error("here"):
        raise OperationalError("x", None, Exception(message))


def test_an_integrity_error_is_passed_on() -> None:
    with pytest.raises(IntegrityError), sql_error("here"):
        raise IntegrityError("x", None, Exception("UNIQUE"))
