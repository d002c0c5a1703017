"""A flipped bit in a sealed file of messages, under a real broker: the queue is named, and nothing goes."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from tests.server.broker_process import BrokerProcess
from tests.server.raw_client import RawClient
from warren.amqp import methods

BODIES = [b"message %02d " % number + b"x" * 1000 for number in range(20)]


def flip_a_bit(directory: Path, mark: bytes) -> None:
    for path in (directory / "log").iterdir():
        if path.is_file() and (at := (data := path.read_bytes()).find(mark)) >= 0:
            path.write_bytes(data[: at + 20] + bytes([data[at + 20] ^ 1]) + data[at + 21 :])
            return
    raise AssertionError("the mark is in some file")


def drained(broker: BrokerProcess) -> list[bytes]:
    client = RawClient(broker.port).log_in().channel()
    count = client.declare("jobs", passive=True).message_count
    found = []
    for _ in range(count):
        client.send_method(1, methods.BasicGet(queue="jobs", no_ack=True))
        client.expect(methods.BasicGetOk)
        found.append(client.body())
    client.send_method(1, methods.BasicGet(queue="jobs", no_ack=True))
    client.expect(methods.BasicGetEmpty)
    client.socket.close()
    return found


def test_damage_is_reported_by_log_health_and_metric_and_repaired_by_the_good_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        client = RawClient(broker.port).log_in().channel(confirms=True)
        client.declare("jobs", durable=True)
        for body in BODIES:
            client.publish(1, "jobs", body)
            client.expect(methods.BasicAck)
        client.socket.close()
    with BrokerProcess(data):
        """From now on the file is sealed."""
    flip_a_bit(data, b"message 07 ")
    with BrokerProcess(data) as broker:
        deadline = time.monotonic() + 60
        while (answer := health(broker)).status_code == 200:
            assert time.monotonic() < deadline, "the queue was never read: the scrub finds it"
            time.sleep(0.1)
        [alarm] = answer.json()["alarms"]
        assert alarm["resource"] == "damage" and "queue 'jobs'" in alarm["reason"] and "at byte" in alarm["reason"]
        assert "warren_damage 1.0" in httpx.get(f"http://127.0.0.1:{broker.prometheus_port}/metrics").text
        assert "messages cannot be read" in broker.log and "queue=jobs" in broker.log
        found = drained(broker)
        assert BODIES[7] not in found and len(found) < len(BODIES)
    with BrokerProcess(data) as broker:
        assert drained(broker) == []
    flip_a_bit(data, b"message 07 ")
    with BrokerProcess(data) as broker:
        assert sorted(found + drained(broker)) == BODIES


def health(broker: BrokerProcess) -> httpx.Response:
    url = f"http://127.0.0.1:{broker.management_port}/api/health/checks/alarms"
    return httpx.get(url, auth=("guest", "guest"))
