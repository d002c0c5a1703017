"""A process to be watched, and to be killed: started as `python -m MODULE ARGUMENTS`.

    parent   starts it · watches it · lets it work · kills it with SIGKILL
    child    ready ◀ go ▶ does its work ◀ what it found, as one JSON object, and waits for its end, or for another go

Both ends of the talk are here: `child` is the parent's, `get_ready` and `done` are the child's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from warren.base.errors import DiskFailure

_READY, _GO = b"ready\n", b"go\n"
Readings = Mapping[str, float]


class Child:
    """A child process that is ready and waits for the signal to go."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        if self._read_line() != _READY:
            raise _ended()

    def do(self) -> Readings:
        """Run the work of the child; returns its readings. The child then waits."""
        self.go()
        return self.readings()

    def go(self) -> None:
        """Start the work of the child without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(_GO)
        self._process.stdin.flush()

    def readings(self) -> Readings:
        """The readings of the child at its end."""
        line = self._read_line()
        if not line:
            raise _ended()
        readings: Readings = json.loads(line)
        return readings

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def child_environment() -> dict[str, str]:
    """The environment of a child process that runs a module of tools/, whatever its working directory is."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


@contextmanager
def child(module: str, *arguments: object) -> Iterator[Child]:
    """Killed with SIGKILL when the block ends."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment()) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def get_ready() -> None:
    """Report ready, and wait for the signal to go."""
    _send(_READY)
    sys.stdin.buffer.readline()


def done(readings: Readings | None = None) -> None:
    """Report the readings, and wait for the end or another signal."""
    _send(json.dumps(readings or {}).encode() + b"\n")
    sys.stdin.buffer.readline()


def _send(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _ended() -> DiskFailure:
    return DiskFailure("the process that was to write and be killed ended early")
