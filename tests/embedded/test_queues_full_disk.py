"""Queues on a disk that is really full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.test_full_disk import ROOT, in_a_mount_namespace


@pytest.mark.slow
def test_putters_wait_for_room_and_getters_go_on(tmp_path: Path) -> None:
    """Promise 3: nothing is lost, nothing comes twice, and no restart is needed."""
    command = [*in_a_mount_namespace(), sys.executable, "-m", "tests.app.queues_on_a_full_disk", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)
    assert findings["error"] is None and findings["acknowledged"] >= findings["at"] + 40
    assert any("free some space on this disk" in alarm for alarm in findings["alarms"])
    assert findings["got while full"] == list(range(5))
    assert findings["left"] == list(range(5, findings["acknowledged"])) and findings["whole"]
