"""SQL is rebuilt from the log, whichever of them is ahead; what the log does not cover is refused."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import delete, event, insert, text

from tests.catalog.catalog_stage import CatalogStage, bound, check, copy_of, declared, home, names, rows_in_sql
from tests.catalog.sql_locations import SqlPlaces
from tools.simulator.volatile_catalog import VolatileCatalog
from tools.simulator.volatile_store import VolatileStore
from warren.base.errors import Damage
from warren.base.ids import Epoch, TimelineId
from warren.base.threads import SystemThreads
from warren.catalog import permissions, queues, users, vhosts
from warren.catalog import permissions as topic_permissions
from warren.catalog.catalog import Catalog
from warren.catalog.rebuild import ForeignCatalog, read_mark, rebuild_sql
from warren.catalog.rows import CATALOG, LAST_CHANGE, LastChange, RowKind, encode, key_of
from warren.catalog.schema import queues as queue_rows
from warren.catalog.sql import SqlPlace
from warren.durability.timeline import Ancestor, Timeline
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode


def busy(stage: CatalogStage) -> list[dict[Any, Any]]:
    """A catalog with a history; its contents after each change."""
    catalog = stage.begin()
    here = home(catalog)
    remaining = [declared(catalog, here.id, f"q{n}") for n in range(3)]
    seen = [rows_in_sql(catalog)]
    bound(catalog, "amq.topic", remaining[0], "a")
    seen.append(rows_in_sql(catalog))
    catalog.change(lambda writer: queues.delete(writer, remaining[0].id))
    seen.append(rows_in_sql(catalog))
    declared(catalog, here.id, "q0")  # the name again, with another id
    seen.append(rows_in_sql(catalog))
    catalog.change(lambda writer: vhosts.describe(writer, here.id, "changed", ["x"]))
    seen.append(rows_in_sql(catalog))
    return seen


@pytest.mark.parametrize("lost", range(10))
def test_sql_that_lost_its_last_transactions_gets_them_from_the_log(lost: int) -> None:
    """C-21: a catalog older than the log's queues is brought up before a queue is looked up."""
    stage = CatalogStage()
    seen = busy(stage)
    stage.stop()
    stage.forgetful.lose(lost)
    catalog = stage.begin()
    assert rows_in_sql(catalog) == seen[-1]
    check(catalog, stage.database)
    assert not catalog.problems, "that is no problem: it is what the log is for"
    stage.stop()


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.OFF])
def test_what_the_store_has_taken_and_what_it_has_not_are_both_seen(mode: Mode) -> None:
    stage = CatalogStage(mode=mode)
    seen = busy(stage)
    stage.database.log.purge()
    stage.stop()
    stage.place = VolatileCatalog()
    assert rows_in_sql(stage.begin()) == seen[-1]
    check(stage.catalog, stage.database)
    stage.stop()


def statements_of_rebuild(stage: CatalogStage) -> list[str]:
    """The SQL statements of a rebuild from the log of a stopped stage."""
    database, sql = stage.open(), stage.place.open()
    statements: list[str] = []
    event.listen(sql.connection, "before_cursor_execute", lambda *values: statements.append(values[2]))
    view = database.view_now()
    rebuild_sql(sql, view, database.log.manifest.state.timeline)
    view.close()
    sql.close()
    database.close()
    return statements


def test_sql_in_step_with_the_log_is_not_written_and_not_read_through() -> None:
    stage = CatalogStage()
    busy(stage)
    stage.stop()
    states = len(stage.forgetful.states)
    statements = statements_of_rebuild(stage)
    assert len(stage.forgetful.states) == states
    assert all("count(" in each or "applied" in each or each == "BEGIN" for each in statements), statements


