"""The session is of the kind that was asked for, and at the place that this run has started: not at one that happens
to be there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.core.held_tasks import held, jvm_of, worker_pids
from tests.pipeline.spark_kinds import CONNECT, STANDALONE, TOKEN, WORKERS, Place

pytestmark = pytest.mark.spark


def test_the_session_is_at_the_place_that_was_started(spark: Any, place: Place) -> None:
    """X-11: a Connect session is one, and its server has the token of its start; a classic one has our master."""
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect.")
    assert is_connect == (place.kind == CONNECT)
    assert spark.conf.get(TOKEN) == place.token
    if is_connect:
        assert f"sc://{spark.client._builder.endpoint}" == place.url
    else:
        assert spark.sparkContext.master == place.url


def test_the_work_is_done_by_the_processes_of_the_place(spark: Any, place: Place, tmp_path: Path) -> None:
    """X-11: two tasks that run at the same time, below our own JVM, the Connect server, or an executor each."""
    with held(spark.range(0, 2, 1, 2), tmp_path, tasks=2) as result:
        jvms = {jvm_of(pid) for pid in worker_pids(tmp_path)}
        groups = {os.getpgid(pid) for pid in jvms}
    assert sorted(row.id for row in result()) == [0, 1]
    assert groups == set(place.worker_groups or [os.getpgid(0)])
    assert len(jvms) == (WORKERS if place.kind == STANDALONE else 1)
