"""Leased jobs for tables: one at a time, renewed, accepted, cancelled or expired; on a memory disk."""

from __future__ import annotations

from typing import Any

import pytest

from tests.snapshot.database_stage import DatabaseStage, put, rows
from tools.simulator.volatile_store import VolatileTables
from warren.base.errors import Locked, Refused
from warren.snapshot.database import Database
from warren.snapshot.reflection import Mode
from warren.snapshot.tables.bulk import SyncJobs
from warren.snapshot.tables.tasks import TableResult, TableTask

SECONDS = 60.0


def opened(stage: DatabaseStage) -> tuple[Database, SyncJobs]:
    database = stage.open()
    assert database.orders is not None
    return database, database.orders


def results_for(stage: DatabaseStage, order: dict[str, Any]) -> list[dict[str, Any]]:
    tables = VolatileTables(stage.disk, stage._present_store)
    return [TableResult.to_json(each) for each in tables.make(TableTask.from_json(order["task"]))]


def test_an_order_is_worked_on_and_accepted() -> None:
    """VO-02, X-03."""
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    for number in range(5):
        put(database, {b"%d" % (number % 3): b"value %d" % number}, channel=number % 2)
    assert database.store.applied.epoch < database.log.durable, "it reflects on request only"
    leased = orders.order({"seconds": SECONDS})
    assert leased["durable"] == database.log.durable
    answer = orders.accept({"name": leased["order"]["name"], "made": results_for(stage, leased["order"])})
    assert answer == {"epoch": leased["durable"], "is_ingested": True}
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
    while "order" in (leased := orders.order({"step_bytes": 1000})):
        assert orders.accept({"name": leased["order"]["name"], "made": results_for(stage, leased["order"])})[
            "is_ingested"
        ]
        steps += 1
    assert steps > 3
    assert len(rows(database)) == 30
    database.close()


def test_a_lease_that_is_not_renewed_expires() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    put(database, {b"a": b"1"})
    name = orders.order({"seconds": SECONDS})["order"]["name"]
    for _ in range(3):
        stage.clock.advance_ns(int(SECONDS * 0.7e9))
        with pytest.raises(Locked, match="another job is leased already"):
            orders.order({})
        orders.renew({"name": name, "seconds": SECONDS})
    assert orders.is_active()
    stage.clock.advance_ns(int(SECONDS * 1.1e9))
    assert not orders.is_active()
    for late in (orders.accept, orders.cancel):
        with pytest.raises(Refused, match="no job 'sync-"):
            late({"name": name, "made": []})
    with pytest.raises(Refused, match="no job 'sync-"):
        orders.renew({"name": name})
    assert "order" in orders.order({})
    database.close()


def test_a_cancelled_job_leaves_nothing() -> None:
    stage = DatabaseStage(Mode.SPARK)
    database, orders = opened(stage)
    put(database, {b"a": b"1"})
    task = orders.order({})["order"]
    stage.disk.create(f"{task['task']['path']}.range.1").close()
    orders.cancel({"name": task["name"]})
    assert stage.disk.list("db/tables") == []
    stage.disk.create(f"{task['task']['path']}.range.2").close()  # by a worker that does not know of the cancel
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
    answer = orders.accept({"name": order["name"], "made": results_for(stage, order)})
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
    elsewhere = results_for(stage, order)
    elsewhere[0]["figures"]["path"] = "db/store/CURRENT"
    with pytest.raises(Refused, match="is no table of this order"):
        orders.accept({"name": order["name"], "made": elsewhere})
    assert set(orders.handlers()) == {"sync-order", "sync-renew", "sync-accept", "sync-cancel"}
    database.close()
