"""The page about exposing a broker: its commands run, and the broker is as the page says afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.house.source_tree import DOCS
from tests.server.broker_process import BrokerProcess

SECONDS_MAX = 120


@pytest.mark.slow
def test_the_commands_of_the_page_run_and_guest_is_gone(tmp_path: Path) -> None:
    page = (DOCS / "expose_safely.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    assert commands.count("warren ctl ") == 12
    with BrokerProcess(tmp_path / "data") as broker:
        script = "set -eu\n" + commands.replace("/var/lib/warren", broker.directory)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        with httpx.Client(base_url=f"http://127.0.0.1:{broker.management_port}/api", trust_env=False) as client:
            assert client.get("/overview", auth=("guest", "guest")).status_code == 401
            login = ("ops", "another long random password")
            assert {each["name"] for each in client.get("/users", auth=login).json()} == {"shop", "ops"}
            (limits,) = client.get("/user-limits/shop", auth=login).json()
            assert limits["value"] == {"max-connections": 200, "max-channels": 1000}
            (policy,) = client.get("/policies", auth=login).json()
            assert (policy["vhost"], policy["name"], policy["definition"]["overflow"]) == (
                "shop",
                "cap",
                "reject-publish",
            )
