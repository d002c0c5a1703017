"""What stands in the documents, and an owner at work beside a session of this process. What must be right on every kind
of Spark is tests/pipeline/core."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.house.source_tree import DOCS
from tests.pipeline.ten_epochs import ten_epochs
from warren.pipeline import read
from warren.snapshot.reflection import Mode, ReflectionSettings

pytestmark = pytest.mark.spark


def test_the_examples_of_the_page_run(spark: Any, tmp_path: Path) -> None:
    page = (DOCS / "pipeline.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 5
    names: dict[str, Any] = {}
    with warren.open(str(tmp_path / "data"), reflection=ReflectionSettings(Mode.OFF)) as db:
        db.kv("users").put_many({b"%d" % number: b"value" for number in range(100)})
    with ten_epochs(str(tmp_path / "log")):
        for example in examples:
            exec(compile(example.replace("/var/lib/app", str(tmp_path)), "docs/pipeline.md", "exec"), names)
    assert spark.read.parquet(str(tmp_path / "table")).count() == 60
    assert names["done"]["entries"] > 100


def test_an_owner_in_another_process_does_not_disturb(spark: Any, tmp_path: Path) -> None:
    """X-06, X-11, RF-06: a process appends, rotates, compacts and purges while Spark reads; what is read is whole."""
    path = str(tmp_path / "log")
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdin is not None
    try:
        assert writer.stdout.readline() == b"ready\n"
        for _ in range(3):
            counts = read(path, columns=["epoch"], spark=spark).groupBy("epoch").count().collect()
            epochs = sorted(row.epoch for row in counts)
            assert all(row["count"] == 10 for row in counts) and len(set(epochs)) == len(epochs)
            assert not epochs or epochs == list(range(epochs[0], epochs[-1] + 1)), "no gap behind the horizon"
            state = read(path, view="kv", columns=["key", "major"], spark=spark).collect()
            assert len(state) == 10 and len({row.major for row in state}) == 1, "one epoch wrote every key"
    finally:
        writer.stdin.close()
        writer.wait(30)
        writer.stdout.close()


_WRITER = """
import sys, threading
from dataclasses import replace
from warren.log.settings import LogSettings
from warren.log.store import LogStore
settings = LogSettings(use_worker_process=False, retention_seconds=0.5, snapshot_at_stop=False)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
store = LogStore.open(sys.argv[1], settings)
turn = 0
while not ended.wait(0.002):
    session = store.begin()
    for key in range(10):
        session.put(1, b'key-%d' % key, b'%d' % turn)
    session.commit()
    turn += 1
    if turn % 40 == 0:
        store.compact()
        store.purge()
    if turn == 60:
        store.witness()
        print('ready', flush=True)
store.close()
"""
