"""What the README says can be typed as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_example_publishes_and_reads_back(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'resize 7'\n", "")


def test_the_commands_the_readme_names_run_on_what_its_example_left(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True, capture_output=True)
    commands = re.findall(r"`(warren log [a-z]+ data/log)`", text)
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "warren.cli.main", *command.split()[1:]],
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
