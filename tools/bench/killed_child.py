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
Told = Mapping[str, float]


class Child:
    """One that is ready, and does nothing before it is told to."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        if self._heard() != _READY:
            raise _ended()

    def do(self) -> Told:
        """Let it do its work; return what it tells when it is done, and waits."""
        self.go()
        return self.told()

    def go(self) -> None:
        """Let it do its work, beside others perhaps."""
        assert self._process.stdin is not None
        self._process.stdin.write(_GO)
        self._process.stdin.flush()

    def told(self) -> Told:
        """What it tells when it is done."""
        line = self._heard()
        if not line:
            raise _ended()
        told: Told = json.loads(line)
        return told

    def _heard(self) -> bytes:
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
    """Say so, and wait for the word to go."""
    _say(_READY)
    sys.stdin.buffer.readline()


def done(told: Told | None = None) -> None:
    """Say so, and wait for the end, or for the word to go on."""
    _say(json.dumps(told or {}).encode() + b"\n")
    sys.stdin.buffer.readline()


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _ended() -> DiskFailure:
    return DiskFailure("the process that was to write and be killed ended by itself")
