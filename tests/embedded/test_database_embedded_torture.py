"""A campaign: an embedding program with a real RocksDB, killed at random, eighteen times in each way of reflecting.

`tests/embedded/test_database_embedded.py` has six kills per mode at a fixed place; these come at any moment, also
before the directory is open again. Run it by `pytest -m torture tests/embedded`.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warren
from tests.embedded.test_database_embedded import _CHILD, WAYS

KILLS = 18  # of each way
SETTLED = b"x" * 100  # what the child writes under each number


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", WAYS)
def test_the_state_equals_what_was_acknowledged_whenever_the_program_is_killed(tmp_path: Path, mode: str) -> None:
    """X-03: every number that was acknowledged is there with its value, one more at most, and the log is not outrun."""
    rng, acknowledged, flushed = random.Random(f"{mode} 5"), -1, 0
    for kill in range(KILLS):
        acknowledged = max(acknowledged, lived(tmp_path, mode, acknowledged, rng))
        with warren.open(str(tmp_path)) as db:
            stored = {int(key): value for key, value in db.kv("numbers").items()}
            assert set(range(acknowledged + 1)) <= set(stored), f"kill {kill}: something that was acknowledged is gone"
            assert stored == dict.fromkeys(range(len(stored)), SETTLED), f"kill {kill}"
            assert len(stored) <= acknowledged + 2, f"kill {kill}: more than the one that was under way"
            acknowledged = len(stored) - 1
            assert flushed <= db.database.store.applied.epoch <= db.database.log.durable
            assert not db.database.problems
            flushed = db.database.log.manifest.state.reflected
    assert acknowledged > 10 * KILLS, "the program hardly wrote anything"
    assert flushed > 0


def lived(home: Path, mode: str, acknowledged: int, rng: random.Random) -> int:
    """One process, ended by SIGKILL; the last number it printed as acknowledged."""
    command = [sys.executable, "-c", _CHILD, str(home), mode, str(acknowledged + 1)]
    handle = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert handle.stdout is not None
    if rng.random() < 0.8:
        select.select([handle.stdout], [], [], 60)  # it writes: from here on at any moment
    time.sleep(rng.random() * rng.choice([0.02, 0.2, 1.0]))
    os.kill(handle.pid, signal.SIGKILL)
    lines = handle.communicate()[0].split(b"\n")[:-1]  # the last piece is no whole line
    return int(lines[-1]) if lines else acknowledged
