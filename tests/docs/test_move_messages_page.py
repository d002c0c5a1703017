"""The page about moving messages: its commands run, one behind the other, between two brokers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.house.source_tree import DOCS
from tests.server.broker_process import BrokerProcess

SECONDS_MAX = 120
MESSAGES = {"orders": 5, "bills": 4, "invoices": 3, "audit": 2}
ARRIVED = {"orders": 5, "bills": 4, "invoices 2026": 3, "audit": 2}


@pytest.mark.slow
def test_the_commands_of_the_page_move_the_messages(tmp_path: Path) -> None:
    page = (DOCS / "move_messages.md").read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert len(commands) == 5
    with BrokerProcess(tmp_path / "old") as old, BrokerProcess(tmp_path / "new") as new:
        for queue, count in MESSAGES.items():
            publish(old, queue, count)
        output = run("set -eu\n" + "".join(commands), old, new, tmp_path / "bin")
        assert {queue: length(new, queue) for queue in ARRIVED} == ARRIVED
        assert {queue: length(old, queue) for queue in MESSAGES} == dict.fromkeys(MESSAGES, 0)
    report = json.loads(output[output.index("{") : output.index("\n}") + 2])
    assert report | {"seconds": 0} == json.loads(shown) | {"seconds": 0}


def run(script: str, old: BrokerProcess, new: BrokerProcess, programs: Path) -> str:
    programs.mkdir()
    (programs / "warren").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m warren.cli.main "$@"\n')
    (programs / "warren").chmod(0o755)
    addresses = {"old:5672": old.port, "new:5672": new.port, "old:15672": old.management_port}
    for name, port in addresses.items():
        assert f"@{name}" in script
        script = script.replace(f"@{name}", f"@127.0.0.1:{port}")
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def publish(broker: BrokerProcess, queue: str, messages: int) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for number in range(messages):
            channel.basic_publish("", queue, b"%d" % number)


def length(broker: BrokerProcess, queue: str) -> int:
    with connected(broker) as connection:
        messages: int = connection.channel().queue_declare(queue, passive=True).method.message_count
        return messages


def connected(broker: BrokerProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