def test_sql_behind_the_log_gets_only_what_is_newer() -> None:
    stage = CatalogStage()
    busy(stage)
    stage.stop()
    stage.forgetful.lose(1)
    statements = statements_of_rebuild(stage)
    written = [each.split()[:2] for each in statements if each.split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert written == [["UPDATE", "vhosts"], ["UPDATE", "applied"]]


def test_sql_of_an_earlier_day_gets_what_it_lacks_from_the_log(places: SqlPlaces) -> None:
    """C-21: SQL was put back, the log was not."""
    stage = CatalogStage(places.new())
    here = home(stage.begin())
    gone, remaining = declared(stage.catalog, here.id, "gone"), declared(stage.catalog, here.id, "kept")
    bound(stage.catalog, "amq.topic", gone)
    stage.stop()
    earlier = places.copy(stage.place)
    stage.begin()
    stage.catalog.change(lambda writer: queues.delete(writer, gone.id))
    bound(stage.catalog, "amq.topic", remaining)
    declared(stage.catalog, here.id, "gone")
    stage.catalog.change(lambda writer: vhosts.describe(writer, here.id, "changed", ["x"]))
    seen = rows_in_sql(stage.catalog)
    stage.stop()
    stage.place = earlier
    assert rows_in_sql(stage.begin()) == seen
    check(stage.catalog, stage.database)
    assert not stage.catalog.problems
    stage.stop()


def test_sql_ahead_of_a_log_that_was_put_back_is_put_back_too(place: SqlPlace) -> None:
    stage = CatalogStage(place)
    here = home(stage.begin())
    declared(stage.catalog, here.id, "kept")
    stage.database.settle()
    stage.database.log.witness()
    earlier = copy_of(stage)
    later = declared(stage.catalog, here.id, "later")
    stage.stop()
    earlier.place = stage.place
    catalog = earlier.begin()
    assert names(catalog) == ["kept"]
    check(catalog, earlier.database)
    assert "later changes are not in the log" in catalog.problems[0]
    assert later.id not in catalog.queue_ids()
    assert not earlier.again().problems, "it is reported once"
    earlier.stop()


def test_sql_of_an_abandoned_timeline_is_rebuilt(place: SqlPlace) -> None:
    """X-02: a log restored to an epoch has the catalog of that epoch, whatever SQL says. C-21: from then on SQL is the
    fork's, and the log that was left is refused by it."""
    stage = CatalogStage(place, mode=Mode.OFF)
    here = home(stage.begin())
    declared(stage.catalog, here.id, "kept")
    at = stage.catalog.applied
    declared(stage.catalog, here.id, "later")
    environment = stage.environment()
    stage.database.log.rotate()
    stage.database.log.cut(at).write_to(environment.files, environment.threads, environment.rng, "fork/log")
    stage.stop()

    fork = Database.open("fork", lambda _, line: VolatileStore(line), stage.log_settings, stage.reflection, environment)
    assert fork.log.manifest.state.timeline.ancestry
    catalog = Catalog.open(fork, stage.place, SystemThreads())
    assert names(catalog) == ["kept"]
    check(catalog, fork)
    assert "which this log has left" in catalog.problems[0]
    assert declared(catalog, here.id, "later").id not in (0, here.id)
    catalog.close()
    fork.close()
    with pytest.raises(ForeignCatalog, match="which this log never was on"):
        stage.begin()
    stage.database.close()


def test_sql_of_a_timeline_that_the_log_never_had_is_refused_and_not_touched(places: SqlPlaces) -> None:
    """C-21: a gap that the log does not cover is refused, with what to do."""
    stage, foreign = CatalogStage(places.new(), seed=1), CatalogStage(places.new(), seed=2)
    declared(foreign.begin(), home(foreign.catalog).id, "theirs")
    foreign.stop()
    home(stage.begin())
    stage.stop()
    stage.place = foreign.place
    with pytest.raises(ForeignCatalog, match="which this log never was on") as caught:
        stage.begin()
    stage.database.close()
    assert "restore a backup of the log, or name another catalog" in caught.value.hint
    assert names(foreign.begin()) == ["theirs"]
    foreign.stop()


def test_sql_whose_rows_were_removed_is_made_again(place: SqlPlace) -> None:
    stage = CatalogStage(place)
    seen = busy(stage)
    stage.stop()
    sql = stage.place.open()
    with sql.transaction() as connection:
        connection.execute(delete(queue_rows))
    sql.close()
    assert rows_in_sql(stage.begin()) == seen[-1]
    assert "did not hold what it had" in stage.catalog.problems[0]
    stage.stop()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE vhosts SET description = 'x'",
        "UPDATE exchanges SET name = 'amq.fan0ut' WHERE name = 'amq.fanout'",
        "UPDATE queues SET durable = NOT durable",
        "UPDATE bindings SET routing_key = 'x'",
        "UPDATE users SET password_hash = 'x'",
        "UPDATE permissions SET configure = '.*x'",
        "UPDATE topic_permissions SET write = '.*x'",
    ],
)
def test_sql_that_has_a_row_unlike_the_logs_is_set_aside_and_made_again(places: SqlPlaces, statement: str) -> None:
    stage = CatalogStage(places.new())
    here = home(stage.begin())
    bound(stage.catalog, "amq.topic", declared(stage.catalog, here.id, "orders"), "order.*")
    ann = stage.catalog.change(lambda writer: users.put(writer, "ann", "hash", "sha256"))
    stage.catalog.change(lambda writer: permissions.put(writer, ann.id, here.id, "", "", ""))
    stage.catalog.change(lambda writer: topic_permissions.put_topic(writer, ann.id, here.id, "amq.topic", "", ""))
    before = rows_in_sql(stage.catalog)
    stage.stop()
    sql = stage.place.open()
    with sql.transaction() as connection:
        assert connection.execute(text(statement)).rowcount
    sql.close()
    assert rows_in_sql(stage.begin()) == before
    assert f"its table {statement.split()[1]} differs from the log" in stage.catalog.problems[0]
    check(stage.catalog, stage.database)
    stage.stop()
    assert len(places.aside(stage.place)) == 1


