"""`warren bench reflection` on few entries: every mode is measured beside no reflection, and reads of the log are
counted. Times are not judged here; the counts are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.bench.test_bench_log import FIELDS, Silent
from tools.bench.goals import goals_of
from tools.bench.reflection.modes import counted_database, name_of
from tools.bench.reflection.rows import REFLECTION
from tools.bench.run import run_in
from tools.bench.snapshot.databases import SESSION_KEYS, puts, write
from tools.bench.snapshot.writing import modes_inside
from tools.bench.stores import log_bytes
from warren.base.ids import Epoch
from warren.snapshot.reflection import Mode

ENTRIES = 5_000


def bytes_read(room: Path, mode: Mode) -> tuple[int, int]:
    """Bytes of log files that reflection read for five sessions, and bytes that were written to them."""
    room.mkdir()
    with counted_database(room, mode) as database:
        write(database, puts(range(ENTRIES // SESSION_KEYS)))
        database.catch_up()
        if mode is not Mode.OFF:
            assert database.store.applied.epoch == database.log.durable
        return database.tail.bytes_read, log_bytes(database.log)


@pytest.mark.slow
def test_every_row_is_measured_and_printed_as_one_object(tmp_path: Path) -> None:
    """RF-11: the ways of handing over alone, as a micro-benchmark. RF-03: each beside the same without reflection."""
    command = [sys.executable, "-m", "warren.cli.main", "bench", "reflection", "--directory", str(tmp_path), "--json"]
    done = subprocess.run([*command, "--entries", str(ENTRIES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {row["name"]: row for row in result["measurements"]}
    assert [row["name"] for row in result["measurements"]] == list(REFLECTION.rows)
    assert all(set(row) == FIELDS for row in rows.values())
    for mode in (Mode.OFF, *modes_inside()):
        assert all(rows[f"{name_of(mode)}_{kind}"]["ratio"] > 0 for kind in ("writer", "cpu"))
    for mode in modes_inside():
        assert 0 < rows[f"{name_of(mode)}_lag_p50"]["value"] <= rows[f"{name_of(mode)}_lag_p99"]["value"]
    assert {name: str(goal) for name, goal in goals_of("reflection").items()} == {
        name: row["goal"] for name, row in rows.items() if row["goal"] is not None
    }
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_every_goal_is_a_row_s() -> None:
    assert goals_of("reflection") and not set(goals_of("reflection")) - set(REFLECTION.rows)


def test_pushing_reads_less_of_the_log_than_pulling(tmp_path: Path) -> None:
    """RF-14: the puller reads every byte that was written once more, a pushed store reads none."""
    read, written = bytes_read(tmp_path / "notify", Mode.NOTIFY)
    assert ENTRIES * 116 < read <= written
    for mode in (Mode.PUSH, Mode.PUSH_THREADED):
        pushed, _ = bytes_read(tmp_path / mode.value, mode)
        assert pushed < read / 10
    assert bytes_read(tmp_path / "off", Mode.OFF)[0] == 0


def test_what_is_read_twice_is_counted_twice(tmp_path: Path) -> None:
    with counted_database(tmp_path, Mode.OFF) as database:
        write(database, puts(range(2)))
        assert list(database.tail.read(database.log.durable))
        once = database.tail.bytes_read
        database.tail.rewind(Epoch(0))
        assert list(database.tail.read(database.log.durable)) and database.tail.bytes_read == 2 * once > 0


def test_a_row_that_is_asked_for_runs_alone(tmp_path: Path) -> None:
    watcher = Silent()
    with run_in(tmp_path, 1000, watcher) as run:
        [row] = REFLECTION.measure(run, {}, {"push_log_read"})
    assert watcher.rows == ["push_writer"] and row.reference is not None and row.reference > 0
