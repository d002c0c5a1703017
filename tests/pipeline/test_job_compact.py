"""Compaction on Spark, of a stopped directory and one that a process holds: equal to the other way, entry by entry."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.log.upkeep_stage import QUIET
from warren.base.errors import Damage, Refused
from warren.cli.main import main
from warren.config.compaction_engine import CompactionSettings, Engine, bytes_to_merge, is_for_spark
from warren.files.local import LocalFiles
from warren.log.compaction.ranges import RangePlanSizes
from warren.log.manifest import read_manifest
from warren.log.read.read_only import open_for_reading
from warren.log.read.scan import LogInput
from warren.log.store import LogStore
from warren.pipeline.jobs.compact import compact, compact_running, compact_stopped

pytestmark = pytest.mark.spark
SETTINGS = replace(QUIET, channel_count=2, retention_seconds=1e6, retention_bytes=1 << 40)
SMALL = RangePlanSizes(workers=2, entries_per_range=400, entries_worth_a_task=10)
DEALT = replace(SMALL, ranges_at_once_max=1)
Row = tuple[Any, ...]


def make_store(directory: Path, seed: int = 1, sessions: int = 40) -> Path:
    """Keys of 0 … 90 bytes in three storages, tombstones, clears, two channels, several files."""
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.randrange(90)) for _ in range(300)] + [b"", b"\0", b"\0\0"]
    with LogStore.open(str(directory), SETTINGS) as store:
        for number in range(sessions):
            session = store.begin(number % 2)
            for _ in range(50):
                storage, key = rng.randrange(1, 4), rng.choice(keys)
                if rng.random() < 0.2:
                    session.remove(storage, key)
                else:
                    session.put(storage, key, rng.randbytes(rng.randrange(60)))
            if number % 13 == 12:
                session.clear_storage(1 + number % 3)
            session.commit()
            if number % 9 == 8:
                store.rotate()
            if number == 15:
                store.compact()
    return directory


def compacted(store: LogStore) -> list[Row]:
    """Every entry of the compacted files in force, with its version and epoch."""
    state = store.manifest.state
    found: list[Row] = []
    for number in state.compacted:
        source = LogInput(store.environment.files, store.directory, state.files[number], store.durable)
        for batch in source.batches():
            assert batch.epochs is not None
            columns = (batch.kinds, batch.storages, batch.majors, batch.minors, batch.epochs)
            texts = (batch.keys.to_list(), batch.values.to_list())
            found += zip(*(column.array().tolist() for column in columns), *texts, strict=True)
    return found


def content_of(directory: Path) -> tuple[list[Row], list[Row], int]:
    """The compacted entries, the state, and how many compacted files there are."""
    with LogStore.open(str(directory), SETTINGS) as store:
        return compacted(store), list(store.refresh().cursor()), len(store.manifest.state.compacted)


@pytest.mark.parametrize("sizes", [SMALL, DEALT], ids=["one pass", "two passes"])
def test_compaction_on_spark_equals_the_one_in_process_entry_for_entry(
    spark: Any, tmp_path: Path, sizes: RangePlanSizes
) -> None:
    """CO-09, CO-10, SO-02, ST-04: and the store runs on the result."""
    for seed in (1, 2):
        here, there = make_store(tmp_path / f"a{seed}", seed), tmp_path / f"b{seed}"
        shutil.copytree(here, there)
        before = content_of(here)[1]
        shown: list[float] = []
        result = compact_stopped(spark, str(here), shown.append, SETTINGS, sizes)
        with LogStore.open(str(there), SETTINGS) as store:
            other = store.compact()
        assert [result[name] for name in ("entries_in", "entries", "epoch")] == [
            other[name] for name in ("entries_in", "entries", "epoch")
        ]
        (mine, state, files), (theirs, other_state, _) = content_of(here), content_of(there)
        assert mine == theirs
        assert state == other_state == before
        assert files > 2
        assert all(0 <= share <= 1 for share in shown)
        assert not list((here / "staging").iterdir())


def test_a_store_that_runs_orders_the_compaction_and_puts_it_in_force(spark: Any, tmp_path: Path) -> None:
    """RF-06, CO-06: a process appends and rotates all along; nothing of it is lost, and its log becomes short."""
    directory = make_store(tmp_path / "log")
    with running(directory) as owner:
        result = compact(spark, str(directory), sizes=SMALL)
        assert result["status"] == "ok"
        assert result["entries_in"] >= 1000
        again = compact_running(spark, str(directory), sizes=DEALT)
        assert again["epoch"] > result["epoch"]
        written = owner.end()
    with LogStore.open(str(directory), SETTINGS) as store:
        assert len(store.manifest.state.compacted) >= 1
        live = {row.key: row.value for row in store.refresh().cursor() if row.storage == 9}
    assert live == {b"%d" % number: b"live" for number in range(written)}


def test_a_driver_killed_in_the_middle_leaves_the_store_as_it_was(spark: Any, tmp_path: Path) -> None:
    """X-10: SIGKILL of driver, JVM and workers while tasks run: the running owner continues, the order is just never
    accepted; the next compaction succeeds."""
    directory = make_store(tmp_path / "log")
    with running(directory) as owner:
        driver = subprocess.Popen([sys.executable, "-c", _DRIVER, str(directory)], start_new_session=True)
        await_that(lambda: any((directory / "staging").glob("order-*/r*")), driver)
        driver.send_signal(signal.SIGKILL)
        subprocess.run(["pkill", "-KILL", "-s", str(driver.pid)], check=False)
        driver.wait()
        result = compact_running(spark, str(directory), sizes=SMALL)
        assert result["status"] == "ok"
        written = owner.end()
    with LogStore.open(str(directory), SETTINGS) as store:
        live = [row for row in store.refresh().cursor() if row.storage == 9]
        assert len(live) == written
        assert not list((directory / "staging").iterdir())


def test_what_goes_wrong_is_one_clear_error_and_the_order_is_given_up(spark: Any, tmp_path: Path) -> None:
    directory = make_store(tmp_path / "log")
    with pytest.raises(Refused, match="no log directory"):
        compact_running(spark, str(tmp_path), answer_seconds=0.1)
    with pytest.raises(Refused, match="is one running there"):
        compact_running(spark, str(directory), answer_seconds=0.1)
    state = read_manifest(LocalFiles(), str(directory))
    newest = state.files[max(number for number, record in state.files.items() if record.entries)]
    path = directory / newest.name
    raw = bytearray(path.read_bytes())
    raw[newest.end - 300] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Damage) as raised:
        compact_stopped(spark, str(directory), settings=SETTINGS, sizes=SMALL)
    assert raised.value.path == str(path)
    assert not list((directory / "staging").iterdir())


def test_the_command_compacts_and_says_so(tmp_path: Path) -> None:
    directory = make_store(tmp_path / "log")
    command = [sys.executable, "-m", "warren.cli.main", "pipeline", "compact", str(directory), "--master", "local[1]"]
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["status"], result["entries_in"] > result["entries"] > 0) == ("ok", True)


def test_the_engine_is_chosen_by_size_or_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compaction.engine = auto | inprocess | spark`: above a size compaction is handed over to Spark."""
    directory = make_store(tmp_path / "log")
    asked: list[str] = []

    def on_spark(path: str) -> dict[str, Any]:
        asked.append(path)
        return {"status": "ok", "message": "done"}

    monkeypatch.setattr("warren.cli.pipeline.on_spark", on_spark)
    size = bytes_to_merge(open_for_reading(LocalFiles(), str(directory)))
    assert size > 50_000
    choices = [
        (Engine.AUTO, size, True),
        (Engine.AUTO, size + 1, False),
        (Engine.INPROCESS, 0, False),
        (Engine.SPARK, size + 1, True),
    ]
    for engine, least, is_sparks in choices:
        assert is_for_spark(CompactionSettings(engine, least), str(directory)) is is_sparks
    for command in (["log", "compact", str(directory)], ["compact", "--data-dir", str(directory)]):
        assert main([*command, "--engine", "spark"]) == 0
    assert asked == [str(directory)] * 2


