"""node's amqplib, unchanged: node/walk.js takes its steps through the broker, and each of them is a test here.

The script runs once for each broker; `make setup-node` installs the client that it uses. What a step does is written in
node/topology.js and node/messages.js under its name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.brokers import Broker

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).with_name("node")
MODULES = Path(__file__).parents[2] / "build" / "node" / "node_modules"
WALK_SECONDS_MAX = 120


class Outcome(NamedTuple):
    is_ok: bool
    what: str


def steps() -> list[str]:
    """The names of all steps, as the scripts have them and in their order."""
    scripts = "".join((SCRIPTS / script).read_text(encoding="utf-8") for script in ("topology.js", "messages.js"))
    return re.findall(r"^  async (\w+)\(", scripts, re.MULTILINE)


@pytest.fixture(scope="session")
def outcomes(broker: Broker) -> dict[str, Outcome]:
    assert (MODULES / "amqplib").exists(), "amqplib is not there: make setup-node"
    walk = subprocess.run(
        ["node", str(SCRIPTS / "walk.js"), broker.url],
        env={**os.environ, "NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        timeout=WALK_SECONDS_MAX,
        check=False,
    )
    assert (walk.returncode, walk.stderr) == (0, "")
    result = [json.loads(line) for line in walk.stdout.splitlines()]
    return {step["step"]: Outcome(step["ok"], step["what"]) for step in result}


@pytest.mark.parametrize("step", steps())
def test_node_walks_through(step: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[step].is_ok, outcomes[step].what


def test_node_takes_every_step_and_no_other(outcomes: dict[str, Outcome]) -> None:
    assert list(outcomes) == steps() and len(outcomes) > 40
