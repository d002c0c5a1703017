"""Soak test: minutes of mixed traffic on one broker, with churn, compaction and `kill -9`; nothing may stall or grow.

    python -m tests.torture.soak --minutes 20 --queues 3000 --kill-seconds 120        (`make soak`)

    standing     one publisher with confirms and one consumer with acks: every confirmed message must arrive
    spread       publishes to random ones of the many durable queues and drains them again by `basic.get`
    bodies       8 KiB bodies through a queue with TTL, a length limit and a dead-letter exchange
    churn        connect, declare an exclusive reply queue and a durable one, publish, get, delete, disconnect
    compact      `warren compact` on the data directory, every minute
    kill         `kill -9` and a new start, every `--kill-seconds`

Each client is a process of its own, so that a stall is the broker's. Samples of RSS, disk, threads and problems are
printed every five seconds. The run fails if a confirm takes longer than two seconds while the broker is up, if a
confirmed message is missing, if a problem is reported, if threads are missing, or if RSS or disk grow.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import Closed, RawClient
from warren.amqp import methods

RETENTION_BYTES = 64 << 20
STALL_SECONDS_MAX = 2.0
SAMPLE_SECONDS = 5.0
COMPACT_SECONDS = 60.0
GROWTH_MAX = 1.25  # largest value of the last third of the run, as a multiple of the middle third's
BATCH = 20
PAUSE_SECONDS = 0.01
RECONNECT_SECONDS = 0.05
DISCONNECTED = (Closed, OSError, AssertionError)  # a broker that is killed may also send half an answer
STANDING, BODIES, DEAD = "soak.standing", "soak.bodies", "soak.dead"


# -- clients: each a process ---------------------------------------------------------------------------------------


class Terminated:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, number: int, frame: object) -> None:
        self.is_set = True


def _connect(port: int, confirms: bool = False) -> RawClient:
    client = RawClient(port)
    client.socket.settimeout(30.0)
    return client.log_in().channel(confirms=confirms)


def publish_standing(port: int, path: Path) -> None:
    """Write a line for each confirmed batch: wall time, last sequence number, seconds from publish to confirm."""
    terminated, sent = Terminated(), 0
    with path.open("w", buffering=1) as out:
        while not terminated.is_set:
            try:
                with _connect(port, confirms=True) as client:
                    first = sent
                    while not terminated.is_set:
                        bodies = [b"%d " % (sent + at + 1) for at in range(BATCH)]
                        sent += BATCH
                        began = time.monotonic()
                        client.publish(1, STANDING, *(body.ljust(100, b"x") for body in bodies))
                        while (client.expect(methods.BasicAck)).delivery_tag < sent - first:
                            pass
                        out.write(f"{time.time():.3f} {sent - BATCH + 1} {sent} {time.monotonic() - began:.4f}\n")
                        time.sleep(PAUSE_SECONDS)
            except DISCONNECTED:
                time.sleep(RECONNECT_SECONDS)


def consume_standing(port: int, path: Path) -> None:
    """Write the sequence number of each delivery before it is acknowledged."""
    terminated = Terminated()
    with path.open("w", buffering=1) as out:
        while not terminated.is_set:
            try:
                with _connect(port) as client:
                    client.send_method(1, methods.BasicQos(prefetch_count=200))
                    client.expect(methods.BasicQosOk)
                    client.send_method(1, methods.BasicConsume(queue=STANDING, consumer_tag="standing", no_wait=True))
                    client.socket.settimeout(0.5)
                    while not terminated.is_set:
                        with suppress(TimeoutError):
                            delivery = client.expect(methods.BasicDeliver)
                            out.write(f"{int(client.body().split()[0])}\n")
                            client.send_method(1, methods.BasicAck(delivery.delivery_tag))
            except DISCONNECTED:
                time.sleep(RECONNECT_SECONDS)


def spread_over_queues(port: int, queues: int) -> None:
    terminated, rng = Terminated(), random.Random(1)
    while not terminated.is_set:
        try:
            with _connect(port, confirms=True) as client:
                while not terminated.is_set:
                    names = [f"soak.{rng.randrange(queues)}" for _ in range(10)]
                    for name in names:
                        client.publish(1, name, bytes(200))
                        client.expect(methods.BasicAck)
                    for name in names:
                        client.send_method(1, methods.BasicGet(queue=name, no_ack=True))
                        if isinstance(client.method(), methods.BasicGetOk):
                            client.body()
        except DISCONNECTED:
            time.sleep(RECONNECT_SECONDS)


def publish_bodies(port: int) -> None:
    """8 KiB bodies; half of them expire or overflow into the dead-letter queue, which is drained."""
    terminated = Terminated()
    while not terminated.is_set:
        try:
            with _connect(port, confirms=True) as client:
                while not terminated.is_set:
                    client.publish(1, BODIES, *(bytes(8192) for _ in range(BATCH)))
                    for _ in range(BATCH):
                        client.send_method(1, methods.BasicGet(queue=DEAD, no_ack=True))
                    pending = BATCH
                    while pending:
                        method = client.method()
                        pending -= not isinstance(method, methods.BasicAck)
                        if isinstance(method, methods.BasicGetOk):
                            client.body()
                    time.sleep(PAUSE_SECONDS)
        except DISCONNECTED:
            time.sleep(RECONNECT_SECONDS)


def churn(port: int, number: int) -> None:
    """Reply queues of RPC clients, and durable queues that come and go with messages in them."""
    terminated, turn = Terminated(), 0
    while not terminated.is_set:
        turn += 1
        try:
            with _connect(port, confirms=True) as client:
                reply = client.declare("", exclusive=True).queue
                durable = f"soak.churn.{number}.{turn % 50}"
                client.declare(durable, durable=True)
                client.publish(1, reply, b"request")
                client.expect(methods.BasicAck)
                client.send_method(1, methods.BasicGet(queue=reply, no_ack=True))
                client.expect(methods.BasicGetOk)
                client.body()
                client.publish(1, durable, bytes(500))
                client.expect(methods.BasicAck)
                client.send_method(1, methods.QueueDelete(queue=durable))
                client.expect(methods.QueueDeleteOk)
                if turn % 2:
                    client.send_method(0, methods.ConnectionClose(200, "done"))
                    client.expect(methods.ConnectionCloseOk)
        except DISCONNECTED:
            time.sleep(RECONNECT_SECONDS)


# -- the run -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sample:
    seconds: float  # since the start of the run
    rss_bytes: int
    disk_bytes: int
    threads: int
    problems: list[str]


@dataclass(slots=True)
class Report:
    samples: list[Sample] = field(default_factory=list)
    restarts: list[tuple[float, float, float]] = field(default_factory=list)  # wall time of kill, ready, first confirm
    failures: list[str] = field(default_factory=list)
    stall_seconds_max: float = 0.0
    confirmed: int = 0
    compactions: int = 0


class Soak:
    def __init__(self, directory: Path, minutes: float, queues: int, kill_seconds: float) -> None:
        self._directory = directory
        self._seconds = minutes * 60
        self._queues = queues
        self._kill_seconds = kill_seconds
        self._confirmed = directory / "confirmed"
        self._delivered = directory / "delivered"
        self._began = time.monotonic()
        self.report = Report()

    def run(self) -> Report:
        with BrokerProcess(self._directory / "data", "--retention-bytes", str(RETENTION_BYTES)) as broker:
            self._declare(broker.port)
            clients = self._start_clients(broker.port)
            try:
                self._watch(broker)
            finally:
                for client in clients[:-1]:
                    _end(client)
            self._wait_until_drained(broker.port)
            _end(clients[-1])
            compaction = subprocess.run(self._compact_line(), capture_output=True, text=True, timeout=300, check=False)
            if compaction.returncode:
                self.report.failures.append(f"warren compact failed: {compaction.stderr[-300:]}")
        self._check()
        return self.report

    def _declare(self, port: int) -> None:
        began = time.monotonic()
        with _connect(port) as client:
            client.declare(STANDING, durable=True)
            client.declare(DEAD, durable=True)
            arguments = {"x-message-ttl": 2000, "x-max-length": 500, "x-dead-letter-exchange": ""}
            client.declare(BODIES, durable=True, arguments={**arguments, "x-dead-letter-routing-key": DEAD})
            for at in range(0, self._queues, 200):
                numbers = range(at, min(at + 200, self._queues))
                client.send_method(
                    1, *(methods.QueueDeclare(queue=f"soak.{number}", durable=True) for number in numbers)
                )
                for _ in numbers:
                    client.expect(methods.QueueDeclareOk)
        _print(f"declared {self._queues} durable queues in {time.monotonic() - began:.1f} s")

    def _start_clients(self, port: int) -> list[subprocess.Popen[bytes]]:
        """The consumer of the standing queue comes last: it drains the queue when the others have ended."""
        return [
            _start("publish", port, self._confirmed),
            _start("spread", port, self._queues),
            _start("bodies", port),
            _start("churn", port, 0),
            _start("churn", port, 1),
            _start("consume", port, self._delivered),
        ]

    def _watch(self, broker: BrokerProcess) -> None:
        next_kill, next_compaction = self._kill_seconds, COMPACT_SECONDS
        compaction: subprocess.Popen[str] | None = None
        while (elapsed := time.monotonic() - self._began) < self._seconds:
            time.sleep(SAMPLE_SECONDS)
            if compaction is not None and compaction.poll() is not None:
                self._note_compaction(compaction)
                compaction = None
            self._sample(broker)
            if elapsed >= next_compaction and compaction is None:
                next_compaction += COMPACT_SECONDS
                compaction = subprocess.Popen(
                    self._compact_line(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            if elapsed >= next_kill and elapsed < self._seconds - SAMPLE_SECONDS * 3:
                next_kill += self._kill_seconds
                if compaction is not None:  # its owner goes away: the command has to notice
                    compaction.wait(60)
                    self._note_compaction(compaction)
                    compaction = None
                self._kill(broker)
        if compaction is not None:
            compaction.wait(120)
            self._note_compaction(compaction)

    def _compact_line(self) -> list[str]:
        data = str(self._directory / "data")
        return [sys.executable, "-m", "warren.cli.main", "compact", "--data-dir", data]

    def _note_compaction(self, compaction: subprocess.Popen[str]) -> None:
        out, _ = compaction.communicate()
        if compaction.returncode == 0:
            self.report.compactions += 1
        else:
            self.report.failures.append(f"warren compact failed: {out[-300:]}")

    def _kill(self, broker: BrokerProcess) -> None:
        broker.kill()
        killed = time.time()
        broker.start()
        ready = time.time()
        deadline = time.monotonic() + 60
        while (first := self._first_confirm_after(ready)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if first is None:
            self.report.failures.append("no confirm within 60 s of a restart")
            first = float("inf")
        self.report.restarts.append((killed, ready, first))
        _print(f"kill -9: ready after {ready - killed:.2f} s, first confirm after {first - killed:.2f} s")

    def _first_confirm_after(self, wall: float) -> float | None:
        with self._confirmed.open("rb") as lines:
            lines.seek(0, 2)
            lines.seek(max(0, lines.tell() - 4096))
            times = [float(line.split()[0]) for line in lines.read().splitlines()[1:] if line.count(b" ") == 3]
        return next((each for each in times if each > wall), None)

    def _sample(self, broker: BrokerProcess) -> None:
        status = Path(f"/proc/{broker.process.pid}/status").read_text().splitlines()
        facts = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in status) if rest.split()}
        disk_bytes = 0
        for path in (self._directory / "data").rglob("*"):
            with suppress(FileNotFoundError):  # removed by the broker since it was listed
                disk_bytes += path.stat().st_blocks * 512
        sample = Sample(
            time.monotonic() - self._began,
            int(facts["VmRSS"]) * 1024,
            disk_bytes,
            int(facts["Threads"]),
            _problems(broker.management_port),
        )
        self.report.samples.append(sample)
        _print(
            f"{sample.seconds:6.0f} s  rss {sample.rss_bytes / 1e6:6.1f} MB  disk {disk_bytes / 1e6:7.1f} MB  "
            f"threads {sample.threads}  problems {sample.problems}"
        )

    def _wait_until_drained(self, port: int) -> None:
        deadline = time.monotonic() + 120
        while True:
            with _connect(port) as client:
                ready = client.declare(STANDING, passive=True).message_count
            if not ready:
                time.sleep(1.0)  # what is unacked is being written down by the consumer
                return
            assert time.monotonic() < deadline, f"{ready} messages are left in {STANDING}"
            time.sleep(0.5)

    # -- verdict ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        report = self.report
        delivered = {int(line) for line in self._delivered.read_text().split()}
        lost: list[int] = []
        worst = (0.0, 0.0)
        for line in self._confirmed.read_text().splitlines():
            wall, first, last, seconds = line.split()
            report.confirmed += BATCH
            lost += [number for number in range(int(first), int(last) + 1) if number not in delivered]
            worst = max(worst, (float(seconds), float(wall)))
        report.stall_seconds_max = worst[0]
        if lost:
            report.failures.append(f"{len(lost)} confirmed messages are lost, the first is {lost[0]}")
        if worst[0] > STALL_SECONDS_MAX:
            report.failures.append(f"a confirm took {worst[0]:.2f} s, at {worst[1]:.0f}")
        report.failures += sorted({problem for sample in report.samples for problem in sample.problems})
        steady = [sample for sample in report.samples if not self._is_after_restart(sample)]
        if missing := [sample for sample in steady if sample.threads < steady[0].threads]:
            report.failures.append(f"threads fell from {steady[0].threads} to {missing[0].threads}")
        third = self._seconds / 3
        for name in ("rss_bytes", "disk_bytes"):
            before = max(getattr(each, name) for each in report.samples if third <= each.seconds < 2 * third)
            after = max(getattr(each, name) for each in report.samples if each.seconds >= 2 * third)
            _print(f"{name}: middle third {before / 1e6:.1f} MB, last third {after / 1e6:.1f} MB")
            if after > GROWTH_MAX * before:
                report.failures.append(f"{name} grew from {before} to {after}")

    def _is_after_restart(self, sample: Sample) -> bool:
        offset = time.time() - (time.monotonic() - self._began)
        return any(0 <= sample.seconds + offset - ready < 3 * SAMPLE_SECONDS for _, ready, _ in self.report.restarts)


def _problems(port: int) -> list[str]:
    login = base64.b64encode(b"guest:guest").decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/overview", headers={"Authorization": f"Basic {login}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(json.load(answer).get("problems", []))


def _start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.torture.soak", "--client", *map(str, arguments)])


def _end(client: subprocess.Popen[bytes]) -> None:
    client.terminate()
    client.wait(60)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _run_client(what: str, port: str, *rest: str) -> None:
    if what == "publish":
        publish_standing(int(port), Path(rest[0]))
    elif what == "consume":
        consume_standing(int(port), Path(rest[0]))
    elif what == "spread":
        spread_over_queues(int(port), int(rest[0]))
    elif what == "bodies":
        publish_bodies(int(port))
    else:
        churn(int(port), int(rest[0]))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--queues", type=int, default=3000)
    parser.add_argument("--kill-seconds", type=float, default=120)
    parser.add_argument("--client", nargs="+")
    options = parser.parse_args()
    if options.client:
        _run_client(*options.client)
        return 0
    with tempfile.TemporaryDirectory(prefix="warren-soak-") as place:
        report = Soak(Path(place), options.minutes, options.queues, options.kill_seconds).run()
    _print(
        f"confirmed {report.confirmed}  slowest confirm {report.stall_seconds_max:.2f} s  "
        f"kills {len(report.restarts)}  compactions {report.compactions}"
    )
    for failure in report.failures:
        _print(f"FAILED: {failure}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
