"""Nothing goes around the seams: files, time, threads, chance and other processes are reached through named modules.

Only so does a crash test on the memory disk, with the stepped threads and the manual clock, say something about the
product: what passes by a seam is not simulated. The table below is the whole list of doors.

What it sees: imports of the modules that touch the machine, names of `os` other than a few harmless ones, the builtin
`open`, and the side doors of harmless modules (`datetime.now`, `numpy.memmap`). What it cannot see: a library that
opens files on its own. Such a library belongs in a package of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source_tree import SRC, Module, modules_under, plant

TIME = {"time", "datetime.now"}
THREADS = {"threading", "_thread", "concurrent", "multiprocessing"}
RANDOM = {"random", "secrets", "uuid", "numpy.random"}
PROCESSES = {"subprocess", "pty", "signal"}
NETWORK = {"socket", "socketserver", "select", "selectors", "ssl"}
SQL = {"sqlalchemy", "sqlite3"}  # writes its own files: in packages of its own
FILES = {"open", "io.open", "os", "pathlib", "mmap", "numpy.memmap", "fcntl", "shutil", "tempfile", "glob"}
EVERYTHING = TIME | THREADS | RANDOM | PROCESSES | NETWORK | SQL | FILES

DOORS: dict[str, set[str]] = {
    "base/environment.py": TIME | RANDOM | {"os"},  # os: called in a forked child
    "base/threads.py": THREADS | {"time"},  # sleeps for no time at all: others may run first
    "files/local.py": FILES | {"socket", "time"},  # the holder's text names the host; a dead one is waited for
    "workers/control_socket.py": {"socket", "os"},  # the socket, and its name in the directory
    "workers/process.py": {"subprocess", "os"},  # the child and its environment; standard input, exit
    "workers/tasks.py": {"os"},  # the child's priority
    "snapshot/puller/process.py": {"os", "signal"},  # exit at a fault, SIGTERM
    "catalog/": SQL,
    "queues/kinds/sql_queue.py": SQL,  # the alternate queue: safe by SQLite alone, not by our log; kill-tested
    "embedded/database.py": {"concurrent"},  # futures returned to the caller; these two start nothing
    "embedded/queues.py": {"concurrent"},
    "management/": {"concurrent", "socket"},  # threads that answer, and what is listened at; the loop is asyncio's
    "management/http_server.py": {"os"},  # the name of a socket in its directory
    "server/server.py": {"concurrent", "socket"},  # the threads that do what blocks; what is listened at
    "server/connection.py": {"socket"},  # the option by which a connection is reset
    "server/tls.py": {"ssl"},  # contexts from certificate files, which only OpenSSL reads
    "app/lifecycle.py": {"signal", "socket"},  # how a broker is asked to stop; what is listened at
    "app/event_log.py": {"select"},  # whether a line can be written without waiting
    "app/service_manager.py": {"socket"},  # the socket of systemd
    "pipeline/source.py": {"signal"},  # how Spark ends the process of a stream's reader
    "pipeline/session.py": FILES | PROCESSES,  # finds a Java runtime, before there is any Spark
    "testing/": EVERYTHING,
    "cli/": EVERYTHING,
}

GUARDED_MODULES = {door for door in EVERYTHING if "." not in door and door != "open"}
# Of `os` these compute or only name something; all else is a file, a process or the environment.
HARMLESS_IN_OS = {"PathLike", "cpu_count", "fsdecode", "fsencode", "fspath", "getpid", "path", "sep", "strerror"}
HARMLESS_IN_OS_PATH = {"basename", "commonpath", "dirname", "isabs", "join", "normpath", "split", "splitext"}
HARMLESS_IN_PATHLIB = {"PurePath", "PurePosixPath"}
SIDE_DOORS = {  # attribute chains by their last two names
    "datetime.now": "datetime.now",
    "datetime.utcnow": "datetime.now",
    "datetime.today": "datetime.now",
    "date.today": "datetime.now",
    "io.open": "io.open",
    "io.FileIO": "io.open",
    "codecs.open": "io.open",
    **{f"{np}.random": "numpy.random" for np in ("np", "numpy")},
    **{f"{np}.{name}": "numpy.memmap" for np in ("np", "numpy") for name in ("memmap", "fromfile", "load", "save")},
}
SIDE_DOORS_FROM = {  # the same by `from x import y`
    ("numpy", "random"): "numpy.random",
    ("numpy", "memmap"): "numpy.memmap",
    ("numpy", "fromfile"): "numpy.memmap",
    ("io", "open"): "io.open",
    ("io", "FileIO"): "io.open",
    ("codecs", "open"): "io.open",
}


def passed_by(src: Path) -> list[str]:
    return [
        f"{module.place}:{line} uses {what}, which only {', '.join(_doors_for(seam))} may"
        for module in modules_under(src)
        for line, what, seam in sorted(_touches(module))
        if seam not in _granted(module.place)
    ]


def _granted(place: str) -> set[str]:
    return {seam for door, seams in DOORS.items() if place == door or _is_under(place, door) for seam in seams}


def _is_under(place: str, door: str) -> bool:
    return door.endswith("/") and place.startswith(door)


def _doors_for(seam: str) -> list[str]:
    return [door for door, seams in DOORS.items() if seam in seams]


def _touches(module: Module) -> Iterator[tuple[int, str, str]]:
    """Line, what is used, and the seam it belongs to, for everything that reaches for the machine."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name, top) for alias in names if (top := _guarded(alias.name)))
            case ast.ImportFrom(module=str(origin), names=names, level=0):
                for alias in names:
                    if seam := _seam_imported(origin, alias.name):
                        yield node.lineno, f"{origin}.{alias.name}", seam
            case ast.Call(func=ast.Name(id="open")):
                yield node.lineno, "open()", "open"
            case ast.Attribute():
                if seam := _seam_of_chain(chain := ast.unparse(node)):
                    yield node.lineno, chain, seam


