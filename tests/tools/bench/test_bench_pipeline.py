"""`warren bench pipeline` on few entries: it measures every row, says so in the agreed form, and cleans up. Times are
not judged here: a test machine has other things to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools.bench.test_bench_log import FIELDS, Silent
from tools.bench import process_tree
from tools.bench.goals import goals_of
from tools.bench.pipeline.reads import check
from tools.bench.pipeline.rows import PIPELINE
from tools.bench.pipeline.run import FILES, Took, copy_of, middle, rates, stopped_store
from tools.bench.process_tree import Process, cpu_seconds, spark_workers, tree_of
from tools.bench.run import run_in
from tools.bench.stores import log_files
from tools.bench.workload import KEYS_VARIABLE, SESSION_ENTRIES
from warren.base.errors import Damage, Refused
from warren.files.local import LocalFiles
from warren.log.read.read_only import open_for_reading

ENTRIES = 20_000


def bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warren.cli.main", "bench", "pipeline", "--directory", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.spark
@pytest.mark.slow
def test_every_row_is_measured_and_printed_as_one_object(tmp_path: Path) -> None:
    """RF-11: a puller that is no part of the store, in processes of its own, measured alone."""
    done = bench(tmp_path, "--json", "--entries", str(ENTRIES))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {row["name"]: row for row in result["measurements"]}
    assert [row["name"] for row in result["measurements"]] == list(PIPELINE.rows)
    assert all(set(row) == FIELDS and row["value"] > 0 for row in rows.values())
    assert {name: str(goal) for name, goal in goals_of("pipeline").items()} == {
        name: row["goal"] for name, row in rows.items() if row["goal"] is not None
    }
    assert (
        rows["compaction"]["reference"] == rows["compaction_beside_jvm"]["reference"] == rows["jvm_group_by"]["value"]
    )
    assert rows["compaction_growth"]["ratio"] is not None and rows["compaction_memory"]["reference"] is not None
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_every_goal_is_a_row_s() -> None:
    assert goals_of("pipeline") and not set(goals_of("pipeline")) - set(PIPELINE.rows)


def test_an_unknown_row_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no row append_columns"):
        PIPELINE.check({"append_columns"})


def test_a_store_to_read_has_eight_files_and_what_was_asked_for(tmp_path: Path) -> None:
    watcher = Silent()
    entries = FILES * SESSION_ENTRIES + 1000
    with run_in(tmp_path, entries, watcher) as run, run.room() as room:
        store = stopped_store(run, room, entries)
        assert len(log_files(room)) >= FILES
        records = open_for_reading(LocalFiles(), store.directory).records()
        assert sum(record.entries for record in records if record.name.startswith("pwal")) == entries == store.entries
        assert store.distinct is not None and 0.79 < store.distinct / entries < 0.81
        with copy_of(store) as copy:
            assert copy.directory != store.directory and len(log_files(copy.room)) == len(log_files(room))
        assert not Path(copy.directory).exists()
    with run_in(tmp_path, entries, watcher) as run, run.room() as room:
        assert stopped_store(run, room, 1000, KEYS_VARIABLE).distinct is None


def test_a_wrong_answer_ends_the_run() -> None:
    check("keys", 5, 5)
    check("keys", 5, None)
    with pytest.raises(Damage, match="5 keys were expected, 4 are there"):
        check("keys", 4, 5)


def test_the_middle_one_of_three_counts_with_its_own_cpu_seconds() -> None:
    took = middle([Took(3.0, 1.0), Took(1.0, 9.0), Took(2.0, 5.0)])
    [row, cpu] = rates("kv", 100, took, 25.0)
    assert (row.name, row.value, row.ratio, cpu.name, cpu.value) == ("kv", 50.0, 2.0, "kv_cpu", 5.0)


def test_cpu_seconds_are_those_of_all_processes_below_the_dead_ones_included() -> None:
    burn = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"
    before = cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", burn.format(0.3)], check=True)
    ended = cpu_seconds(os.getpid())
    assert ended - before >= 0.25, "one that has ended"
    command = [sys.executable, "-c", burn.format(0.3) + "print(flush=True)\nimport sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert cpu_seconds(os.getpid()) - ended >= 0.25, "one that lives"
        assert process.pid in {each.pid for each in tree_of(os.getpid())}
        process.stdin.close()


def test_what_a_jvm_started_is_a_worker(tmp_path: Path) -> None:
    """The kernel knows a process by the name of its file: a shell by the name of java does for one."""
    java = tmp_path / "java"
    java.symlink_to("/bin/sh")
    with subprocess.Popen([str(java), "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        while Path(f"/proc/{child}/comm").read_text() == "java\n":  # forked, and not yet a program of its own
            time.sleep(0.001)
        workers = [worker.pid for worker in spark_workers(os.getpid())]
        os.kill(child, signal.SIGKILL)
    assert child in workers and process.pid not in workers


def test_only_workers_that_did_something_count_for_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    result = [[Process(1, "python", 0, 5.0), Process(2, "python", 0, 1.0)], [Process(1, "python", 0, 5.0)]]
    result[1] += [Process(2, "python", 0, 1.5), Process(3, "python", 0, 0.1)]
    monkeypatch.setattr(process_tree, "spark_workers", lambda pid: result.pop(0))
    monkeypatch.setattr(process_tree, "status_mib", lambda pid, name: {1: 100.0, 2: 20.0, 3: 3.0}[pid])
    peak = process_tree.WorkerMemoryPeak()
    peak.look()
    assert peak.mib == 23.0


def test_without_spark_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from warren.cli.main import main

    monkeypatch.setattr("warren.pipeline.session.find_spec", lambda name: None)
    assert main(["bench", "pipeline"]) == 64
    assert "make setup-spark" in capsys.readouterr().err
