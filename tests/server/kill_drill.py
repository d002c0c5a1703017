"""`kill -9` of a broker with live publishers and consumers, repeatedly; then every confirm is checked.

    python -m tests.server.kill_drill --kills 200

Checked at the end, when everything was consumed:

    every confirmed message was delivered, from every queue it was routed to
    no message was delivered that was never sent
    a message that came a second time was flagged
    of each publisher, each queue hands out first deliveries in the order in which they were sent
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods

DRAIN_SECONDS_MAX = 120.0
EXCHANGE = "drill"
Delivery = tuple[int, int, bool]  # publisher, seq, redelivered


@dataclass(frozen=True, slots=True)
class Drill:
    kills: int
    body_bytes: int = 100
    queues: int = 1
    publishers: int = 2
    seed: int = 1
    life_seconds_max: float = 1.0


@dataclass(slots=True)
class Report:
    sent: int = 0
    confirmed: int = 0
    delivered: int = 0
    again: int = 0


def run(drill: Drill, directory: Path) -> Report:
    rng = random.Random(drill.seed)
    names = [f"drill.{number}" for number in range(drill.queues)]
    with BrokerProcess(directory / "data") as broker:
        _declare(broker.port, names)
        publishers = [_publisher(broker.port, number, drill, directory) for number in range(drill.publishers)]
        consumer = _client("consume", broker.port, directory / "delivered", *names)
        for _ in range(drill.kills):
            time.sleep(rng.uniform(0.05, drill.life_seconds_max))
            broker.kill()
            broker.start()
        time.sleep(0.2)
        sent = [_ended(each) for each in publishers]
        _wait_until_drained(broker.port, names, directory / "delivered")
        _ended(consumer)
    return _checked(drill, names, sent, directory)


def _declare(port: int, names: list[str]) -> None:
    with RawClient(port) as client:
        client.log_in()
        client.channel()
        client.send_method(1, methods.ExchangeDeclare(exchange=EXCHANGE, type="fanout", durable=True))
        client.expect(methods.ExchangeDeclareOk)
        for name in names:
            client.declare(name, durable=True)
            client.send_method(1, methods.QueueBind(queue=name, exchange=EXCHANGE))
            client.expect(methods.QueueBindOk)


def _publisher(port: int, number: int, drill: Drill, directory: Path) -> subprocess.Popen[str]:
    drill_arguments = (EXCHANGE, "key", str(number), str(drill.body_bytes), str(directory / f"confirmed.{number}"))
    return _client("publish", port, *drill_arguments)


def _client(what: str, port: int, *drill_arguments: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tests.server.kill_clients", what, str(port), *map(str, drill_arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


def _ended(client: subprocess.Popen[str]) -> int:
    """How many messages it has sent, if it is one that sends."""
    client.terminate()
    out, _ = client.communicate(timeout=60)
    assert client.returncode == 0, f"a client ended with {client.returncode}"
    return int(out or 0)


def _wait_until_drained(port: int, names: list[str], path: Path) -> None:
    deadline, before = time.monotonic() + DRAIN_SECONDS_MAX, -1
    while True:
        with RawClient(port) as client:
            client.log_in()
            client.channel()
            ready = sum(client.declare(name, passive=True).message_count for name in names)
        size = path.stat().st_size
        if not ready and size == before:
            return
        assert time.monotonic() < deadline, f"{ready} messages are left"
        before = size
        time.sleep(0.7)


def _checked(drill: Drill, names: list[str], sent: list[int], directory: Path) -> Report:
    report = Report(sent=sum(sent))
    by_queue: dict[str, list[Delivery]] = {name: [] for name in names}
    for line in (directory / "delivered").read_text().splitlines():
        queue, publisher, seq, redelivered = line.split()
        by_queue[queue].append((int(publisher), int(seq), redelivered == "1"))
    for name, deliveries in by_queue.items():
        _check_queue(name, deliveries, sent, report)
    for number in range(drill.publishers):
        confirmed = {int(line) for line in (directory / f"confirmed.{number}").read_text().split()}
        report.confirmed += len(confirmed)
        for name, deliveries in by_queue.items():
            lost = confirmed - {seq for publisher, seq, _ in deliveries if publisher == number}
            assert not lost, (
                f"{name}: {len(lost)} confirmed messages of publisher {number} are lost: {sorted(lost)[:9]}"
            )
    return report


def _check_queue(name: str, deliveries: list[Delivery], sent: list[int], report: Report) -> None:
    seen: set[tuple[int, int]] = set()
    last = [0] * len(sent)
    for publisher, seq, redelivered in deliveries:
        report.delivered += 1
        assert seq <= sent[publisher], f"{name}: message {seq} of publisher {publisher} was never sent"
        if (publisher, seq) in seen:
            report.again += 1
            assert redelivered, f"{name}: message {seq} of publisher {publisher} came again without a flag"
            continue
        seen.add((publisher, seq))
        assert seq > last[publisher], f"{name}: message {seq} of publisher {publisher} came behind {last[publisher]}"
        last[publisher] = seq


SHAPES = [(100, 1), (65_536, 1), (100, 10), (65_536, 10)]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for body_bytes, queues in SHAPES:
        drill = Drill(-(-options.kills // len(SHAPES)), body_bytes, queues, seed=options.seed)
        with tempfile.TemporaryDirectory(prefix="warren-kills-") as place:
            sys.stdout.write(f"{drill} {run(drill, Path(place))}\n")
            sys.stdout.flush()
