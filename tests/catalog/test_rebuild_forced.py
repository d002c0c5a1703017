"""What the log does not cover is refused; with --force the log's rows are used, and nothing is thrown away."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from tests.catalog.catalog_stage import CatalogStage, bound, check, declared, home, names, rows_in_sql
from tests.catalog.sql_locations import SqlPlaces
from warren.base.threads import SystemThreads
from warren.catalog import permissions, users
from warren.catalog.catalog import Catalog
from warren.catalog.queues import QueueRow
from warren.catalog.rebuild import ForeignCatalog, MissingRows, read_mark
from warren.catalog.rows import CATALOG, LAST_CHANGE, LastChange, RowKind, encode, key_of
from warren.catalog.schema import queues as queue_rows
from warren.catalog.sql import SqlPlace
from warren.snapshot.database import SET_ASIDE


def forced(stage: CatalogStage) -> Catalog:
    stage.database = stage.open()
    stage.catalog = Catalog.open(stage.database, stage.place, SystemThreads(), is_forced=True)
    return stage.catalog


def queue_names_in(place: SqlPlace) -> list[str]:
    sql = place.open()
    try:
        with sql.reading() as connection:
            assert read_mark(connection) is not None
            return sorted(connection.execute(select(queue_rows.c.name)).scalars())
    finally:
        sql.close()


def test_sql_of_another_log_is_set_aside_when_it_is_forced(places: SqlPlaces) -> None:
    """C-21: it is made of this log's rows, and what was there is kept."""
    stage, foreign = CatalogStage(places.new(), seed=1), CatalogStage(places.new(), seed=2)
    declared(foreign.begin(), home(foreign.catalog).id, "theirs")
    foreign.stop()
    declared(stage.begin(), home(stage.catalog).id, "ours")
    seen = rows_in_sql(stage.catalog)
    stage.stop()
    stage.place = foreign.place
    with pytest.raises(ForeignCatalog, match="never was on"):
        stage.begin()
    stage.database.close()
    assert rows_in_sql(forced(stage)) == seen
    check(stage.catalog, stage.database)
    assert "was set aside and made again" in stage.catalog.problems[0]
    stage.stop()
    [aside] = places.aside(stage.place)
    assert queue_names_in(aside) == ["theirs"]
    assert not stage.begin().problems, "it need not be forced again"
    stage.stop()


def lose(stage: CatalogStage, *keys: bytes) -> None:
    """Take rows out of the log behind its catalog's back, as damage does; everything is stopped afterwards."""
    stage.catalog.close()
    session = stage.database.begin()
    for key in keys:
        session.remove(CATALOG, key)
    session.commit()
    stage.database.close()


def crowded(stage: CatalogStage) -> list[QueueRow]:
    here = home(stage.begin())
    declared_rows = [declared(stage.catalog, here.id, name) for name in ("lost", "kept")]
    for queue in declared_rows:
        bound(stage.catalog, "amq.topic", queue, queue.name)
    ann = stage.catalog.change(lambda writer: users.put(writer, "ann", "hash", "scrypt"))
    stage.catalog.change(lambda writer: permissions.put(writer, ann.id, here.id, ".*", ".*", ".*"))
    return declared_rows


def test_a_log_that_lacks_a_queue_continues_without_it_when_forced(places: SqlPlaces) -> None:
    """C-21: its bindings go too, into a file first; SQL as it was, with the queue, is set aside."""
    stage = CatalogStage(places.new())
    lost = crowded(stage)[0]
    stage.stop()
    earlier = places.copy(stage.place)
    declared(stage.begin(), home(stage.catalog).id, "later")
    lose(stage, key_of(RowKind.QUEUE, lost.id))
    stage.place = earlier
    with pytest.raises(MissingRows, match=r"the log holds 2 rows of kind queue, .* counted 3") as caught:
        stage.begin()
    assert "--force" in caught.value.hint
    stage.database.close()
    catalog = forced(stage)
    assert names(catalog) == ["kept", "later"]
    check(catalog, stage.database)
    stage.stop()
    [aside] = places.aside(stage.place)
    assert queue_names_in(aside) == ["kept", "lost"]


def test_rows_that_refer_to_nothing_are_saved_in_a_file(place: SqlPlace) -> None:
    """C-21"""
    stage = CatalogStage(place)
    lost, _ = crowded(stage)
    lose(stage, key_of(RowKind.QUEUE, lost.id))
    stage.place.set_aside()
    catalog = forced(stage)
    assert names(catalog) == ["kept"]
    check(catalog, stage.database)
    assert "dropped: 1 of kind queue, 1 of kind binding" in catalog.problems[1]
    files, directory = stage.disk, f"{stage.database.directory}/{SET_ASIDE}"
    [name] = [name for name in files.list(directory) if name.startswith("catalog-rows-")]
    file = files.open(f"{directory}/{name}")
    [line] = file.read_at(0, file.size()).decode().splitlines()
    file.close()
    key, value = (bytes.fromhex(each) for each in line.split())
    assert key[:1] == RowKind.BINDING.value
    assert f'"queue_id":{lost.id}'.encode() in value
    assert declared(catalog, home(catalog).id, "lost").id > lost.id, "no id is given twice"
    stage.stop()


def test_of_two_rows_by_one_name_the_newer_one_stays(place: SqlPlace) -> None:
    """The removal of the older one was lost."""
    stage = CatalogStage(place)
    here = home(stage.begin())
    queue = declared(stage.catalog, here.id, "orders")
    stage.catalog.close()
    session = stage.database.begin()
    session.put(CATALOG, key_of(RowKind.QUEUE, 7), encode({"vhost_id": here.id, "name": "orders"}))
    session.put(CATALOG, key_of(RowKind.QUEUE, 8), b"\x01no json")
    view = stage.database.view_now()
    found = view.get(CATALOG, LAST_CHANGE)
    view.close()
    assert found is not None
    session.put(CATALOG, LAST_CHANGE, LastChange.decode(found.value).with_rows(RowKind.QUEUE, 1).encode())
    session.commit()
    stage.database.close()
    assert forced(stage).queue_ids() == {queue.id}
    check(stage.catalog, stage.database)
    stage.stop()