def test_a_log_that_lacks_rows_of_its_catalog_is_refused() -> None:
    """C-21: queues that are missing would make their messages look orphaned, and vanish."""
    stage = CatalogStage()
    queue = declared(stage.begin(), home(stage.catalog).id, "orders")
    stage.catalog.close()
    session = stage.database.begin()
    session.remove(CATALOG, key_of(RowKind.QUEUE, queue.id))
    session.commit()
    stage.place = VolatileCatalog()
    with pytest.raises(Damage, match=r"the log holds 0 rows of kind queue, .* counted 1") as caught:
        stage.again_without_catalog()
    assert "restore a backup" in caught.value.hint
    stage.database.close()


def test_a_row_that_refers_to_nothing_is_refused_and_sql_is_unchanged() -> None:
    """HS-07: all durable objects are in the log, and SQL judges them again whenever it is made from there."""
    stage = CatalogStage()
    declared(stage.begin(), home(stage.catalog).id, "orders")
    stage.catalog.close()
    before = stage.forgetful.states[-1]
    view = stage.database.view_now()
    found = view.get(CATALOG, LAST_CHANGE)
    view.close()
    assert found is not None
    session = stage.database.begin()
    session.put(CATALOG, key_of(RowKind.QUEUE, 99), encode({"vhost_id": 98, "name": "lost"}))
    session.put(CATALOG, LAST_CHANGE, LastChange.decode(found.value).with_rows(RowKind.QUEUE, 1).encode())
    session.commit()
    with pytest.raises(Damage, match="refers to nothing"):
        stage.again_without_catalog()
    assert stage.forgetful.states[-1] == before
    stage.database.close()


def test_a_mark_keeps_all_64_bits_of_a_timeline() -> None:
    stage = CatalogStage()
    stage.begin()
    stage.stop()
    sql = stage.place.open()
    top = Timeline(TimelineId((1 << 64) - 1), (Ancestor(stage.database.log.manifest.state.timeline.id, Epoch(0)),))
    database = stage.open()
    view = database.view_now()
    rebuild_sql(sql, view, top)
    with sql.reading() as connection:
        assert read_mark(connection) == ((1 << 64) - 1, 0)
    view.close()
    sql.close()
    database.close()


def test_a_row_that_sql_has_and_the_log_has_not_goes() -> None:
    stage = CatalogStage()
    seen = busy(stage)
    stage.stop()
    stage.forgetful.lose(1)
    sql = stage.place.open()
    with sql.transaction() as connection:
        some = dict.fromkeys(("durable", "exclusive", "auto_delete"), False)
        vhost = next(id_ for kind, id_ in seen[-1] if kind is RowKind.VHOST)
        connection.execute(
            insert(queue_rows).values(id=3, vhost_id=vhost, name="made up", arguments="{}", extra="{}", **some)
        )
    sql.close()
    assert rows_in_sql(stage.begin()) == seen[-1]
    stage.stop()
