"""Processes that are ended by SIGKILL at a random moment, many of them for the cost of one start.

    the test      Lives("tests.snapshot.store_to_be_killed", directory).one(seconds)   ─▶ the reports of that process
    the child     serve(live)      forks a process for each run, so that all of them share the imports

    stdin     a line: start a process, with the line as its argument
    stdout    "pid N" of the process, its reports ("done 7"), "dead" after its end

A report is one write: `print` makes several where PYTHONUNBUFFERED is set, and a kill may fall between two of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]

Reports = list[tuple[str, int]]  # a word, and a number


def report(word: str, number: int = 0) -> None:
    os.write(1, f"{word} {number}\n".encode())


def serve(live: Callable[[str], None]) -> None:
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            report("pid", os.getpid())  # before any other output
            live(line.strip())
        os.waitpid(pid, 0)
        report("dead")


class Lives:
    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    @property
    def pid(self) -> int:
        """Of the process that forks the others."""
        return self._process.pid

    def one(self, seconds: float, order: str = "") -> Reports:
        """Start a process, end it after `seconds`, and return its output."""
        self.begin(order)
        time.sleep(seconds)
        return self.kill()

    def begin(self, order: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        word, self._pid = self.read_line()
        assert word == "pid", word

    def read_line(self) -> tuple[str, int]:
        """The next report of the process."""
        assert self._process.stdout is not None
        word, number = self._process.stdout.readline().split()
        return word, int(number)

    def kill(self) -> Reports:
        os.kill(self._pid, signal.SIGKILL)
        reports: Reports = []
        while (line := self.read_line())[0] != "dead":
            reports.append(line)
        return reports

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._process.stdout.close()
