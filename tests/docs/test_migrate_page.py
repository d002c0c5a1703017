"""The page about moving from RabbitMQ: its commands run against a real RabbitMQ and a broker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.house.source_tree import DOCS
from tests.interop.brokers import RABBITMQ, missing
from tests.management.ask_server import with_management
from tests.server.broker_process import BrokerProcess
from tools.bench.peers import start_rabbitmq

SECONDS_MAX = 240
STRICT = f"""set -eu
curl() {{ command curl --fail-with-body --silent --show-error "$@"; }}
warren() {{ {sys.executable} -m warren.cli.main "$@"; }}
"""
SHOP = {
    "users": [{"name": "ann", "password": "secret", "tags": ""}],
    "vhosts": [{"name": "shop"}],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}],
    "policies": [
        {"vhost": "shop", "name": "cap", "pattern": "^orders$", "definition": {"max-length": 9}, "priority": 0}
        | {"apply-to": "queues"}
    ],
    "queues": [{"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}}],
    "bindings": [
        {"source": "amq.topic", "vhost": "shop", "destination": "orders", "destination_type": "queue"}
        | {"routing_key": "order.#", "arguments": {}}
    ],
}


@pytest.mark.slow
@pytest.mark.skipif(RABBITMQ in missing(), reason="rabbitmq-server is not installed")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    page = (DOCS / "migrate.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    assert commands.count("curl ") == 4
    assert commands.count("warren ctl ") == 6
    with start_rabbitmq(tmp_path / "rabbitmq") as peer, BrokerProcess(tmp_path / "data") as broker:
        rabbitmq = f"http://127.0.0.1:{with_management(peer)}"
        login = httpx.BasicAuth("guest", "guest")
        answer = httpx.post(f"{rabbitmq}/api/definitions", json=SHOP, auth=login, timeout=60, trust_env=False)
        assert answer.status_code == 204, answer.text
        script = STRICT + commands.replace("http://rabbitmq.example:15672", rabbitmq)
        script = script.replace("http://localhost:15672", f"http://127.0.0.1:{broker.management_port}")
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^orders\t\[\]\tcap$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^amq.topic\torders\torder.#$", done.stdout, re.MULTILINE), done.stdout
    assert "Success" in done.stdout
