"""`warren bench snapshot` on few entries: it measures every row, says so in the agreed form, and cleans up. Times are
not judged here: a test machine has other things to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.bench.test_bench_log import FIELDS, Silent
from tools.bench.goals import goals_of
from tools.bench.measurement import Measurement
from tools.bench.memory_watch import watched_tree
from tools.bench.run import run_in
from tools.bench.snapshot import disk
from tools.bench.snapshot.building import batches_of
from tools.bench.snapshot.child import BEHIND, MORE_FROM, MORE_SESSIONS, SETTLED, child
from tools.bench.snapshot.databases import SESSION_KEYS, STORAGE, directory_bytes, keys_of, opened_database, puts, write
from tools.bench.snapshot.growth import label_of, size_of, sizes_up_to
from tools.bench.snapshot.plot import draw
from tools.bench.snapshot.rows import snapshot_suite
from tools.bench.snapshot.writing import Shape, modes_inside, prepared, row_of
from warren.base.errors import Damage, DiskFailure, Refused
from warren.snapshot.reflection import Mode

ENTRIES = 12_000
PNG = b"\x89PNG\r\n"


def bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warren.cli.main", "bench", "snapshot", "--directory", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_row_is_measured_and_printed_as_one_object(tmp_path: Path) -> None:
    """RF-03: what writing costs with reflection on and off, in one run, and what was not reflected yet by then."""
    home, picture = tmp_path / "home", tmp_path / "growth.png"
    home.mkdir()
    done = bench(home, "--json", "--entries", str(ENTRIES), "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {row["name"]: row for row in result["measurements"]}
    assert [row["name"] for row in result["measurements"]] == list(snapshot_suite(ENTRIES).rows)
    assert all(set(row) == FIELDS for row in rows.values())
    assert all(row["value"] > 0 for name, row in rows.items() if not name.endswith("_backlog"))
    for shape in Shape:
        for mode in modes_inside():
            assert rows[row_of(shape, mode)]["ratio"] is not None, "beside the same without reflection"
            assert 0 <= rows[f"{row_of(shape, mode)}_backlog"]["ratio"] <= 1
    assert {name: str(goal) for name, goal in goals_of("snapshot").items()} == {
        name: row["goal"] for name, row in rows.items() if row["goal"] is not None
    }
    assert picture.read_bytes().startswith(PNG)
    assert not list(home.iterdir()), "it leaves nothing behind"


def test_every_goal_is_a_row_s_however_few_entries() -> None:
    assert goals_of("snapshot") and not set(goals_of("snapshot")) - set(snapshot_suite(1000).rows)


def test_every_mode_that_reflects_in_this_process_has_its_rows() -> None:
    """RF-03: on and off are compared for each."""
    assert {Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED} <= set(modes_inside()) and Mode.OFF not in modes_inside()
    rows = set(snapshot_suite(1000).rows)
    assert {row_of(shape, mode) for shape in Shape for mode in modes_inside()} <= rows


def test_sizes_are_those_of_the_plot_and_what_was_asked_for() -> None:
    assert sizes_up_to(10_000_000) == [10_000, 100_000, 1_000_000, 10_000_000]
    assert sizes_up_to(2_500) == [2_500]
    assert [label_of(size) for size in (10_000, 1_000_000, 20_500)] == ["10k", "1m", "20500"]
    assert all(size_of(label_of(size)) == size for size in (1, 999, 10_000, 1_234_000, 10_000_000))


def test_what_is_removed_soon_is_removed_two_sessions_later_and_what_stays_is_not() -> None:
    removing, staying = prepared(Shape.REMOVED_SOON, 5 * SESSION_KEYS), prepared(Shape.ALL_STAY, 5 * SESSION_KEYS)
    assert [step.removes for step in removing] == [[], [], *(step.puts for step in removing[:3])]
    assert not any(step.removes for step in staying)
    assert len({key for step in staying for key in step.puts}) == 5 * SESSION_KEYS
    assert [step.puts for step in removing] == [step.puts for step in staying]


def test_a_row_that_is_asked_for_runs_alone(tmp_path: Path) -> None:
    watcher = Silent()
    with run_in(tmp_path, 2000, watcher) as run:
        [row] = snapshot_suite(2000).measure(run, {}, {"apply"})
    assert watcher.rows == ["rebuild", "apply"] and row.value > 0
    assert not list(tmp_path.iterdir())


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(Refused, match="no row restart_clean_1m"):
        snapshot_suite(2000).check({"restart_clean_1m"})


def test_batches_are_of_one_epoch_each_and_have_every_key() -> None:
    batches = list(batches_of(250))
    assert [batch.majors.base for batch in batches] == [1, 2, 3]
    assert sum(batch.count for batch in batches) == 250 * SESSION_KEYS
    assert batches[2].keys.at(0) == keys_of(200)[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", [SETTLED, BEHIND])
def test_what_a_killed_child_wrote_is_there(tmp_path: Path, how: str) -> None:
    with child(tmp_path, 3000, how) as process, watched_tree(process.pid) as peak:
        base = peak.resident
        process.do()
    assert peak.resident > base > 0 and peak.resident > peak.anonymous > 0
    with opened_database(tmp_path) as database:
        rows = sum(batch.count for batch in database.store.batches(STORAGE))
        assert rows == (3 + MORE_SESSIONS if how == SETTLED else 3) * SESSION_KEYS
        assert (database.store.get(STORAGE, keys_of(MORE_FROM)[0]) is not None) == (how == SETTLED)


def test_a_child_that_ends_early_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "database").write_text("no directory")
    with pytest.raises(DiskFailure, match="ended early"), child(tmp_path, 1000, SETTLED) as process:
        process.do()


def test_memory_is_that_of_a_process_and_those_below_it() -> None:
    below = "held = bytearray(64 << 20); print(flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        with watched_tree(process.pid) as peak:
            process.stdin.write(b"\n")
            process.stdin.close()
    assert peak.resident > peak.anonymous > 64 > peak.own > peak.own_anonymous > 0
    with watched_tree(process.pid) as of_none:
        pass
    assert of_none.resident == 0


def test_the_disk_counts_what_is_allocated(tmp_path: Path) -> None:
    file = tmp_path / "below" / "file"
    file.parent.mkdir()
    file.write_bytes(b"x")
    before = directory_bytes(str(tmp_path))
    with file.open("r+b") as opened:
        os.posix_fallocate(opened.fileno(), 0, 1 << 20)
    assert directory_bytes(str(tmp_path)) - before >= (1 << 20) - 4096


def test_a_store_that_has_lost_keys_ends_the_run(tmp_path: Path) -> None:
    with opened_database(tmp_path) as database:
        write(database, puts(range(2)))
        database.catch_up()
        with pytest.raises(Damage, match="1600 keys should be left, 2000 are there"):
            disk._live_keys(database, 2)


def test_a_picture_is_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    names = ("restart_clean_10k", "restart_killed_10k", "memory_10k", "memory_anonymous_10k", "disk_10k", "disk")
    rows = [Measurement(name, 1.0, "s", 2.0, 0.5, None, True) for name in names]
    draw(rows, tmp_path / "some.png")
    draw(rows[:1], tmp_path / "less.png")
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in ("some.png", "less.png"))
