"""A child process says when it is ready and what it found; it never outlives its block."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.bench.killed_child import child
from warren.base.errors import DiskFailure

TALKING = """
from tools.bench.killed_child import done, get_ready
from pathlib import Path
import sys
get_ready()
Path(sys.argv[1]).write_text("worked")
done({"seconds": 1.5, "count": 3})
Path(sys.argv[1]).write_text("went on")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "talking.py").write_text(TALKING)
    (tmp_path / "silent.py").write_text("")
    (tmp_path / "failing.py").write_text(TALKING.replace("Path(sys.argv[1])", "sys.exit(3)"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return "talking"


def test_it_works_on_a_signal_reports_its_readings_and_is_killed(tmp_path: Path, module: str) -> None:
    trace = tmp_path / "trace"
    with child(module, trace) as process:
        assert not trace.exists(), "it waits for the word"
        assert process.do() == {"seconds": 1.5, "count": 3}
        assert trace.read_text() == "worked"
        os.kill(process.pid, 0)
    assert trace.read_text() == "worked", "it was killed while it waited"
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_second_signal_starts_it_again(tmp_path: Path, module: str) -> None:
    trace = tmp_path / "trace"
    with child(module, trace) as process:
        process.do()
        with pytest.raises(DiskFailure, match="ended early"):
            process.do()
    assert trace.read_text() == "went on"


def test_one_that_ends_early_ends_the_run(tmp_path: Path, module: str) -> None:
    with pytest.raises(DiskFailure, match="ended early"), child("silent"):
        pass
    with pytest.raises(DiskFailure, match="ended early"), child("failing", tmp_path / "trace") as process:
        process.do()
