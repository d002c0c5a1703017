"""Record the answers of RabbitMQ's commands that tests compare with: `python -m tests.cli.ask_rabbitmqctl`.

RabbitMQ is started privately with its management plugin. Run it again when a line is added (some three minutes).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pika

from tests.cli.ctl_lines import ANSWERS, DIRECTORY, LINES, LISTS, OUTPUT_DIFFERS, PORT, CtlAnswer, CtlLine, normalized
from tests.management.ask_server import wait_for, with_management
from tools.bench.peers import RABBITMQ_HOME, start_rabbitmq


class RunningRabbitMQ(NamedTuple):
    port: int
    management_port: int
    node: str
    environment: dict[str, str]


@contextmanager
def running_rabbitmq(directory: Path) -> Iterator[RunningRabbitMQ]:
    with start_rabbitmq(directory) as peer:
        management_port = with_management(peer)
        with httpx.Client(base_url=f"http://127.0.0.1:{management_port}", timeout=30, trust_env=False) as client:
            wait_for(client)
        raw = Path(f"/proc/{peer.pid}/environ").read_text(encoding="utf-8")
        environment = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
        yield RunningRabbitMQ(peer.port, management_port, environment["RABBITMQ_NODENAME"], environment)


def declare_some(port: int) -> None:
    """What the lines of `LISTS` show."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={"x-max-length": 100})
        channel.queue_declare("temp")
        channel.exchange_declare("ex", "topic", durable=True)
        channel.queue_bind("orders", "ex", "a.#")
        for _ in range(3):
            channel.basic_publish("", "orders", b"x", pika.BasicProperties(delivery_mode=2))


def main() -> None:
    answers = []
    with tempfile.TemporaryDirectory() as name, running_rabbitmq(Path(name) / "rabbitmq") as rabbitmq:
        for line in LINES:
            if line is LISTS[0]:
                declare_some(rabbitmq.port)
            answer = _answer(line, rabbitmq, name)
            out = normalized(answer.out, rabbitmq.node, rabbitmq.port, name)
            kept = {} if line.verb in OUTPUT_DIFFERS else {"out": out}
            answers.append({"line": line.text, "code": answer.code, **kept})
            print(f"[{answer.code}] {line.text}", flush=True)
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


def _answer(line: CtlLine, rabbitmq: RunningRabbitMQ, directory: str) -> CtlAnswer:
    program, *arguments = (word.replace(DIRECTORY, directory).replace(PORT, str(rabbitmq.port)) for word in line.words)
    done = subprocess.run(
        [RABBITMQ_HOME / program, *arguments],
        env={**os.environ, **rabbitmq.environment},
        input=line.typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return CtlAnswer(done.returncode, done.stdout, done.stderr)


if __name__ == "__main__":
    main()
