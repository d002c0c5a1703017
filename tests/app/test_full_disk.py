"""A disk that is really full, with a real RocksDB on it: a file system of some MiB, mounted for one process alone.

The memory disk (tests/log/test_bad_input.py) covers our own files only; RocksDB writes its files without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WAYS = (["unshare", "--mount", "--map-root-user"], ["unshare", "--mount"])  # the second one is for root only


def in_a_mount_namespace() -> list[str]:
    """How a process is started that may mount something for itself."""
    for way in WAYS:
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return way
    pytest.fail("this test needs a small file system of its own: run it as root, or allow user namespaces")


def played(scenario: str, place: Path) -> dict[str, Any]:
    command = [*in_a_mount_namespace(), sys.executable, "-m", "tests.app.disk_to_be_filled", scenario, str(place)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    findings: dict[str, Any] = json.loads(done.stdout)
    return findings


def check_nothing_lost(findings: dict[str, Any]) -> None:
    assert findings["error"] is None, "a full disk holds writers up, it does not end them"
    assert findings["read while full"], "reading continues"
    assert findings["view while full"], "and no view is closed by a retry that fails"
    assert findings["read after"] and findings["read again"], "everything that was acknowledged is there"
    assert findings["alarms again"] == [], "the alarm is gone"


@pytest.mark.slow
def test_a_full_disk_holds_writers_up_and_everything_continues_when_there_is_room(tmp_path: Path) -> None:
    """Promise 3: without a restart; the alarm names the file and says what to do, and goes away."""
    findings = played("one", tmp_path)
    check_nothing_lost(findings)
    assert findings["acknowledged"] >= findings["at"] + 40
    assert findings["opening"].startswith("OutOfRoom: ") and "No space left on device" in findings["opening"]
    assert "free some space on this disk" in findings["opening"]
    waits = next(alarm for alarm in findings["alarms"] if alarm.startswith("writers wait for room: "))
    assert str(tmp_path) in waits and "No space left on device; free some space on this disk" in waits


@pytest.mark.slow
def test_a_store_whose_disk_is_full_stops_reflection_only(tmp_path: Path) -> None:
    """X-03: the log keeps what the store cannot take, and is purged again when the store has it."""
    findings = played("store", tmp_path)
    check_nothing_lost(findings)
    assert findings["while full"] > 0, "writers do not notice"
    assert not findings["opening"] or findings["opening"].startswith("OutOfRoom: "), "and nothing is set aside for that"
    [alarm] = findings["alarms"]
    assert alarm.startswith("reflection is stopped: ") and str(tmp_path / "db" / "store") in alarm
    assert "No space left on device; free some space on this disk" in alarm
