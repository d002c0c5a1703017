"""Processes killed with SIGKILL in the middle of their work, on every kind of Spark; the result is still right."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.core.held_tasks import held, jvm_of, worker_pids
from tests.pipeline.process_group import ProcessGroup, wait_until
from tests.pipeline.spark_kinds import STANDALONE, Place
from tests.pipeline.streaming import committed, epochs_in, stream_to_end
from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, EPOCHS, write
from warren.log.store import LogStore
from warren.pipeline import read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # every wait in it has its own limit
MORE_EPOCHS = 90


def test_a_task_whose_process_is_killed_is_done_again(spark: Any, kind: str, store: LogStore, tmp_path: Path) -> None:
    """X-11: an executor (standalone) or the Python worker of a task (else) dies mid-job; every entry comes once."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    with held(read(store.directory, columns=["epoch", "lsn"], spark=spark), tasks, tasks=1) as result:
        worker = worker_pids(tasks)[0]
        os.kill(jvm_of(worker) if kind == STANDALONE else worker, signal.SIGKILL)
    rows = result()
    assert sorted(row.epoch for row in rows) == [n for n in range(1, EPOCHS + 1) for _ in range(ENTRIES_PER_EPOCH)]
    assert len({row.lsn for row in rows}) == len(rows)
    assert set(worker_pids(tasks)) - {worker}, "another process did it again"


def test_a_stream_whose_client_is_killed_resumes(spark: Any, place: Place, store: LogStore, tmp_path: Path) -> None:
    """X-11, RF-06: the client of a stream, with its JVM if it has one, is killed between batches or in one; another
    resumes at its checkpoint, and every durable entry is in the table once. (With Connect the server may still run the
    killed client's query: the new one takes the checkpoint over.)"""
    last = [write(store, number) for number in range(MORE_EPOCHS)][-1]
    store.witness()
    command = [sys.executable, "-m", "tests.pipeline.streaming", *place.words(), store.directory, str(tmp_path)]
    checkpoint = tmp_path / "checkpoint"
    with ProcessGroup(command, tmp_path / "client.log") as client:
        wait_until("two batches", lambda: len(committed(checkpoint)) >= 2, client)
        client.kill()
    done = len(committed(checkpoint))
    assert done < last - 1, "there was more to come"
    stream_to_end(spark, store.directory, tmp_path)
    assert epochs_in(spark, tmp_path) == [epoch for epoch in range(1, last + 1) for _ in range(ENTRIES_PER_EPOCH)]
