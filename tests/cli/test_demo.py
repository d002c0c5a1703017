"""`warren demo`, and the progress that long commands show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import run
from warren.cli import output
from warren.cli.output import Bar


def test_the_demo_shows_the_store_at_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "store"
    ended = run(capsys, "demo", "--seconds", 0, "--directory", place)
    assert (ended.code, ended.err) == (0, "")
    for word in ("a second, durable epoch 1", "opened again", "10000 keys", "good", f"warren log inspect {place}"):
        assert word in ended.out
    assert run(capsys, "log", "verify", place).code == 0


def test_the_demo_takes_the_options_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OP-05, OP-09 on the command line: containers of at least 512 KiB, as many as asked for to begin with."""
    place = tmp_path / "store"
    options = ("--container-size", 1000, "--initial-containers", 3, "--max-write-buffers", 2)
    assert run(capsys, "demo", "--seconds", 0, "--directory", place, *options).code == 0
    assert (place / "pwal_0000").stat().st_size == 3 * (512 << 10)
    assert run(capsys, "demo", "--seconds", 0, "--directory", place, "--container-size", 4 << 20).code == 0
    assert (place / "pwal_0000").stat().st_size == 3 * (512 << 10), "a store keeps its containers"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Bar("checking", 4, "files") as bar:
        bar.step()
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
        bar.step()
    assert capsys.readouterr() == ("", "checking: 2 of 4 files\n")


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Bar("checking", 4, "files") as bar:
        bar.step(4)
    assert capsys.readouterr().out == ""
