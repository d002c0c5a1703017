"""`warren demo`, and the progress that long commands show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import run
from warren.cli import progress
from warren.cli.progress import Bar


def test_the_demo_shows_the_store_at_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "store"
    ended = run(capsys, "demo", "--seconds", 0, "--directory", place)
    assert (ended.code, ended.err) == (0, "")
    for word in ("a second, durable epoch 1", "opened again", "10000 keys", "good", f"warren log inspect {place}"):
        assert word in ended.out
    assert run(capsys, "log", "verify", place).code == 0


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Bar("checking", 4, "files") as bar:
        bar.step()
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
        bar.step()
    assert capsys.readouterr() == ("", "checking: 2 of 4 files\n")


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Bar("checking", 4, "files") as bar:
        bar.step(4)
    assert capsys.readouterr().out == ""
