"""Stores on the real disk for the tests of the command line, and commands run as a user would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from warren.base.ids import StorageId
from warren.cli.main import main
from warren.log.settings import LogSettings
from warren.log.store import LogStore

STORAGE = StorageId(7)
SETTINGS = LogSettings(
    container_bytes=1, use_worker_process=False, compaction_poll_seconds=0.01, compaction_garbage_ratio=0
)


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    """A command line in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Ended(code, captured.out, captured.err)


def run_process(*arguments: object) -> Ended:
    """A command line in a process of its own."""
    line = [sys.executable, "-m", "warren.cli.main", *(str(argument) for argument in arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def put(store: LogStore, *keys: bytes) -> None:
    for key in keys:
        with store.begin() as session:
            session.put(STORAGE, key, b"value of " + key)


def make_store(directory: Path, is_open: bool = False, **settings: object) -> LogStore:
    """Epochs 1 and 2 in a rotated file, 3 behind it."""
    store = LogStore.open(str(directory), replace(SETTINGS, **settings))  # type: ignore[arg-type]
    put(store, b"a", b"b")
    store.rotate()
    put(store, b"c")
    if not is_open:
        store.close()
    return store


def spoil(path: Path, byte: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[byte] ^= 0x10
    path.write_bytes(bytes(raw))
