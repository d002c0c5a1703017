"""`kill -9` in mid-publish, with clients in other processes. Any number by `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.kill_drill import SHAPES, Drill, run

KILLS = 5  # of each shape: twenty in all


@pytest.mark.slow
@pytest.mark.parametrize(("body_bytes", "queues"), SHAPES)
def test_what_was_confirmed_outlives_the_broker(body_bytes: int, queues: int, tmp_path: Path) -> None:
    """Nothing confirmed is lost, nothing comes twice without a flag, order is kept."""
    report = run(Drill(KILLS, body_bytes, queues, life_seconds_max=0.8), tmp_path)
    assert report.confirmed > 100
    assert report.delivered >= report.confirmed * queues
