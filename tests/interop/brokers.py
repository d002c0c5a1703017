"""The brokers under test: RabbitMQ, the reference, and Warren, which must answer the same.

Both are processes of their own with private directories and ports, on loopback. They are started by the first test
that uses them and stopped after the last one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.server.broker_process import BrokerProcess
from tools.bench import peers

RABBITMQ = "rabbitmq"
WARREN = "warren"


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
    """Brokers that cannot be started here, and why. On CI none is left out: its start fails instead."""
    found: dict[str, str] = {}
    if os.environ.get("CI"):
        return found
    if not (peers.RABBITMQ_HOME / "rabbitmq-server").exists():
        found[RABBITMQ] = "rabbitmq-server is not installed (make peers)"
    return found


def start(name: str, directory: Path) -> Broker:
    if name == RABBITMQ:
        peer = peers.start_rabbitmq(directory)
        return Broker(RABBITMQ, peer.port, peer.kill)
    process = BrokerProcess(directory / "data")
    return Broker(WARREN, process.port, lambda: _stop(process))


def _stop(process: BrokerProcess) -> None:
    with process:
        """Its end stops it, or kills one that does not go."""
