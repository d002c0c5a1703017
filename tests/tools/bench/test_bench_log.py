"""`warren bench log` on few entries: it measures every row, says so in the agreed form, and cleans up. Times are not
judged here: a test machine has other things to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.bench.goals import goals_of, parse
from tools.bench.log.rows import LOG
from tools.bench.measurement import Measurement
from tools.bench.run import run_in
from warren.base.errors import Refused

FIELDS = {"name", "value", "unit", "reference", "ratio", "goal", "holds"}


class Silent:
    """Records measurements."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.measurements: list[Measurement] = []

    def began(self, row: str) -> None:
        self.rows.append(row)

    def reached(self, share: float) -> None:
        assert 0 <= share <= 1

    def measured(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)


def bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warren.cli.main", "bench", "log", "--directory", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def measured(directory: Path, goals: str, row: str) -> Measurement:
    with run_in(directory, 2000, Silent()) as run:
        [measurement] = LOG.measure(run, parse("log", goals), {row})
    return measurement


@pytest.mark.slow
def test_every_row_is_measured_and_printed_as_one_object(tmp_path: Path) -> None:
    done = bench(tmp_path, "--json", "--entries", "20000")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    rows = {row["name"]: row for row in result["measurements"]}
    assert list(result) == ["measurements"]
    assert set(rows) == set(LOG.rows) and len(result["measurements"]) == len(LOG.rows)
    for row in rows.values():
        assert set(row) == FIELDS
        assert row["value"] > 0 and isinstance(row["holds"], bool)
        assert (row["ratio"] is None) == (row["reference"] is None)
    assert {name: str(goal) for name, goal in goals_of("log").items()} == {
        name: row["goal"] for name, row in rows.items() if row["goal"] is not None
    }
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_every_goal_is_a_row_s() -> None:
    assert not set(goals_of("log")) - set(LOG.rows)


@pytest.mark.parametrize(("limit", "holds"), [(1, True), (1_000, False)])
def test_holds_is_computed_from_the_goal(tmp_path: Path, limit: int, holds: bool) -> None:
    row = measured(tmp_path, f"[log]\nsyncs_per_epoch = {{ at_least = {limit} }}", "syncs_per_epoch")
    assert (row.goal, row.holds) == (f"value >= {limit}", holds)
    assert row.value >= 1


def test_a_row_that_is_asked_for_runs_alone_and_ends_its_scenario(tmp_path: Path) -> None:
    watcher = Silent()
    with run_in(tmp_path, 2000, watcher) as run:
        [row] = LOG.measure(run, {}, {"clean_start"})
    assert watcher.rows == ["stop", "clean_start"]
    assert watcher.measurements == [row]
    assert row.goal is None and row.holds
    assert not list(tmp_path.iterdir())


def test_the_log_costs_few_bytes_beyond_keys_and_values(tmp_path: Path) -> None:
    row = measured(tmp_path, "[log]\noverhead_bytes_per_entry = { at_most = 12 }", "overhead_bytes_per_entry")
    assert row.holds and row.value > 0


def test_the_text_is_a_table_with_a_last_word(tmp_path: Path) -> None:
    done = bench(tmp_path, "--entries", "1000", "--only", "overhead_bytes_explicit_versions")
    assert done.returncode == 0, done.stderr
    assert "B/entry" in done.stdout and done.stdout.rstrip().endswith("every goal holds")
    assert "overhead_bytes_explicit_versions: " in done.stderr


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refused, match="no row epochs") as caught:
        LOG.check({"epochs"})
    assert "append_columns" in caught.value.hint


@pytest.mark.parametrize(("entries", "words"), [(1 << 50, "MiB left"), (1000, "is no directory")])
def test_a_disk_that_cannot_take_it_is_refused(tmp_path: Path, entries: int, words: str) -> None:
    home = tmp_path / "missing" if "directory" in words else tmp_path
    with pytest.raises(Refused, match=words), run_in(home, entries, Silent()):
        pass
