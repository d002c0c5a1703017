"""A real SQLite file under `kill -9`: what was answered is there, whole, and nothing twice (HS-04, BQ-04)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.lives import Lives
from tests.queues.sql_stage import SqlStage
from tests.queues.sql_to_be_killed import reached


def killed(path: Path, times: int, seed: int) -> int:
    rng = random.Random(seed)
    lives = Lives("tests.queues.sql_to_be_killed", str(path))
    done = last = 0
    try:
        while done < times or last < times:
            reported = [number for _, number in lives.one(rng.choice([0.05, 0.1, 0.3]) * rng.random())]
            it = SqlStage(path)
            assert max([last, *reported]) <= reached(it) <= max([last, *reported]) + 1
            last, done = reached(it), done + 1
            it.store.close()
    finally:
        lives.close()
    return last


def test_hs_04_queues_in_sql_killed_twenty_times_hold_what_was_answered(tmp_path: Path) -> None:
    """HS-04, BQ-04: every step is a put, a move between two queues and a drop; it is there as a whole or not at all."""
    assert killed(tmp_path / "q.sqlite", 20, seed=1) >= 20


@pytest.mark.torture
def test_queues_in_sql_killed_a_hundred_times_hold_what_was_answered(tmp_path: Path) -> None:
    assert killed(tmp_path / "q.sqlite", 100, seed=2) >= 100