class running:
    """A process that owns a store, appends to it and rotates; `end` gives how many sessions it has committed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> running:
        command = [sys.executable, "-c", _OWNER, str(self._directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def end(self) -> int:
        result, _ = self._process.communicate(timeout=60)
        return int(result)

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def await_that(holds: Any, process: subprocess.Popen[Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.005)


_OWNER = """
import sys, threading
from warren.log.settings import LogSettings
from warren.log.store import LogStore
ended = threading.Event()
settings = LogSettings(
    use_worker_process=False, compaction_garbage_ratio=0.0, compaction_poll_seconds=0.02, retention_seconds=0.2,
    snapshot_at_stop=False, channel_count=2,
)
store = LogStore.open(sys.argv[1], settings)
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
count = 0
while not ended.wait(0.002):
    session = store.begin(count % 2)
    session.put(9, b"%d" % count, b"live")
    session.commit()
    count += 1
    if count % 50 == 0:
        store.rotate()
store.close()
print(count, flush=True)
"""
_DRIVER = """
import sys
from warren.log.compaction.ranges import RangePlanSizes
from warren.pipeline.session import spark_session
from warren.pipeline.jobs.compact import compact_running
spark = spark_session("local[2]", config={"spark.ui.enabled": "false"})
compact_running(spark, sys.argv[1], sizes=RangePlanSizes(workers=2, entries_per_range=20, entries_worth_a_task=1))
"""