def _guarded(name: str) -> str:
    """The seam an `import name` belongs to. `import os` alone does nothing yet: its uses are checked one by one."""
    if name == "numpy.random":
        return name
    top = name.partition(".")[0]
    return top if top in GUARDED_MODULES and name not in ("os", "os.path") else ""


def _seam_imported(origin: str, name: str) -> str:
    if origin == "os":
        return "" if name in HARMLESS_IN_OS else "os"
    if origin == "os.path":
        return "" if name in HARMLESS_IN_OS_PATH else "os"
    if origin == "pathlib":
        return "" if name in HARMLESS_IN_PATHLIB else "pathlib"
    return SIDE_DOORS_FROM.get((origin, name)) or _guarded(origin)


def _seam_of_chain(chain: str) -> str:
    parts = chain.split(".")
    if parts[0] == "os" and len(parts) == 2:
        return "" if parts[1] in HARMLESS_IN_OS else "os"
    if parts[:2] == ["os", "path"] and len(parts) == 3:
        return "" if parts[2] in HARMLESS_IN_OS_PATH else "os"
    return SIDE_DOORS.get(".".join(parts[-2:]), "")


def test_nothing_in_warren_goes_around_the_seams() -> None:
    assert not passed_by(SRC)


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "import io\nio.open('x')",
        "from io import FileIO",
        "import os\nos.unlink('x')",
        "import os\nos.path.exists('x')",
        "import os\nprint(os.environ['x'])",
        "from os import fsync",
        "from os.path import isfile",
        "import pathlib",
        "from pathlib import Path",
        "import shutil",
        "import mmap",
        "import fcntl",
        "import tempfile",
        "import numpy as np\nnp.memmap('x')",
        "from numpy import fromfile",
        "import threading",
        "from threading import Lock",
        "from concurrent.futures import ThreadPoolExecutor",
        "import multiprocessing.pool",
        "import time",
        "from time import sleep",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.utcnow()",
        "def f():\n    import random",
        "import secrets",
        "import uuid",
        "import numpy as np\nnp.random.default_rng(1)",
        "import subprocess",
        "import socket",
        "from sqlalchemy.exc import IntegrityError",
        "import sqlite3",
    ],
)
def test_a_way_around_a_seam_is_found(tmp_path: Path, line: str) -> None:
    offences = passed_by(plant(tmp_path, {"warren/log/read/scan.py": line}))
    assert offences
    assert all(offence.startswith("log/read/scan.py:") for offence in offences)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("log/read/scan.py", "import os\nos.path.join('a', 'b')\nos.getpid()"),
        ("log/read/scan.py", "from pathlib import PurePosixPath"),
        ("log/read/scan.py", "from datetime import datetime\ndatetime.fromtimestamp(0)"),
        ("log/read/scan.py", "def f(files):\n    files.open('x')\n    files.rename('a', 'b')"),
        ("log/read/scan.py", "from .time import hour\nfrom warren.base.threads import Threads"),
        ("base/environment.py", "import time"),
        ("base/threads.py", "import threading"),
        ("base/environment.py", "import secrets"),
        ("files/local.py", "import os\nimport mmap\nos.fdatasync(3)"),
        ("workers/process.py", "import subprocess"),
        ("catalog/queues.py", "from sqlalchemy import select"),
        ("queues/kinds/sql_queue.py", "from sqlalchemy import create_engine"),
        ("testing/memory_files.py", "import random, time, threading"),
    ],
)
def test_harmless_names_and_the_doors_themselves_are_not_blamed(tmp_path: Path, place: str, line: str) -> None:
    assert not passed_by(plant(tmp_path, {f"warren/{place}": line}))


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("base/environment.py", "import socket"),
        ("workers/process.py", "import threading"),
        ("queues/variable_queue.py", "import sqlite3"),
    ],
)
def test_a_door_opens_to_its_own_seam_only(tmp_path: Path, place: str, line: str) -> None:
    assert passed_by(plant(tmp_path, {f"warren/{place}": line}))
