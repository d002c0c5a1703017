"""`warren serve` and the limit on open files, which is a process's own."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from tests.server.broker_process import BrokerProcess

LIMITED = """
import logging, resource, sys
logging.basicConfig(format="%(message)s %(facts)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1500))
from warren.app.lifecycle import raise_limit
print(raise_limit(1024), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_broker_raises_the_soft_limit_to_the_hard_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        broker = BrokerProcess(tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with broker:
        [line] = [
            each
            for each in Path(f"/proc/{broker.process.pid}/limits").read_text().splitlines()
            if each.startswith("Max open files")
        ]
        assert line.split()[3] == line.split()[4]


def test_a_hard_limit_that_is_too_low_is_logged() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    logged, printed = done.stdout.splitlines()
    assert printed == "1500 (1500, 1500)"
    assert logged.startswith("limit on open files too low {'limit': 1500, 'needed': 2048")
