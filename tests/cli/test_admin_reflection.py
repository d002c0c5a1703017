"""`warren reflection`: commands to the reflecting process: the owner of the database, or its puller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.stage import run, run_process
from tests.snapshot.watch_stage import QUICK, opened
from warren.snapshot.reflection import Mode

# Nothing is reflected or flushed in the background here, only on command.
IDLE = replace(QUICK, lag_seconds=1e6, flush_seconds=1e6)


@pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED, Mode.WATCH])
def test_rf_12_reflection_is_paused_resumed_persisted_and_inspected_from_another_process(
    mode: Mode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RF-12: one socket and one command, whichever process reflects."""
    with opened(tmp_path, replace(IDLE, reflection=mode)) as db:
        db.kv("some")[b"a"] = b"v"
        db.database.log.witness()
        answer = run(capsys, "reflection", "persist", tmp_path, "--json").json
        assert answer["flushed"]["epoch"] == db.database.log.durable
        assert run(capsys, "reflection", "pause", tmp_path, "--json").json == {"status": "ok", "is_paused": True}
        reflection = db.database.reflection
        assert reflection is not None
        db.kv("some")[b"b"] = b"v"
        status = run(capsys, "reflection", "status", tmp_path, "--json").json
        assert (status["mode"], status["is_paused"], status["failure"]) == (mode, True, None)
        assert status["flushed"]["epoch"] == answer["flushed"]["epoch"] < db.database.log.durable
        shown = run(capsys, "reflection", "status", tmp_path)
        assert shown.code == 0 and f"reflection {mode} by process {status['pid']}, paused" in shown.out
        assert f"flushed up to {answer['flushed']['epoch']}" in shown.out
        assert run(capsys, "reflection", "resume", tmp_path).out == "reflection: resumed\n"
        assert not run(capsys, "reflection", "status", tmp_path, "--json").json["is_paused"]
        db.database.log.witness()
        persisted = run_process("reflection", "persist", tmp_path)
        assert persisted == (0, f"reflection: flushed up to epoch {db.database.log.durable}\n", "")
        assert db.database.log.manifest.state.reflected == db.database.log.durable or mode is Mode.WATCH
    gone = run(capsys, "reflection", "status", tmp_path)
    assert gone.code == 64 and "no process reflects" in gone.err and "hint: open it first" in gone.err


def test_reflection_that_is_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(tmp_path, replace(IDLE, reflection=Mode.OFF)):
        assert run(capsys, "reflection", "status", tmp_path, "--json").json["mode"] == "off"
        ended = run(capsys, "reflection", "pause", tmp_path)
        assert ended.code == 64 and "reflection is off" in ended.err and "hint:" in ended.err


def test_a_directory_that_is_no_database_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "pause", "resume", "persist"):
        ended = run(capsys, "reflection", command, tmp_path)
        assert ended.code == 64 and "is no directory of a database" in ended.err
