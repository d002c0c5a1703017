"""`warren pipeline sync` on the directory of `warren serve`, behind publishes, acks, rejects, expiries and requeues."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.pipeline.sync_stage import BY_DRIVER
from tests.server.broker_process import BrokerProcess
from warren.pipeline.jobs.sync import SyncOptions, sync
from warren.snapshot.database import REFLECTION_SOCKET
from warren.workers.control_socket import call

HERE = SyncOptions(sizes=BY_DRIVER, order_seconds=30)
DEAD, QUEUE = "dead", "tasks"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    """Started with a relative data directory, as `make run` does; the test itself works in another one."""
    monkeypatch.chdir(tmp_path)
    with BrokerProcess("data") as started:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        started.directory = str(tmp_path / "data")
        yield started


def reflection(broker: BrokerProcess, command: str) -> dict[str, Any]:
    return call(f"{broker.directory}/{REFLECTION_SOCKET}", {"command": command}, 30.0)


def connected(broker: BrokerProcess) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))


def mixed_traffic(broker: BrokerProcess) -> None:
    """Of 100 messages 20 are acked, 10 rejected to a dead-letter queue, 10 requeued and 10 expired."""
    connection = connected(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(DEAD, durable=True)
    channel.queue_declare(
        QUEUE, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    )
    channel.queue_declare("expiring", durable=True, arguments={"x-message-ttl": 1})
    for number in range(90):
        channel.basic_publish("", QUEUE, b"%04d" % number * 20, pika.BasicProperties(delivery_mode=2))
    for _ in range(10):
        channel.basic_publish("", "expiring", b"x" * 500, pika.BasicProperties(delivery_mode=2))
    for number in range(40):
        method, _, _ = channel.basic_get(QUEUE)
        if number < 20:
            channel.basic_ack(method.delivery_tag)
        elif number < 30:
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_nack(method.delivery_tag, requeue=True)
    channel.queue_declare("last", durable=True)
    channel.basic_publish("", "last", b"confirmed: the acks before it are durable too")
    connection.close()


def depths(broker: BrokerProcess) -> tuple[int, int]:
    connection = connected(broker)
    channel = connection.channel()
    found = tuple(channel.queue_declare(name, passive=True).method.message_count for name in (QUEUE, DEAD))
    connection.close()
    return found


def test_a_running_broker_gets_tables_of_everything_it_has_logged(broker: BrokerProcess) -> None:
    reflection(broker, "pause")
    mixed_traffic(broker)
    status = reflection(broker, "status")
    assert status["applied"]["epoch"] < status["durable"]
    done = sync(None, broker.directory, options=HERE)
    assert (done["status"], done["unfit"]) == ("ok", 0) and done["tables"] > 0
    assert done["epoch"] == done["durable"] >= status["durable"]
    assert depths(broker) == (60, 10)


def test_the_directory_of_a_killed_broker_is_brought_to_its_newest_state(broker: BrokerProcess) -> None:
    reflection(broker, "pause")
    mixed_traffic(broker)
    broker.kill()
    done = sync(None, broker.directory, options=HERE)
    assert (done["status"], done["unfit"]) == ("ok", 0) and done["tables"] > 0 and done["epoch"] == done["durable"]
    broker.start()
    assert depths(broker) == (60, 10)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_command_takes_the_directory_of_a_broker(broker: BrokerProcess) -> None:
    reflection(broker, "pause")
    mixed_traffic(broker)
    command = [sys.executable, "-m", "warren.cli.main", "pipeline", "sync", broker.directory, "--master", "local[1]"]
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["status"] == "ok"
    assert depths(broker) == (60, 10)
