"""The SQL database that forgets: what it loses, and what it keeps."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tools.simulator.volatile_catalog import VolatileCatalog
from warren.base.errors import OutOfRoom
from warren.catalog.sql import SqlDatabase
from warren.testing.fakes import SeededRandom


def commit(sql: SqlDatabase, number: int) -> None:
    with sql.transaction() as connection:
        if number == 1:
            connection.execute(text("CREATE TABLE held (number INTEGER)"))
        connection.execute(text(f"INSERT INTO held VALUES ({number})"))


def numbers_in(place: VolatileCatalog) -> list[int]:
    sql = place.open()
    try:
        with sql.reading() as connection:
            if connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar_one() == 0:
                return []
            return list(connection.execute(text("SELECT number FROM held ORDER BY number")).scalars())
    finally:
        sql.close()


def three_transactions() -> VolatileCatalog:
    place = VolatileCatalog()
    sql = place.open()
    for number in (1, 2, 3):
        commit(sql, number)
    sql.begin()
    sql.connection.execute(text("INSERT INTO held VALUES (4)"))  # never committed
    sql.close()
    return place


def test_a_crash_leaves_any_whole_transaction_or_none() -> None:
    place = three_transactions()
    found = [numbers_in(place.crash(SeededRandom(seed))) for seed in range(40)]
    assert {len(each) for each in found} == {0, 1, 2, 3}
    assert all(each == list(range(1, len(each) + 1)) for each in found)
    assert numbers_in(place) == [1, 2, 3], "the old one is left as it is"


@pytest.mark.parametrize(("lost", "left"), [(0, [1, 2, 3]), (1, [1, 2]), (3, []), (9, [])])
def test_it_loses_the_given_number_of_transactions(lost: int, left: list[int]) -> None:
    place = three_transactions()
    place.lose(lost)
    assert numbers_in(place) == left


def test_what_is_set_aside_is_gone() -> None:
    place = three_transactions()
    place.set_aside()
    assert numbers_in(place) == []


def test_a_broken_one_commits_nothing() -> None:
    place = three_transactions()
    sql = place.open()
    place.is_broken = True
    with pytest.raises(OutOfRoom):
        commit(sql, 4)
    sql.close()
    assert numbers_in(place) == [1, 2, 3]
