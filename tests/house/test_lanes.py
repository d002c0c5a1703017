"""A lane of `make test`, or a group of `.ci/run`, that fails keeps no other one from running, and all are reported."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.house.source_tree import ROOT


def stand_in(folder: Path, name: str, lines: str) -> Path:
    """A command of this name that notes how it was called."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$WARREN_SPARK $*" >> {folder}/called\n{lines}\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def called(folder: Path) -> list[str]:
    return (folder / "called").read_text(encoding="utf-8").splitlines()


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "MAKEFLAGS")}
    return subprocess.run(command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=False)


def test_every_spark_lane_runs_although_the_first_has_failed(tmp_path: Path) -> None:
    pytest_ = stand_in(
        tmp_path, "pytest", 'echo "FAILED tests/x.py::test_$WARREN_SPARK"; [ "$WARREN_SPARK" = connect ]'
    )
    subqueues = str(tmp_path / "lanes")
    result = run(["make", "--no-print-directory", "test-spark", f"PYTEST={pytest_}"], LANES=subqueues)
    assert result.returncode != 0
    assert [line.split()[0] for line in called(tmp_path)[1:]] == ["standalone", "connect"] and len(
        called(tmp_path)
    ) == 3
    report = run([".ci/lane", "--report"], LANES=subqueues)
    assert report.returncode != 0
    results = [line.split() for line in report.stdout.splitlines() if " s " in line]
    assert sorted((line[0], line[3]) for line in results) == [
        ("connect", "good"),
        ("spark", "FAILED"),
        ("standalone", "FAILED"),
    ]
    assert "FAILED tests/x.py::test_standalone" in report.stdout, "by the name of the test"


def test_lanes_that_are_good_make_a_good_report(tmp_path: Path) -> None:
    subqueues = str(tmp_path / "lanes")
    assert run([".ci/lane", "plain", "true"], LANES=subqueues).returncode == 0
    assert run([".ci/lane", "--report"], LANES=subqueues).returncode == 0


def test_ci_runs_every_group_and_lists_what_failed(tmp_path: Path) -> None:
    stand_in(tmp_path, "make", '[ "$1" != check ] && [ "$1" != mutants ]')
    result = run([".ci/run"], PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.returncode != 0
    assert [line.split()[-1] for line in called(tmp_path)][-4:] == ["check", "test", "test-pure", "mutants"]
    summary = result.stdout.partition("=== seconds")[2]
    failed = [line.split()[0] for line in summary.splitlines() if "FAILED" in line]
    assert failed == ["check", "mutants", "total"]


def test_ci_ends_when_the_setup_fails(tmp_path: Path) -> None:
    stand_in(tmp_path, "make", '[ "$1" != setup-spark ]')
    assert run([".ci/run"], PATH=f"{tmp_path}:{os.environ['PATH']}").returncode != 0
    assert [line.split()[-1] for line in called(tmp_path)] == ["setup", "setup-spark"]
