"""`warren pipeline export --follow` beside a store at work: killed with SIGKILL, JVM and all, at last asked to end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.process_group import ProcessGroup, wait_until
from tests.pipeline.table_stage import delta, entries_in, leftovers
from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, ten_epochs, write
from warren.files.environment import Environment
from warren.log.store import LogStore
from warren.pipeline.jobs.delta import DeltaExport

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_an_export_killed_twice_and_run_again_has_each_entry_once(tmp_path: Path) -> None:
    """X-11, RF-06: killed somewhere in a batch, whatever it was doing; the third is asked to end, and ends well."""
    target = str(tmp_path / "entries")
    table = DeltaExport(Environment.real(), target)
    output = tmp_path / "told.json"
    with ten_epochs(str(tmp_path / "log")) as store:
        for turn in range(2):
            aim = exported(table) + 3
            words = command(store, target, "--batch-epochs", "2")
            with ProcessGroup(words, tmp_path / f"killed-{turn}.log") as exporter:
                wait_until("two batches more", partial(is_ahead, store, table, aim), exporter)
                exporter.kill()
            assert exported(table) < store.durable, "there was more to come"
        with output.open("w") as out, subprocess.Popen(command(store, target, "--json"), stdout=out) as last:
            try:
                wait_until("everything", lambda: exported(table) >= store.durable)
                last.send_signal(signal.SIGTERM)
                assert last.wait(60) == 0
            finally:
                last.kill()
        durable = store.durable
    assert json.loads(output.read_text())["epoch"] == durable
    epochs = [entry[0] for entry in entries_in(delta(target))]
    assert epochs == [epoch for epoch in range(1, durable + 1) for _ in range(ENTRIES_PER_EPOCH)]
    assert leftovers(target) == []


def command(store: LogStore, target: str, *more: str) -> list[str]:
    words = ["pipeline", "export", store.directory, target, "--follow", "--interval", "0.1"]
    return [sys.executable, "-m", "warren.cli.main", *words, "--master", "local[2]", *more]


def is_ahead(store: LogStore, table: Any, aim: int) -> bool:
    """Has the table come so far? The store is always some epochs ahead of it."""
    while store.durable < exported(table) + 8:
        write(store, store.durable)
    store.witness()
    return exported(table) >= aim


def exported(table: Any) -> int:
    position = table.position()
    return position.epoch if position else 0
