"""The page about users and vhosts: its commands run, one behind the other, and answer what it shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.house.source_tree import DOCS
from tests.server.broker_process import BrokerProcess

SECONDS_MAX = 120
ADDRESS = "http://localhost:15672"
STRICT = 'set -eu\ncurl() { command curl --fail-with-body --silent --show-error --write-out "\\n" "$@"; }\n'


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    page = (DOCS / "users_and_vhosts.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(sh|json)\n(.*?)```", page, re.DOTALL)
    commands = "".join(text for kind, text in blocks if kind == "sh")
    shown = [text.strip() for kind, text in blocks if kind == "json"]
    assert commands.count("curl ") == 19 and len(shown) == 2
    with BrokerProcess(tmp_path / "data") as broker:
        script = STRICT + commands.replace(ADDRESS, f"http://127.0.0.1:{broker.management_port}")
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path
        )
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [line for line in lines if line in shown] == shown
    guest = '{"user":"guest","vhost":"/","configure":".*","write":".*","read":".*"}'
    assert lines[-4:] == ['[{"name":"guest"}]', "[]", '[{"name":"/"}]', f"[{guest}]"]
