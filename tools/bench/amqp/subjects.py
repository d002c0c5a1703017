"""The brokers that `warren bench amqp` measures, each in a process and a directory of its own.

warren           `warren serve`, as a user starts it                  synced before every confirm
rabbitmq         RabbitMQ's classic queue: what the goals are about   synced before every confirm
quorum           RabbitMQ's quorum queue, one node                    synced before every confirm
redis            Redis Streams, appendfsync always                    synced before every answer
redis_everysec   the same, synced once a second                       may lose a second
nats             NATS JetStream, as it comes                          may lose two minutes
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools.bench.generators.wire import Table
from tools.bench.peers import (
    AMQP_HEADER,
    HOST,
    Peer,
    PeerProcess,
    free_ports,
    make_directory,
    start_nats,
    start_rabbitmq,
    start_redis,
    started,
)

OURS, CLASSIC = "warren", "rabbitmq"


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    start: Callable[[Path], AbstractContextManager[Peer]]
    arguments: Table = field(default_factory=dict)  # of every queue that is declared
    speaks: str = "amqp"  # or what its generators are called by


def start_warren(directory: Path) -> Peer:
    directory = make_directory(directory)
    port, management_port, prometheus_port = free_ports(3)
    options = {
        "data-dir": str(directory / "data"),
        "host": HOST,
        "port": str(port),
        "management-port": str(management_port),
        "prometheus-port": str(prometheus_port),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "warren.cli.main", "serve", *words]
    environment = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "WARREN_"))}
    return started(Peer(OURS, directory, [PeerProcess(command, port, AMQP_HEADER, environment)]))


SUBJECTS: Mapping[str, Subject] = {
    subject.name: subject
    for subject in (
        Subject(CLASSIC, start_rabbitmq),
        Subject(OURS, start_warren),
        Subject("quorum", start_rabbitmq, {"x-queue-type": "quorum"}),
        Subject("redis", start_redis, speaks="redis"),
        Subject("redis_everysec", partial(start_redis, synced="everysec"), speaks="redis"),
        Subject("nats", start_nats, speaks="nats"),
    )
}
