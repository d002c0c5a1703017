"""How an SQL database becomes what this version reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import inspect, select, text

from tests.catalog.sql_locations import SqlPlaces
from warren.base.errors import DiskFailure, Refused
from warren.catalog.schema import METADATA, STEPS, migrate, schema_version
from warren.catalog.sql import SqlDatabase, SqlPlace

NEXT = ("ALTER TABLE queues ADD COLUMN colour TEXT", "UPDATE queues SET colour = 'red'")


@pytest.fixture
def sql(place: SqlPlace) -> Iterator[SqlDatabase]:
    opened = place.open()
    yield opened
    opened.close()


def version(sql: SqlDatabase) -> int:
    with sql.reading() as connection:
        return int(connection.execute(select(schema_version.c.version)).scalar_one())


def description_of(connection: Any) -> dict[str, Any]:
    """What a database says of its tables; names that the database chose are left out."""
    found = inspect(connection)
    return {
        table: {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)],
            "primary": found.get_pk_constraint(table)["constrained_columns"],
            "foreign": sorted(
                (f["constrained_columns"], f["referred_table"], f["referred_columns"], f["options"].get("ondelete", ""))
                for f in found.get_foreign_keys(table)
            ),
            "unique": sorted(u["column_names"] for u in found.get_unique_constraints(table)),
            "indexes": sorted((i["name"] or "", i["column_names"]) for i in found.get_indexes(table)),
            "checks": sorted(c["sqltext"] for c in found.get_check_constraints(table)),
        }
        for table in sorted(found.get_table_names())
    }


def test_the_steps_make_the_tables_that_queries_expect(sql: SqlDatabase, places: SqlPlaces) -> None:
    migrate(sql)
    other = places.new().open()
    with sql.reading() as opened, other.reading() as expected:
        METADATA.create_all(expected)
        assert description_of(opened) == description_of(expected)
    other.close()


def test_a_database_of_this_version_is_not_changed(sql: SqlDatabase) -> None:
    assert migrate(sql) == 0
    assert version(sql) == len(STEPS) == 3
    assert migrate(sql) == len(STEPS)


def test_an_older_database_is_brought_up_step_by_step(sql: SqlDatabase) -> None:
    migrate(sql)
    assert migrate(sql, (*STEPS, NEXT)) == len(STEPS)
    assert version(sql) == len(STEPS) + 1
    with sql.reading() as connection:
        assert "colour" in {column["name"] for column in inspect(connection).get_columns("queues")}


def test_a_step_that_fails_leaves_the_version_before_it_whole(sql: SqlDatabase) -> None:
    with pytest.raises(DiskFailure, match=r"no such table|does not exist"):
        migrate(sql, (*STEPS, (NEXT[0], "UPDATE nowhere SET x = 1")))
    assert version(sql) == len(STEPS)
    with sql.reading() as connection:
        assert "colour" not in {column["name"] for column in inspect(connection).get_columns("queues")}
        connection.execute(text("SELECT * FROM bindings"))


def test_a_newer_database_is_refused_by_name(sql: SqlDatabase) -> None:
    migrate(sql, (*STEPS, NEXT))
    with pytest.raises(Refused, match="is of version 4, this version of warren reads up to 3") as caught:
        migrate(sql)
    assert "filled from the log" in caught.value.hint
    assert version(sql) == len(STEPS) + 1
