"""A store is used by the process that opened it. In a forked child every operation is refused, and no file changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery import Celery

import warren
from tests.app.store_to_be_forked import CHILDREN, KEYS
from tests.server.broker_process import BrokerProcess

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("store_to_be_forked.py")


@pytest.mark.parametrize("kind", ["processes", "preload"])
def test_every_operation_of_a_forked_child_is_refused_and_the_store_stays_whole(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "db"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(directory)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    written = [json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("db-*.json")]
    assert len(written) == CHILDREN
    for results in written:
        assert {name: result[0] for name, result in results.items()} == dict.fromkeys(results, "ForkedProcess")
        assert all(str(directory) in text and "is a fork of" in text for _, text in results.values())
    with warren.open(str(directory)) as db:
        users = db.kv("users")
        assert (len(users), b"child" in users) == (2 * KEYS, False)
        assert list(db.queue("jobs").browse()) == [b"job 0", b"job 1", b"job 2", b"parent 0", b"parent %d" % KEYS]
        assert db.alarms() == []


def test_a_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), "survivor", str(tmp_path / "db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdin is not None and started.stdout is not None
        started.stdout.readline()
        started.wait()
        with warren.open(str(tmp_path / "db")) as db:
            assert len(db.kv("users")) == KEYS
        started.stdin.close()


def test_a_child_that_drops_its_copy_of_a_store_changes_no_file(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(PROGRAM), "dropped", str(tmp_path / "store")], timeout=60, check=True)


@pytest.mark.slow
def test_a_celery_worker_that_forks_is_refused_in_its_tasks_and_its_main_process_writes_on(tmp_path: Path) -> None:
    directory = tmp_path / "db"
    with BrokerProcess(tmp_path / "data") as broker:
        url = f"amqp://guest:guest@127.0.0.1:{broker.port}//"
        command = [sys.executable, "-m", "celery", "-A", "tests.app.celery_on_a_store", "worker"]
        environment = {**os.environ, "STORE_BROKER": url, "STORE_DIRECTORY": str(directory)}
        options = ["--pool=prefork", "--concurrency=2", "--without-gossip", "--without-mingle"]
        with subprocess.Popen([*command, *options], cwd=ROOT, env=environment) as worker:
            try:
                with Celery(broker=url, backend="rpc://") as app:
                    failures = [app.send_task("write").get(timeout=60, propagate=False) for _ in range(3)]
                    app.backend.result_consumer.stop()
            finally:
                worker.terminate()
        assert worker.returncode == 0
    assert [type(failure).__name__ for failure in failures] == ["ForkedProcess"] * 3
    assert str(directory) in str(failures[0])
    with warren.open(str(directory)) as db:
        assert dict(db.kv("users")) == {b"ready": b"parent", b"shut down": b"parent"}
