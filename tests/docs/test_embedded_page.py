"""The page about embedded use: its examples run, one behind the other, and its commands on what they left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source_tree import DOCS

PAGE = (DOCS / "embedded.md").read_text(encoding="utf-8")


def run_examples(directory: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 4
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example.replace("/var/lib/app", str(directory)), "docs/embedded.md", "exec"), names)


def test_the_examples_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_examples(tmp_path)
    assert capsys.readouterr().out == "b'resize 7'\n"


def test_the_commands_that_the_page_names_run_on_what_its_examples_left(tmp_path: Path) -> None:
    run_examples(tmp_path)
    commands = re.findall(r"`warren (log [a-z]+) /var/lib/app/log`", PAGE)
    assert commands == ["log inspect", "log verify"]
    for command in commands:
        line = [sys.executable, "-m", "warren.cli.main", *command.split(), str(tmp_path / "log")]
        done = subprocess.run(line, capture_output=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
