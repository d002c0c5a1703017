"""Orders for tables that others make: one at a time, renewed, accepted, given up or lapsed; on a memory disk."""

from __future__ import annotations

from typing import Any

import pytest

from tests.snapshot.database_stage import DatabaseStage, put, rows
from tools.simulator.volatile_store import VolatileTables
from warren.base.errors import Locked, Refused
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.snapshot.tables.jobs import SyncJobs
from warren.snapshot.tables.tasks import TableResult, TableTask

SECONDS = 60.0


def opened(stage: DatabaseStage) -> tuple[Database, SyncJobs]:
    database = stage.open()
    assert database.orders is not None
    return database, database.orders


def made(stage: DatabaseStage, order: dict[str, Any]) -> list[dict[str, Any]]:
    tables = VolatileTables(stage.disk, stage._present_store)
    return [TableResult.to_json(each) for each in tables.make(TableTask.from_json(order["task"]))]


def test_an_order_is_worked_on_and_accepted() -> None:
    """VO-02, X-03."""
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    for number in range(5):
        put(database, {b"%d" % (number % 3): b"value %d" % number}, channel=number % 2)
    assert database.store.applied.epoch < database.log.durable, "it does not reflect by itself"
    told = orders.order({"seconds": SECONDS})
    assert told["durable"] == database.log.durable
    answer = orders.accept({"name": told["order"]["name"], "made": made(stage, told["order"])})
    assert answer == {"epoch": told["durable"], "is_ingested": True}
    assert database.store.applied.epoch == database.log.manifest.state.reflected == database.log.durable
    assert "order" not in orders.order({}), "nothing is left"
    assert rows(database) == {(1, b"0"): b"value 3", (1, b"1"): b"value 4", (1, b"2"): b"value 2"}
    database.close()


def test_steps_follow_one_another() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    for number in range(30):
        put(database, {b"%02d" % number: b"value"})
    steps = 0
    while "order" in (told := orders.order({"step_bytes": 1000})):
        assert orders.accept({"name": told["order"]["name"], "made": made(stage, told["order"])})["is_ingested"]
        steps += 1
    assert steps > 3
    assert len(rows(database)) == 30
    database.close()


def test_an_order_that_nobody_renews_lapses() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    put(database, {b"a": b"1"})
    name = orders.order({"seconds": SECONDS})["order"]["name"]
    for _ in range(3):
        stage.clock.advance_ns(int(SECONDS * 0.7e9))
        with pytest.raises(Locked, match="at work on an order already"):
            orders.order({})
        orders.renew({"name": name, "seconds": SECONDS})
    assert orders.is_out()
    stage.clock.advance_ns(int(SECONDS * 1.1e9))
    assert not orders.is_out()
    for late in (orders.accept, orders.cancel):
        with pytest.raises(Refused, match="no order 'sync-"):
            late({"name": name, "made": []})
    with pytest.raises(Refused, match="no order 'sync-"):
        orders.renew({"name": name})
    assert "order" in orders.order({})
    database.close()


def test_an_order_that_is_given_up_leaves_nothing() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    put(database, {b"a": b"1"})
    task = orders.order({})["order"]
    stage.disk.create(f"{task['task']['path']}.range.1").close()
    orders.cancel({"name": task["name"]})
    assert stage.disk.list("db/tables") == []
    stage.disk.create(f"{task['task']['path']}.range.2").close()  # by somebody who has not heard of it
    assert "order" in orders.order({})
    assert stage.disk.list("db/tables") == []
    database.close()


def test_the_log_stays_while_an_order_is_out() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    assert database.reflection is not None
    put(database, {b"a": b"1"})
    order = orders.order({})["order"]
    database.reflection.catch_up()
    database.reflection.flush()
    assert database.log.manifest.state.reflected == 0
    answer = orders.accept({"name": order["name"], "made": made(stage, order)})
    assert answer["is_ingested"] is False, "the owner was quicker"
    put(database, {b"b": b"1"})
    database.reflection.catch_up()
    database.reflection.flush()
    assert database.log.manifest.state.reflected == database.log.durable
    database.close()


def test_what_makes_no_sense_is_refused() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    put(database, {b"a": b"1"})
    for wrong in ({"seconds": 0}, {"seconds": "x"}, {"step_bytes": -1}, {"step_bytes": None}, {"seconds": 1e300}):
        with pytest.raises(Refused, match="a number above 0"):
            orders.order(wrong)
    order = orders.order({})["order"]
    with pytest.raises(Refused, match="cannot be read"):
        orders.accept({"name": order["name"], "made": [{}]})
    order = orders.order({})["order"]
    elsewhere = made(stage, order)
    elsewhere[0]["figures"]["path"] = "db/store/CURRENT"
    with pytest.raises(Refused, match="is no table of this order"):
        orders.accept({"name": order["name"], "made": elsewhere})
    assert set(orders.handlers()) == {"sync-order", "sync-renew", "sync-accept", "sync-cancel"}
    database.close()
