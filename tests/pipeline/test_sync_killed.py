"""Driver or owner killed in the middle of an order; and a driver that follows, until it is stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.process_group import ProcessGroup, wait_until
from tests.pipeline.sync_stage import BY_DRIVER, SMALL, State, held_by, opened, owned, stopped_store, tables, write
from warren.pipeline.jobs.sync import Sync, SyncOptions, sync
from warren.snapshot.reflection import Mode
from warren.workers.control_socket import NotListening

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
OPTIONS = SyncOptions(sizes=SMALL, order_seconds=30)
HERE = SyncOptions(sizes=BY_DRIVER, order_seconds=30)


def test_a_driver_killed_in_the_middle_leaves_an_order_that_lapses(spark: Any, tmp_path: Path) -> None:
    """X-10, X-11: driver, JVM and workers get SIGKILL while tasks write tables; the owner continues, the store is as it
    was, what was made goes, and the next driver waits for the order to lapse."""
    model: State = {}
    home = tmp_path / "db"
    with opened(home) as warren:
        write(warren.database, model, seed=1)
        with ProcessGroup([sys.executable, "-c", _DRIVER, str(home)], tmp_path / "driver.log") as driver:
            wait_until("a table", lambda: any(".range." in name for name in tables(home)), driver)
            driver.kill()
        orders = warren.database.orders
        assert orders is not None and orders.is_active()
        assert held_by(warren.database.store) == {}
        write(warren.database, model, seed=2, sessions=5)
        result = sync(spark, str(home), options=OPTIONS)
        assert result["epoch"] == result["durable"] == warren.database.log.durable
        assert held_by(warren.database.store) == model
        assert tables(home) == []
    assert stopped_store(home)[0] == model


def test_an_owner_killed_in_the_middle_finds_everything_in_its_log(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-10: it is gone when tables are handed over, as an error that says so; they are cleared away on opening."""
    model = model_of(tmp_path / "model", seed=1)
    home = tmp_path / "db"
    with owned(home, Mode.SPARK, seed=1) as owner:
        syncing = Sync(spark, str(home), options=OPTIONS)
        make = syncing._tables.made

        def made_for_a_dead_one(task: Any) -> Any:
            made = make(task)
            owner.kill()
            return made

        monkeypatch.setattr(syncing._tables, "made", made_for_a_dead_one)
        with pytest.raises(NotListening, match=r"reflection\.sock"):
            syncing.once()
    assert len(tables(home)) > 2, "no process was there to clear them"
    result = sync(spark, str(home), options=OPTIONS)
    assert result["epoch"] == result["durable"] and result["tables"] > 2
    assert stopped_store(home)[0] == model
    assert tables(home) == []


def test_an_owner_killed_after_an_ingest_opens_where_the_tables_have_brought_it(spark: Any, tmp_path: Path) -> None:
    """X-03: mark and rows came in one step, on disk when it was answered; the log is not needed for them."""
    model = model_of(tmp_path / "model", seed=1)
    home = tmp_path / "db"
    with owned(home, Mode.SPARK, seed=1) as owner:
        result = sync(spark, str(home), options=OPTIONS)
        owner.kill()
    assert stopped_store(home) == (model, result["durable"])


def test_following_syncs_again_whenever_the_log_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RF-05, RF-07: through a restart of the owner, too; a directory that is not in use is left alone then."""
    model, result, in_vain, ended = State(), list[dict[str, Any]](), list[NotListening](), threading.Event()
    with opened(tmp_path) as warren:
        write(warren.database, model, seed=1, sessions=3)
    syncing = Sync(None, str(tmp_path), options=HERE)
    ask_owner = syncing.running

    def counted() -> dict[str, Any]:
        try:
            return ask_owner()
        except NotListening as error:
            in_vain.append(error)
            raise

    monkeypatch.setattr(syncing, "running", counted)
    following = threading.Thread(target=lambda: syncing.follow(ended, result.append))
    try:
        for life in range(2):
            with opened(tmp_path) as warren:
                if not life:
                    following.start()
                for seed in (2, 3):
                    write(warren.database, model, 10 * life + seed, sessions=3)
                    wait_until("next round", lambda: held_by(warren.database.store) == model)
            in_vain.clear()
            (tmp_path / "log" / "a-change").touch()
            wait_until("look at a directory that is not in use", lambda: bool(in_vain))
            (tmp_path / "log" / "a-change").unlink()
            assert following.is_alive()
    finally:
        ended.set()
        following.join(60)
    assert not following.is_alive()
    assert len([each for each in result if each["rounds"]]) >= 4
    assert stopped_store(tmp_path)[0] == model


def test_the_command_follows_until_it_is_asked_to_end(tmp_path: Path) -> None:
    """RF-05, RF-07: a line for each round; SIGTERM ends it with a good code."""
    model, home = State(), tmp_path / "db"
    command = [sys.executable, "-m", "warren.cli.main", "pipeline", "sync", str(home), "--follow", "--json"]
    with opened(home) as warren:
        write(warren.database, model, seed=1, sessions=3)
        with ProcessGroup([*command, "--master", "local[1]"], tmp_path / "follow.log") as driver:
            wait_until("first round", lambda: held_by(warren.database.store) == model, driver)
            write(warren.database, model, seed=2, sessions=3)
            wait_until("second round", lambda: held_by(warren.database.store) == model, driver)
            wait_until("its line", lambda: len(rounds_in(driver)) >= 2, driver)
            terminate(driver)
            assert driver.ended() == 0, driver.last_words
            assert [each["status"] for each in rounds_in(driver)] == ["ok"] * len(rounds_in(driver))
            assert rounds_in(driver)[-1]["epoch"] == warren.database.log.durable


def rounds_in(driver: ProcessGroup) -> list[dict[str, Any]]:
    """The whole lines of JSON among all that was said."""
    return [json.loads(line) for line in driver.text.split("\n")[:-1] if line.startswith("{")]


def terminate(driver: ProcessGroup) -> None:
    """SIGTERM for the command alone: the guard beside it is for kills."""
    os.kill(driver.id, signal.SIGTERM)


def model_of(home: Path, seed: int) -> State:
    """What the same history leaves."""
    model: State = {}
    with opened(home, Mode.OFF) as warren:
        write(warren.database, model, seed)
    return model


_DRIVER = """
import sys
from warren.pipeline.jobs.sync import SyncOptions, sync
from warren.pipeline.session import spark_session
from warren.snapshot.tables.tasks import RangeSizes
spark = spark_session("local[1]", config={"spark.ui.enabled": "false"})
sizes = RangeSizes(workers=1, entries_max=30, entries_worth_a_task=1)
sync(spark, sys.argv[1], options=SyncOptions(sizes=sizes, order_seconds=12))
"""
