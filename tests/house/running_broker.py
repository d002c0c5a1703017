"""`warren serve` as a process, with a few queues and messages: what its files, sockets and ports call things.

Everything here goes through what a client, an operator or another program sees: AMQP, HTTP, the Unix sockets, files and
the command line. Nothing is imported from Warren.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pika
from prometheus_client.parser import text_string_to_metric_families

from tests.house.source_tree import ROOT

START_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 20.0
LOGIN = ("guest", "guest")
# Of RocksDB and SQLite, not ours.
_FOREIGN = re.compile(r"store/(?!$).*|secondary/.*|.*-(wal|shm|journal)")
_MANIFEST_HEADER_BYTES = 64
_BODY_BYTES_AT = slice(12, 16)


def command_line(*arguments: str) -> list[str]:
    """The console script of pyproject.toml, started by this interpreter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, function = project["project"]["scripts"]["warren"].split(":")
    start = f"import sys; from {module} import {function}; sys.exit({function}(sys.argv[1:]))"
    return [sys.executable, "-c", start, *arguments]


def printed_by(*arguments: str) -> str:
    return subprocess.run(command_line(*arguments), capture_output=True, text=True, check=True, timeout=60).stdout


@dataclass(frozen=True)
class RunningBroker:
    directory: Path
    places: dict[str, str]  # what it prints at the start: name → address

    # -- HTTP ------------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        return httpx.get(self.places["management"] + path, auth=LOGIN, timeout=WAIT_SECONDS_MAX).json()

    def http_routes(self) -> list[str]:
        return [f"{route['method']} {route['path']} ({route['tag']})" for route in self.get("/api")]

    def http_fields(self) -> list[str]:
        read = [route["path"] for route in self.get("/api") if route["method"] == "GET"]
        paths = [path for path in read if "{" not in path and path != "/"]
        node = self.get("/api/nodes")[0]["name"]
        paths += ["/api/queues/%2F/pinned", "/api/vhosts/%2F", f"/api/nodes/{node}", "/api/aliveness-test/%2F"]
        names = [f"{path} {key}" for path in paths for key in keys_of(self.get(path))]
        return [name.replace(node, "NODE") for name in names if ".arguments." not in name]

    def metrics(self) -> list[str]:
        families = "queue_coarse_metrics", "queue_consumer_count", "queue_metrics", "connection_churn_metrics"
        query = "&".join(f"family={family}" for family in (*families, "vhost_status"))
        found = []
        for path in ("", "/per-object", f"/detailed?{query}"):
            text = httpx.get(self.places["prometheus"] + path, timeout=WAIT_SECONDS_MAX).text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = ",".join(sorted(sample.labels))
                    found.append(f"/metrics{path.partition('?')[0]} {sample.name}{{{labels}}} {family.type}")
        return found

    # -- files -----------------------------------------------------------------------------------------------------

    def disk_layout(self) -> list[str]:
        """Files and folders, each run of digits as #."""
        names = []
        for path in self.directory.rglob("*"):
            name = path.relative_to(self.directory).as_posix() + ("/" if path.is_dir() else "")
            if not _FOREIGN.fullmatch(name):
                names.append(re.sub(r"\b[0-9a-f]{16}\b|\d+", "#", name))
        return names

    def manifest(self) -> list[Any]:
        """The JSON of each block, read by the drawing in docs/formats/block.md."""
        raw, at, bodies = (self.directory / "log" / "manifest").read_bytes(), 0, []
        while at < len(raw):
            size = int.from_bytes(raw[at:][_BODY_BYTES_AT], "little")
            at += _MANIFEST_HEADER_BYTES
            bodies.append(json.loads(raw[at : at + size].rstrip(b"\0")))
            at += size
        return bodies

    def manifest_names(self) -> list[str]:
        first, *edits = self.manifest()
        changes = [change for edit in edits for change in edit]
        named = [f"edit {verb} {key}" for verb, *what in changes for key in keys_of(what)]
        return [*(f"state {key}" for key in keys_of(first)), *(f"edit {verb}" for verb, *_ in changes), *named]

    def stream_names(self) -> list[str]:
        first, *edits = self.manifest()
        added = [change[1] for edit in edits for change in edit if change[0] == "stream"]
        return [f"{stream['id']} {stream['name']}" for stream in (*first["streams"], *added)]

    def catalog_rows(self) -> list[str]:
        """Letters and JSON keys of the catalog's rows in the log."""
        found = []
        for line in printed_by("log", "dump", str(self.directory), "--json").splitlines():
            entry = json.loads(line)
            key, value = bytes.fromhex(entry["key"]), bytes.fromhex(entry["value"])
            if entry["storage"] == 1 and value[1:2] == b"{":
                found += [f"{chr(key[0])} {name}" for name in json.loads(value[1:])]
        return found

    def sql_columns(self) -> list[str]:
        with closing(sqlite3.connect(self.directory / "catalog" / "warren.sqlite")) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return [f"{table}.{row[1]}" for table in tables for row in database.execute(f"PRAGMA table_info({table})")]

    # -- commands --------------------------------------------------------------------------------------------------

    def printed_keys(self, *arguments: str) -> list[str]:
        """Keys of the JSON that a command prints of this directory: one object, or the first of one per line."""
        text = printed_by(*arguments, "--json")
        value, _ = json.JSONDecoder().raw_decode(text)
        command = " ".join(each for each in arguments if each != str(self.directory))
        return [f"{command}: {key}" for key in keys_of(value)]

    # -- sockets and control files ---------------------------------------------------------------------------------

    def order(self, **request: Any) -> dict[str, Any]:
        """One order at the control socket, and its answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(WAIT_SECONDS_MAX)
            connection.connect(str(self.directory / "reflection.sock"))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())
        return answer

    def knows_order(self, command: str) -> bool:
        """An unknown command is answered by an error that differs from all others but for the name."""
        answer, unknown = self.order(command=command), self.order(command="no-such-command")
        message = str(answer.get("error", "")).replace(command, "no-such-command")
        return bool(answer["status"] == "ok" or message != unknown["error"])

    def ctrl(self, **request: Any) -> dict[str, Any]:
        """A request in the control directory, and the result that repeats its name."""
        home, name = self.directory / "log" / "ctrl", f"pinned-{time.monotonic_ns()}"
        (home / "draft").write_text(json.dumps({"request": name, **request}), encoding="utf-8")
        (home / "draft").rename(home / "start_compaction")
        result = home / "compaction_result"
        wait_until(lambda: result.exists() and name in result.read_text(encoding="utf-8"), f"an answer to {request}")
        answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return answer


@contextmanager
def running_broker(directory: Path, *options: str) -> Iterator[RunningBroker]:
    ports = [argument for name in ("port", "management-port", "prometheus-port") for argument in (f"--{name}", "0")]
    command = command_line("serve", "--data-dir", str(directory), *ports, "--drain-seconds", "1", *options)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WARREN_", "RABBITMQ_"))}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            yield RunningBroker(directory, _places(process))
        finally:
            process.terminate()
            process.wait(START_SECONDS_MAX)


def _places(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    places: dict[str, str] = {}
    for line in process.stdout:
        name, _, address = line.strip().partition(" ")
        if name == "ready":
            return places
        places[name] = address
    raise AssertionError(f"warren serve ended before it was ready, with status {process.wait()}")


def _connected(broker: RunningBroker) -> Any:
    host, _, port = broker.places["amqp"].rpartition(":")
    return closing(pika.BlockingConnection(pika.ConnectionParameters(host, int(port))))


def accepts_queue(broker: RunningBroker, arguments: dict[str, Any]) -> bool:
    """Whether an exclusive queue can be declared with these arguments."""
    with _connected(broker) as connection:
        try:
            connection.channel().queue_declare("", exclusive=True, arguments=arguments)
        except pika.exceptions.ChannelClosedByBroker:
            return False
    return True


def publish_some(broker: RunningBroker) -> dict[str, Any]:
    """Queues with messages, a binding, an exchange; the server properties that a client sees."""
    with _connected(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("pinned-exchange", "topic", durable=True)
        limits = {"x-max-priority": 3, "x-dead-letter-exchange": "pinned-exchange"}
        for name, arguments in (("pinned", {}), ("pinned-priority", limits)):
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, "pinned-exchange", "#")
        for size in (1, 100_000):
            channel.basic_publish("pinned-exchange", "key", b"x" * size, pika.BasicProperties(delivery_mode=2))
        method, _, _ = channel.basic_get("pinned")
        channel.basic_reject(method.delivery_tag, requeue=False)
        properties: dict[str, Any] = connection._impl.server_properties
    return properties


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_done():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def keys_of(value: Any) -> Iterator[str]:
    """Keys of nested objects: a.b, a[].b; a number as #. A list of plain values has no keys of its own."""
    if isinstance(value, dict):
        for name, inner in value.items():
            key = "#" if name.isdecimal() else name
            yield key
            yield from (f"{key}{'' if below.startswith('[]') else '.'}{below}" for below in keys_of(inner))
    elif isinstance(value, list):
        yield from dict.fromkeys(f"[].{below}" for each in value for below in keys_of(each))
