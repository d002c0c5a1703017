"""The brokers that the clients talk to: RabbitMQ, which says what is right, and Warren, which must say the same.

Both are processes of their own with private directories and ports, on loopback. They are started when the first test
asks for them and stopped when the last one is done.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from warren.bench import peers

RABBITMQ = "rabbitmq"
WARREN = "warren"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Broker:
    name: str
    port: int
    stop: Callable[[], None]
    host: str = "127.0.0.1"
    user: str = "guest"
    password: str = "guest"

    @property
    def url(self) -> str:
        return f"amqp://{self.user}:{self.password}@{self.host}:{self.port}/%2F"

    @property
    def is_warren(self) -> bool:
        return self.name == WARREN


def missing() -> dict[str, str]:
    """Brokers that cannot be started here, and why."""
    found = {}
    if not (peers.RABBITMQ_HOME / "rabbitmq-server").exists():
        found[RABBITMQ] = "rabbitmq-server is not installed (make peers)"
    return found


def start(name: str, directory: Path) -> Broker:
    if name == RABBITMQ:
        peer = peers.start_rabbitmq(directory)
        return Broker(RABBITMQ, peer.port, peer.kill)
    return _start_warren(directory)


def _start_warren(directory: Path) -> Broker:
    line = [sys.executable, "-m", "warren.cli.main", "serve", "--data-dir", str(directory / "data"), "--port", "0"]
    line += ["--management-port", "0", "--prometheus-port", "0"]
    log = (directory / "stderr").open("wb")
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    log.close()

    def stop() -> None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    assert process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
    port = 0
    while True:
        try:
            told = lines.get(timeout=START_SECONDS_MAX)
        except queue.Empty:
            told = ""
        if not told:
            stop()
            raise RuntimeError(f"warren serve does not start:\n{(directory / 'stderr').read_text()}")
        if told.startswith("amqp "):
            port = int(told.rpartition(":")[2])
        if told.startswith("ready"):
            return Broker(WARREN, port, stop)


def _read_lines(pipe: IO[str], lines: queue.Queue[str]) -> None:
    """To the end, so that whoever writes is never held up; an empty line stands for the end."""
    for line in pipe:
        lines.put(line)
    lines.put("")
