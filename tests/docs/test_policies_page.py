"""The page about policies: its commands run one after the other, and print what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.source_tree import DOCS
from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.broker.policies import KEYS

PAGE = (DOCS / "policies.md").read_text(encoding="utf-8")
ADDRESS = "localhost:15672"


@pytest.mark.slow
def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```\n(?:\n```json\n(.*?)```)?", PAGE, re.DOTALL)
    assert len(blocks) == 6
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            client.log_in().channel()
            client.declare("orders.new", durable=True)
        for command, expected in blocks:
            script = command.replace(ADDRESS, f"127.0.0.1:{broker.management_port}")
            done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, (command, done.stderr)
            assert (json.loads(done.stdout) if done.stdout else None) == (json.loads(expected) if expected else None)


def test_the_page_names_every_key_that_has_an_effect() -> None:
    named = set(re.findall(r"`([a-z-]+)`", PAGE))
    assert {key for key, rule in KEYS.items() if rule.is_argument} <= named
