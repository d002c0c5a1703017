"""Asking a running store for something through its `ctrl` directory, from another process (log/control answers).

    ctrl/start_compaction     written under a name of our own, then renamed: the store never sees half of it
    ctrl/compaction_result    ours is the one that repeats our request's name

One request at a time: whoever finds another's waiting waits until the store has taken it up.
"""

from __future__ import annotations

import json
from typing import Any

from warren.base.errors import Refused
from warren.files.protocol import join
from warren.log.control import RESULT, START
from warren.log.layout import CTRL, MANIFEST
from warren.log.store import Environment

POLL_SECONDS = 0.05


def request_compaction(
    machine: Environment, directory: str, wanted: dict[str, Any], timeout_seconds: float
) -> dict[str, Any]:
    """What the store running in a directory answers. A request that nobody takes up is withdrawn."""
    if not machine.files.exists(join(directory, MANIFEST)):
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    return _Request(machine, directory, wanted).answered(timeout_seconds)


class _Request:
    def __init__(self, machine: Environment, directory: str, wanted: dict[str, Any]) -> None:
        self._machine = machine
        self._files = machine.files
        self._home = join(directory, CTRL)
        self._start, self._result = join(self._home, START), join(self._home, RESULT)
        self._name = f"{machine.chance.id64():016x}"
        self._raw = json.dumps({"request": self._name, **wanted}).encode()

    def answered(self, timeout_seconds: float) -> dict[str, Any]:
        deadline_ns = self._machine.clock.monotonic_ns() + int(timeout_seconds * 1e9)
        is_asked = False
        bell = self._machine.threads.condition()
        while True:
            if not is_asked and not self._files.exists(self._start):
                self._write()
                is_asked = True
            answer = self._answer()
            if answer is not None:
                return answer
            if self._machine.clock.monotonic_ns() >= deadline_ns:
                break
            with bell:
                bell.wait(POLL_SECONDS)
        if not is_asked or self._withdrawn():
            hint = "start it, or compact the stopped directory with `warren log compact`"
            raise Refused(f"nobody took up the request within {timeout_seconds:g} s: is a store running there?", hint)
        raise Refused(
            f"the compaction was not done within {timeout_seconds:g} s", f"its result will be in {self._result}"
        )

    def _write(self) -> None:
        self._files.make_directories(self._home)
        own = f"{self._start}.{self._name}"
        file = self._files.create(own)
        try:
            file.write_at(0, [self._raw])
        finally:
            file.close()
        self._files.rename(own, self._start)

    def _withdrawn(self) -> bool:
        """Take the request back, if nobody has taken it up."""
        if not self._files.exists(self._start):
            return False
        self._files.remove(self._start)
        return True

    def _answer(self) -> dict[str, Any] | None:
        if not self._files.exists(self._result):
            return None
        file = self._files.open(self._result)
        try:
            told = json.loads(file.read_at(0, self._files.stat(self._result).size_bytes))
        finally:
            file.close()
        return told if told.get("request") == self._name else None
