"""Rows about a backlog: how fast it is put, what memory it takes, how soon it is served again after `kill -9`.

    sizes     100 k · 1 M · 5 M messages, those below --messages, then --messages, and four times as many
    fill      a process puts so many bodies of 100 bytes durably; it is watched, and killed with SIGKILL when it is done
    restart   from opening the directory until the first message has been delivered, in this process
    drain     another process gets and acknowledges all of it, watched as well; nothing may be missing or out of turn

Memory is that of the process and those it starts, pages of mapped files included, in MB of a million bytes. The store
is killed at full speed: what was not reflected by then has to be read from the log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tools.bench.killed_child import Readings, child
from tools.bench.measurement import Figure
from tools.bench.memory_watch import TreePeak, watched_tree
from tools.bench.queue.bodies import BodyTally, bodies, tally
from tools.bench.queue.child import MODULE
from tools.bench.queue.ours import QUEUE, directory_of, first_of, opened_queues
from tools.bench.queue.peer_rows import UNIT
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.growth import label_of
from warren.base.errors import Damage

SIZES = (100_000, 1_000_000, 5_000_000)
TIMES_LARGER = 4
_KINDS = ("fill", "memory", "restart", "drain", "memory_drain")
_MEGABYTES_A_MIB = (1 << 20) / 1_000_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """What was measured of one size."""

    size: int
    fill: float  # messages/s
    memory: float  # MB
    restart: float  # s
    drain: float
    memory_drain: float

    def figures(self) -> list[Figure]:
        units = {"fill": UNIT, "memory": "MB", "restart": "s", "drain": UNIT, "memory_drain": "MB"}
        return [Figure(f"{kind}_{label_of(self.size)}", getattr(self, kind), units[kind]) for kind in _KINDS]


def backlog_sizes(messages: int) -> list[int]:
    return [*(size for size in SIZES if size < messages), messages, TIMES_LARGER * messages]


def backlog_row_names(messages: int) -> tuple[str, ...]:
    each = [f"{kind}_{label_of(size)}" for size in backlog_sizes(messages) for kind in _KINDS]
    of_all = ("backlog_fill", "backlog_memory", "backlog_restart", "backlog_drain_memory")
    return (*each, *of_all, "backlog_memory_growth", "backlog_drain_memory_growth", "backlog_restart_larger")


def backlog_rows(run: BenchRun) -> Figures:
    _warm_up(run)
    measured = []
    for size in backlog_sizes(run.entries):
        backlog = measure(run, size)
        measured.append(backlog)
        yield from backlog.figures()
    measured_size, larger = measured[-2:]
    yield Figure("backlog_fill", measured_size.fill, UNIT)
    yield Figure("backlog_memory", measured_size.memory, "MB")
    yield Figure("backlog_restart", measured_size.restart, "s")
    yield Figure("backlog_drain_memory", measured_size.memory_drain, "MB")
    yield Figure("backlog_memory_growth", larger.memory, "MB", measured_size.memory)
    yield Figure("backlog_drain_memory_growth", larger.memory_drain, "MB", measured_size.memory_drain)
    yield Figure("backlog_restart_larger", larger.restart, "s", measured_size.restart)


def measure(run: BenchRun, size: int) -> Backlog:
    run.began(f"fill_{label_of(size)}")
    with run.room() as room:
        filled, filling = _watched("fill", room, size)
        run.reached(0.4)
        restart = _restart(room, size)
        run.reached(0.5)
        emptied, draining = _watched("drain", room)
    _check(emptied, size)
    return Backlog(
        size,
        size / filled["seconds"],
        filling.resident * _MEGABYTES_A_MIB,
        restart,
        size / emptied["seconds"],
        draining.resident * _MEGABYTES_A_MIB,
    )


def _warm_up(run: BenchRun) -> None:
    """Import what opening needs: the smallest size is not to pay for it."""
    with run.room() as room, opened_queues(room) as db:
        db.queue(QUEUE).put(b"warm")


def _watched(what: str, room: Path, *arguments: int) -> tuple[Readings, TreePeak]:
    with child(MODULE, what, room, *arguments) as process, watched_tree(process.pid) as peak:
        readings = process.do()
    return readings, peak


def _restart(room: Path, size: int) -> float:
    """Seconds from opening to the first body in hand; it goes back, and the store is closed cleanly."""
    os.sync()
    start = perf_counter()
    with opened_queues(room) as db:
        queue = db.queue(QUEUE)
        body = first_of(queue)
        seconds = perf_counter() - start
        if body != bodies(0, 1)[0]:
            raise Damage("the first message after a kill is not the first that was put", str(directory_of(room)))
        if len(queue) != size - 1:
            raise Damage(f"{size} messages were durable, {len(queue)} + 1 are there", str(directory_of(room)))
    return seconds


def _check(emptied: Readings, size: int) -> None:
    found = BodyTally()
    found.count, found.checksum = int(emptied["count"]), int(emptied["checksum"])
    found.check("a backlog of before a kill", tally(size))
    if emptied["left"]:
        raise Damage(f"all {size} messages came out of the queue, and it says that {emptied['left']:.0f} are left")
