"""What is durable comes into the safe snapshot store by tables that Spark makes: of a stopped directory, of one that a
process owns, and what does not fit. Kills and signals: test_sync_killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.process_group import wait_until
from tests.pipeline.sync_stage import BY_DRIVER, SMALL, State, held_by, opened, stopped_store, tables, write, written
from warren.base.errors import Damage, Misuse, Refused
from warren.base.ids import FileNumber
from warren.cli.main import main
from warren.files.local import LocalFiles
from warren.log.manifest import read_manifest
from warren.pipeline.jobs import sync as sync_tables
from warren.pipeline.jobs.spark_tasks import TaskData
from warren.pipeline.jobs.sync import Sync, SyncOptions, accept_request, sync
from warren.snapshot.database import LOG
from warren.snapshot.reflection import Mode
from warren.snapshot.tables.tasks import RangeSizes, TableFigures, TableResult
from warren.workers.control_socket import NotListening

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
OPTIONS = SyncOptions(sizes=SMALL, order_seconds=30)
HERE = SyncOptions(sizes=BY_DRIVER, order_seconds=30)  # what is no business of Spark's is tried without it


def test_a_stopped_directory_is_brought_to_its_newest_state(spark: Any, tmp_path: Path) -> None:
    """RF-02, X-03: twice, the second time onto what is there; the log gets the mark, and nothing is left to do."""
    model = written(tmp_path)
    shown: list[float] = []
    result = sync(spark, str(tmp_path), shown.append, OPTIONS)
    held, epoch = stopped_store(tmp_path)
    assert held == model
    assert (result["status"], result["rounds"], result["unfit"]) == ("ok", 1, 0)
    assert result["entries"] > 2000 and result["tables"] > 2 and result["bytes"] > 10_000 and result["seconds"] > 0
    assert result["epoch"] == result["durable"] == epoch
    assert read_manifest(LocalFiles(), str(tmp_path / LOG)).reflected >= result["epoch"]
    with opened(tmp_path, Mode.OFF) as warren:
        write(warren.database, model, seed=2)
    again = sync(spark, str(tmp_path), options=OPTIONS)
    assert stopped_store(tmp_path)[0] == model
    assert again["epoch"] > result["epoch"] and again["rounds"] == 1
    assert tables(tmp_path) == []
    assert sync(spark, str(tmp_path), options=OPTIONS)["rounds"] == 0
    assert all(0 <= share <= 1 for share in shown)


def test_a_large_backlog_goes_step_by_step(spark: Any, tmp_path: Path) -> None:
    model = written(tmp_path)
    result = sync(spark, str(tmp_path), options=SyncOptions(step_bytes=40_000, sizes=SMALL))
    assert result["rounds"] > 2
    assert stopped_store(tmp_path)[0] == model
    with opened(tmp_path) as warren:
        write(warren.database, model, seed=2)
        result = sync(spark, str(tmp_path), options=SyncOptions(step_bytes=40_000, sizes=SMALL))
        assert result["rounds"] > 2
        assert held_by(warren.database.store) == model


@pytest.mark.parametrize("mode", [Mode.SPARK, Mode.NOTIFY])
def test_a_process_that_owns_the_directory_orders_tables_and_ingests_them(
    spark: Any, tmp_path: Path, mode: Mode
) -> None:
    """RF-02, RF-06, RF-12: with `spark` the owner leaves it to us; with `notify` it is paused, to leave something."""
    model: State = {}
    with opened(tmp_path, mode) as warren:
        database = warren.database
        assert database.reflection is not None
        if mode is Mode.NOTIFY:
            database.reflection.pause()
        for seed in (1, 2):
            write(database, model, seed)
            assert database.store.applied.epoch < database.log.durable
            result = sync(spark, str(tmp_path), options=OPTIONS)
            assert held_by(database.store) == model
            assert result["epoch"] == result["durable"] == database.store.applied.epoch == database.log.durable
            assert (result["rounds"], result["unfit"]) == (1, 0) and result["tables"] > 2
            assert database.log.manifest.state.reflected == result["epoch"], "the log may go at once"
            assert tables(tmp_path) == []
        database.reflection.resume()
        write(database, model, seed=3, sessions=2)
        database.catch_up()
        assert held_by(database.store) == model, "the owner's own reflection continues after tables"
    assert stopped_store(tmp_path)[0] == model


def test_one_key_in_many_ranges_is_one_table(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path) as warren:
        for number in range(300):
            session = warren.database.begin()
            session.put(1, b"the only one", b"%d" % number)
            epoch = session.end()
        warren.database.log.wait(epoch)
        result = sync(spark, str(tmp_path), options=SyncOptions(sizes=RangeSizes(8, 10, entries_worth_a_task=1)))
        assert (result["entries"], result["tables"]) == (300, 1)
        assert held_by(warren.database.store) == {(1, b"the only one"): b"299"}


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_versions_that_writers_gave_are_left_to_the_owner(spark: Any, tmp_path: Path, is_running: bool) -> None:
    """One that is older than the store changes nothing, one that is to come is not seen; both are counted."""
    model = written(tmp_path)
    sync(spark, str(tmp_path), options=OPTIONS)
    (storage, key), value = next(iter(model.items()))
    with opened(tmp_path, Mode.SPARK if is_running else Mode.OFF) as warren:
        for version in ((0, 1), (1 << 40, 0)):
            session = warren.database.begin()
            session.put(storage, key, b"of another time", version=version)
            session.put(storage, b"fresh %d" % version[0], b"1")
            session.commit()
            model[storage, b"fresh %d" % version[0]] = b"1"
        result = sync(spark, str(tmp_path), options=OPTIONS) if is_running else {}
        if is_running:
            assert held_by(warren.database.store) == model
            assert tables(tmp_path) == [], "what was not taken is gone"
    if not is_running:
        result = sync(spark, str(tmp_path), options=OPTIONS)
        assert stopped_store(tmp_path)[0] == model
    assert model[storage, key] == value
    assert (result["unfit"], result["tables"], result["entries"]) == (1, 0, 0)
    assert result["epoch"] < result["durable"], "the version to come holds it back"


def test_a_task_that_fails_is_done_again(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, failed = written(tmp_path / "db"), str(tmp_path)

    def fails_at_first(raw: TaskData) -> TaskData:
        import os
        from contextlib import suppress

        from warren.pipeline.jobs.sync import table_task

        result = table_task(raw)
        low = str(raw["key_range"][0]).encode().hex()[:60]
        with suppress(FileExistsError):
            os.close(os.open(f"{failed}/failed.{low}", os.O_CREAT | os.O_EXCL))
            raise RuntimeError("the first attempt has made its table, and fails")
        return result

    monkeypatch.setattr(sync_tables, "table_task", fails_at_first)
    result = sync(spark, str(tmp_path / "db"), options=OPTIONS)
    assert len([name for name in os.listdir(tmp_path) if name.startswith("failed.")]) >= result["tables"] > 2
    assert stopped_store(tmp_path / "db")[0] == model
    assert tables(tmp_path / "db") == [], "what the first attempts made is gone"


def test_damage_is_reported_with_its_place_and_nothing_has_changed(spark: Any, tmp_path: Path) -> None:
    model = written(tmp_path)
    state = read_manifest(LocalFiles(), str(tmp_path / LOG))
    record = max((each for each in state.files.values() if each.entries), key=lambda each: each.end)
    path = tmp_path / LOG / record.name
    with spoilt(path, record.end // 2):
        for home in (tmp_path, tmp_path):
            with pytest.raises(Damage) as raised:
                sync(spark, str(home), options=OPTIONS)
            assert raised.value.path == str(path) and 0 < raised.value.offset <= record.end // 2
            assert stopped_store(tmp_path) == ({}, 0)
    sync(spark, str(tmp_path), options=OPTIONS)
    assert stopped_store(tmp_path)[0] == model


def test_damage_beside_an_owner_cancels_the_order(spark: Any, tmp_path: Path) -> None:
    """In a sealed file, and in one that is being written: what is durable of it is known."""
    model: State = {}
    with opened(tmp_path) as warren:
        database = warren.database
        write(database, model, seed=1)
        records = [each for each in database.log.manifest.state.files.values() if each.end]
        record = max(records, key=lambda each: each.end)
        with spoilt(tmp_path / LOG / record.name, record.end // 2), pytest.raises(Damage, match=record.name):
            sync(spark, str(tmp_path), options=OPTIONS)
        active = tmp_path / LOG / "pwal_0000"
        end = len(active.read_bytes().rstrip(b"\0"))
        with spoilt(active, end // 2), pytest.raises(Damage, match=active.name):
            sync(spark, str(tmp_path), options=OPTIONS)
        assert database.orders is not None and not database.orders.is_active()
        assert held_by(database.store) == {}
        sync(spark, str(tmp_path), options=OPTIONS)
        assert held_by(database.store) == model


def test_an_order_lives_as_long_as_it_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: State = {}
    with opened(tmp_path) as warren:
        write(warren.database, model, seed=1, sessions=5)
        syncing = Sync(None, str(tmp_path), options=SyncOptions(sizes=BY_DRIVER, order_seconds=6))
        orders, make = warren.database.orders, syncing._tables.made
        assert orders is not None

        def made_slowly(task: Any) -> Any:
            lapses: set[int] = set()

            def are_signs_of_life() -> bool:
                lapses.update(each.expires_ns for each in list(orders._leases._leased.values()))
                return len(lapses) > 3

            wait_until("three signs of life", are_signs_of_life)
            return make(task)

        monkeypatch.setattr(syncing._tables, "made", made_slowly)
        assert syncing.running()["tables"] == 1
        assert held_by(warren.database.store) == model


def test_a_mode_without_tables_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no absolute path"):
        sync(None, "db", options=HERE)
    with pytest.raises(Refused, match="no log directory"):
        sync(None, str(tmp_path), options=HERE)
    with opened(tmp_path, Mode.OFF), pytest.raises(Refused, match=r"its reflection is off \(reflection=off\)"):
        sync(None, str(tmp_path), options=HERE)
    with opened(tmp_path, Mode.WATCH), pytest.raises(Refused, match=r"a process of its own \(reflection=watch\)"):
        sync(None, str(tmp_path), options=HERE)
    with pytest.raises(NotListening, match="no process listens"):
        Sync(None, str(tmp_path), options=HERE).running()


def test_places_are_sent_once_and_left_out_if_they_are_too_many() -> None:
    def made(places: int, cleared: int = 0) -> TableResult:
        figures = TableFigures("/db/tables/a.table.range.1", puts=1, cleared=set(range(cleared)))
        return TableResult(figures, 1, (1, 1), tuple((FileNumber(number), 1 << 20) for number in range(places)))

    few = accept_request("sync-1", [made(3), made(3)])
    assert few is not None and [len(each["places"]) for each in few["made"]] == [3, 0]
    many = accept_request("sync-1", [made(30_000), made(30_000)])
    assert many is not None and [len(each["places"]) for each in many["made"]] == [0, 0]
    assert accept_request("sync-1", [made(0, cleared=30_000)]) is None


def test_a_request_that_would_be_too_long_is_left_to_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: State = {}
    monkeypatch.setattr("warren.pipeline.jobs.sync.REQUEST_BYTES_MAX", 100)
    with opened(tmp_path) as warren:
        write(warren.database, model, seed=1, sessions=5)
        result = sync(None, str(tmp_path), options=HERE)
        assert (result["tables"], result["unfit"], result["epoch"]) == (0, 1, result["durable"])
        assert held_by(warren.database.store) == model
        assert tables(tmp_path) == []


def test_the_command_syncs_and_says_so(tmp_path: Path) -> None:
    model = written(tmp_path)
    command = [sys.executable, "-m", "warren.cli.main", "pipeline", "sync", str(tmp_path), "--master", "local[1]"]
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["status"], result["rounds"], result["tables"]) == ("ok", 1, 1)
    assert stopped_store(tmp_path) == (model, result["epoch"])


def test_without_spark_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.pipeline.session.find_spec", lambda name: None)
    assert main(["pipeline", "sync", str(tmp_path)]) == 64
    assert "make setup-spark" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["pipeline", "sync", str(tmp_path)]) == 64, "before Spark is started"
    assert "no log directory" in capsys.readouterr().err


class spoilt:
    """A byte of a file is another one, until the end of the block."""

    def __init__(self, path: Path, at: int) -> None:
        self._path, self._at = path, at

    def __enter__(self) -> None:
        self._flip()

    def __exit__(self, *error: object) -> None:
        self._flip()

    def _flip(self) -> None:
        with self._path.open("r+b") as file:
            file.seek(self._at)
            byte = file.read(1)[0]
            file.seek(self._at)
            file.write(bytes([byte ^ 0xFF]))
