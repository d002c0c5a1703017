"""A broker on a disk that is really full: publishers are blocked, consumers continue, all without a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.test_full_disk import ROOT, in_a_mount_namespace


@pytest.mark.parametrize(
    "scenario", ["alarm", "full", "bare", "acked", "still", "stopped", "history", "started", "waiting"]
)
def test_publishers_wait_for_room_and_consumers_continue(tmp_path: Path, scenario: str) -> None:
    """Promise 3. `alarm`: there is as little room as is to be kept. `full`: there is none at all, and then a crash.
    `acked`: DESIGN rule 7, acknowledgements become durable meanwhile."""
    line = [
        *in_a_mount_namespace(),
        sys.executable,
        "-m",
        "tests.server.broker_on_a_full_disk",
        scenario,
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
