"""What a process and all below it use, from /proc: Spark works in a JVM and in Python workers, none of them ours.

    warren bench ─▶ java ─▶ python daemon ─▶ python workers

CPU seconds of those that have ended are their parents' (a process that is waited for adds its times to its parent's
account), so the sum over the living is that of all. *Anonymous* memory is what a process allocated; pages of mapped
log files are not in it, which the kernel keeps only as long as memory is free.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from warren.base.threads import SystemThreads, repeatedly

_TICKS = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS = 0.1
_STAT = re.compile(r"^(\d+) \((.*)\) \S ([0-9 -]*)", re.DOTALL)
_PARENT, _USER, _CHILDREN_SYSTEM = 0, 10, 13  # of the numbers behind the state


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    name: str
    parent: int
    cpu_seconds: float  # its own, and that of children that ended


def tree_of(pid: int) -> list[Process]:
    """A process and all below it, parents first."""
    every = [found for entry in os.listdir("/proc") if entry.isdigit() and (found := _process(entry))]
    below: dict[int, list[Process]] = {}
    for process in every:
        below.setdefault(process.parent, []).append(process)
    tree = [process for process in every if process.pid == pid]
    for process in tree:
        tree += below.get(process.pid, ())
    return tree


def cpu_seconds(pid: int) -> float:
    return sum(process.cpu_seconds for process in tree_of(pid))


def cpu_seconds_of(pids: Iterable[int]) -> float:
    """Of these processes, without others below them."""
    return sum(process.cpu_seconds for pid in pids if (process := _process(str(pid))) is not None)


def spark_workers(pid: int) -> list[Process]:
    """The Python processes that a JVM below this process has started."""
    tree = tree_of(pid)
    spark = {process.pid for process in tree if process.name == "java"}
    workers: list[Process] = []
    for process in tree:
        if process.parent in spark and process.name != "java":
            spark.add(process.pid)
            workers.append(process)
    return workers


def status_mib(pid: int, name: str) -> float:
    """A number of /proc/PID/status in MiB; 0 once the process has ended, or where there is no such file."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


class WorkerMemoryPeak:
    """The most anonymous memory, in MiB, that Spark's Python workers had together while the body ran: those which did
    something meanwhile. Spark keeps idle ones from earlier work."""

    def __init__(self) -> None:
        self._before = {worker.pid: worker.cpu_seconds for worker in spark_workers(os.getpid())}
        self.mib = 0.0

    def look(self) -> None:
        workers = spark_workers(os.getpid())
        busy = [worker.pid for worker in workers if worker.cpu_seconds > self._before.get(worker.pid, 0.0)]
        self.mib = max(self.mib, sum(status_mib(pid, "RssAnon") for pid in busy))


@contextmanager
def watched_workers() -> Iterator[WorkerMemoryPeak]:
    peak = WorkerMemoryPeak()
    with repeatedly(SystemThreads(), "memory-watch", _POLL_SECONDS, peak.look):
        yield peak
    peak.look()


def _process(entry: str) -> Process | None:
    try:
        text = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = _STAT.match(text)
    assert found is not None, "the kernel writes a line of this form"
    numbers = [int(number) for number in found[3].split()]
    ticks = sum(numbers[_USER : _CHILDREN_SYSTEM + 1])
    return Process(int(found[1]), found[2], numbers[_PARENT], ticks / _TICKS)
