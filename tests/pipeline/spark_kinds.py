"""The three kinds of Spark that the core suite runs on, each started by the test run and gone with it.

    local         threads of this process's own JVM
    standalone    a master and two workers on loopback; an application has an executor of one core in each
    connect       a Spark Connect server; this process has no JVM at all

A process has one kind of session: a classic one and a Connect one cannot stand side by side. So the kind is chosen from
outside, WARREN_SPARK=standalone pytest tests/pipeline/core, and `make test` runs the suite once for each. Nothing has a
fixed port: servers take a free one and say which in their log.

A `Place` is all that another process needs to have a session at the same place; `session_at` makes it.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.pipeline.process_group import ProcessGroup, all_killed, wait_until
from warren.pipeline.session import java_home, spark_session

LOCAL, STANDALONE, CONNECT = "local", "standalone", "connect"
KINDS = (LOCAL, STANDALONE, CONNECT)
WORKERS = 2
TOKEN = "spark.warren.test.place"  # set when the place is started: who shows it is at this place and no other
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
QUICK_TO_START = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",  # leaves as many for the application of a second process
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.task.maxFailures": "2",  # one executor may die; in local mode the master's name says it
}
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ANY_PORT = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


@dataclass(frozen=True, slots=True)
class Place:
    """Where sessions are: a master's URL, or a Connect server's."""

    kind: str
    url: str
    token: str
    worker_groups: tuple[int, ...] = ()  # process groups that do the work; none: this process's own

    def words(self) -> list[str]:
        """For the command line of a process that shall have a session here: Place(*words)."""
        return [self.kind, self.url, self.token]


def chosen_kind() -> str:
    kind = os.environ.get("WARREN_SPARK", LOCAL)
    assert kind in KINDS, f"WARREN_SPARK is '{kind}'; there are {', '.join(KINDS)}"
    return kind


def session_at(place: Place, **settings: str) -> Any:
    """A session at this place; in a process that has none yet. Settings are for a classic one."""
    if place.kind == CONNECT:
        return spark_session(remote=place.url)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # one machine: the executors' Python is ours
    session = spark_session(place.url, config={**QUICK_TO_START, **settings, TOKEN: place.token})
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def spark_place(kind: str, folder: Path) -> Iterator[Place]:
    """A place of this kind, until the end of the block."""
    started: list[ProcessGroup] = []
    token = secrets.token_hex(8)
    with all_killed(started):
        start = {LOCAL: _local_url, STANDALONE: _start_cluster, CONNECT: _start_connect_server}[kind]
        url = start(folder, token, started)
        workers = tuple(group.id for group in started if group.log.stem != "master")
        yield Place(kind, url, token, workers)


def _local_url(folder: Path, token: str, started: list[ProcessGroup]) -> str:
    return "local[2,2]"


def _start_cluster(folder: Path, token: str, started: list[ProcessGroup]) -> str:
    """A master and its workers. An application that comes before they have registered waits for them."""
    master = _spark_class(folder, "master", started, _MASTER, *_ANY_PORT)
    url = _logged(master, r"Starting Spark master at (spark://\S+)")
    for number in range(WORKERS):
        name = f"worker-{number}"
        options = ("--cores", "2", "--memory", "2g", "--work-dir", str(folder / name))
        _spark_class(folder, name, started, _WORKER, *_ANY_PORT, *options, url)
    wait_until("registered workers", lambda: master.text.count("Registering worker") == WORKERS, *started)
    return url


def _start_connect_server(folder: Path, token: str, started: list[ProcessGroup]) -> str:
    """What sbin/start-connect-server.sh does in the end, without its pid files."""
    settings = {
        **QUICK_TO_START,
        TOKEN: token,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    master = ("--master", _local_url(folder, token, started))
    server = _spark_class(
        folder, "connect", started, _SUBMIT, "--class", _CONNECT_SERVER, *master, *options, "spark-internal"
    )
    port = _logged(server, r"Spark Connect server started at: \S+:(\d+)")
    return f"sc://127.0.0.1:{port}"


def _spark_class(folder: Path, name: str, started: list[ProcessGroup], *words: str) -> ProcessGroup:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    home = Path(found.origin).parent
    env = {
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }
    group = ProcessGroup([str(home / "bin" / "spark-class"), *words], folder / f"{name}.log", env, folder)
    started.append(group)
    return group


def _logged(group: ProcessGroup, pattern: str) -> str:
    """What a server says of itself when it is ready."""
    wait_until(f"line '{pattern}'", lambda: re.search(pattern, group.text) is not None, group)
    found = re.search(pattern, group.text)
    assert found is not None
    return found[1]
