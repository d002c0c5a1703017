"""Options of the log and of reflection that reach `warren serve`: each is seen by what the broker does with it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.server.broker_process import BrokerProcess
from tests.server.load import client_of, declared, until
from warren.amqp import methods
from warren.snapshot.reflection import Mode

pytestmark = pytest.mark.slow
MIB = 1 << 20


def warren(*arguments: str) -> Any:
    """What a command prints as JSON."""
    line = [sys.executable, "-m", "warren.cli.main", *arguments, "--json"]
    return json.loads(subprocess.run(line, capture_output=True, text=True, check=True, timeout=60).stdout)


def publish(broker: BrokerProcess, count: int, size: int) -> None:
    declared(broker, "jobs")
    with client_of(broker, confirms=True) as client:
        for sent in range(1, count + 1):
            client.publish(1, "jobs", bytes(size))
            while client.expect(methods.BasicAck).delivery_tag < sent:
                continue


def purge(broker: BrokerProcess) -> None:
    with client_of(broker) as client:
        client.send_method(1, methods.QueuePurge(queue="jobs"))
        client.expect(methods.QueuePurgeOk)


def rotated(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "log").glob("pwal_*.*"))


def has_purged(directory: Path) -> bool:
    return bool(warren("log", "inspect", str(directory / "log"))["horizon"] > 0)


def flushes(broker: BrokerProcess) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.prometheus_port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("warren_log_flushes_total")))


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_containers_are_as_many_and_as_large_as_chosen_and_an_existing_log_keeps_its_own(
    tmp_path: Path, source: str
) -> None:
    """OP-05, OP-08, OP-09, from each source."""
    options: dict[str, Callable[[str, str], tuple[list[str], dict[str, str]]]] = {
        "flag": lambda size, count: (["--container-size", size, "--initial-containers", count], {}),
        "environment": lambda size, count: ([], {"WARREN_CONTAINER_SIZE": size, "WARREN_INITIAL_CONTAINERS": count}),
        "file": lambda size, count: (["--config", str(conf(tmp_path, size, count))], {}),
    }
    for size, count, found in (("768KiB", "4", 3 * MIB), ("2MiB", "8", 3 * MIB)):
        flags, environment = options[source](size, count)
        with BrokerProcess(tmp_path / "data", *flags, env=environment):
            assert (tmp_path / "data" / "log" / "pwal_0000").stat().st_size == found


def conf(place: Path, size: str, count: str) -> Path:
    path = place / "rabbitmq.conf"
    path.write_text(f"container_size = {size}\ninitial_containers = {count}\n")
    return path


def test_a_container_is_never_smaller_than_512_kib(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--container-size", "1000"):
        assert (tmp_path / "data" / "log" / "pwal_0000").stat().st_size == MIB


@pytest.mark.parametrize(("buffers", "flushes_much"), [("1", True), ("65536", False)])
def test_fewer_write_buffers_flush_more_often(tmp_path: Path, buffers: str, flushes_much: bool) -> None:
    """OP-10: flushes are counted."""
    with BrokerProcess(tmp_path / "data", "--max-write-buffers", buffers) as broker:
        publish(broker, 4, MIB)
        assert (flushes(broker) >= 4) == flushes_much


def test_log_files_rotate_at_the_size_that_is_chosen(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--rotate-bytes", "1MiB") as broker:
        publish(broker, 8, MIB // 2)
        until(lambda: len(rotated(tmp_path / "data")) >= 3, "nothing is rotated")
    with BrokerProcess(tmp_path / "usual") as broker:
        publish(broker, 8, MIB // 2)
        assert not rotated(tmp_path / "usual")


@pytest.mark.parametrize("option", ["--retention-seconds", "--retention-bytes"])
def test_without_retention_unneeded_files_are_removed(tmp_path: Path, option: str) -> None:
    """With it the same files are history."""
    for name, options in (("none", [option, "0"]), ("usual", [])):
        with BrokerProcess(tmp_path / name, "--rotate-bytes", "1MiB", *options) as broker:
            publish(broker, 12, MIB // 2)
            purge(broker)
            if name == "none":
                until(partial(has_purged, tmp_path / name), "nothing goes")
            else:
                assert not has_purged(tmp_path / name)


@pytest.mark.parametrize("mode", list(Mode))
def test_reflection_works_in_the_mode_that_is_chosen(tmp_path: Path, mode: Mode) -> None:
    with BrokerProcess(tmp_path / "data", "--reflection", str(mode)) as broker:
        publish(broker, 4, 1000)
        assert warren("reflection", "status", str(tmp_path / "data"))["mode"] == str(mode)
    with BrokerProcess(tmp_path / "data", env={"WARREN_REFLECTION": str(mode)}) as broker, client_of(broker) as client:
        assert client.declare("jobs", passive=True).message_count == 4, "messages are there after a restart"


def test_the_buffer_of_reflection_is_of_the_kind_that_is_chosen(tmp_path: Path) -> None:
    for kind, is_rocksdb in (("rocksdb", True), ("memory", False)):
        with BrokerProcess(tmp_path / kind, "--reflection-buffer", kind):
            assert (tmp_path / kind / "buffer" / "CURRENT").exists() == is_rocksdb


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--container-size", "much"),
        ("--initial-containers", "0"),
        ("--max-write-buffers", "many"),
        ("--rotate-bytes", "1"),
        ("--retention-seconds", "-1"),
        ("--retention-bytes", "all"),
        ("--reflection", "sometimes"),
        ("--reflection-buffer", "paper"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(tmp_path: Path, option: str, value: str) -> None:
    line = [sys.executable, "-m", "warren.cli.main", "serve", "--data-dir", str(tmp_path / "data"), option, value]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 64
    assert option in ended.stderr and "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()
