"""Rows about what grows with the number of keys, and what does not: start-up, memory, disk.

    sizes       10 k · 100 k · 1 M · 10 M keys, those below --entries, and --entries itself
    restart     a process fills a database, is killed with SIGKILL; from opening it again until a key has been read
    memory      of that process, while the keys are written, reflected and read
    disk        another database: every key overwritten three times in random order, a fifth removed, nothing retained

`restart_killed_…` is the middle one of three kills, each with ten thousand keys behind the last flush;
`restart_clean_…` the middle one of three starts behind a clean stop. `restart_backlog` shows what the others leave out:
a process that is killed at full speed, and whose store was far behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from tools.bench.measurement import Figure
from tools.bench.memory_watch import TreePeak, watched_tree
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.child import BEHIND, MORE_FROM, MORE_SESSIONS, SETTLED, child
from tools.bench.snapshot.databases import SESSION_KEYS, STORAGE, directory_of, keys_of, opened_database
from tools.bench.snapshot.disk import disk_figure
from warren.base.errors import Damage

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
TIMES = 3
BACKLOG_KEYS_MAX = 1_000_000
_NEWEST = MORE_FROM + MORE_SESSIONS - 1


def sizes_up_to(entries: int) -> list[int]:
    return [*(size for size in SIZES if size < entries), entries]


def label_of(size: int) -> str:
    """10k, 1m, 20500."""
    for letter, unit in (("m", 1_000_000), ("k", 1_000)):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def size_of(label: str) -> int:
    units = {"k": 1_000, "m": 1_000_000}
    return int(label[:-1]) * units[label[-1]] if label[-1] in units else int(label)


def growth_row_names(entries: int) -> tuple[str, ...]:
    kinds = ("restart_killed", "restart_clean", "memory", "memory_anonymous")
    each = [f"{kind}_{label_of(size)}" for size in sizes_up_to(entries) for kind in kinds]
    return (*each, "restart_growth", "memory", "restart_backlog")


def disk_row_names(entries: int) -> tuple[str, ...]:
    return (*(f"disk_{label_of(size)}" for size in sizes_up_to(entries)), "disk")


def growth_rows(run: BenchRun) -> Figures:
    """Restart and memory come from one and the same process of each size."""
    _warm_up(run)
    times: list[float] = []
    peak = TreePeak(0)
    base = 0.0
    for size in sizes_up_to(run.entries):
        label = label_of(size)
        run.began(f"restart_killed_{label}")
        with run.room() as room:
            with child(room, size, SETTLED) as process, watched_tree(process.pid) as peak:
                base = peak.resident
                process.do()
            killed, clean = median(_killed(room)), median(_clean(room))
        times += [killed, clean]
        yield Figure(f"restart_killed_{label}", killed, "s")
        yield Figure(f"restart_clean_{label}", clean, "s")
        yield Figure(f"memory_{label}", peak.resident, "MiB", base)
        yield Figure(f"memory_anonymous_{label}", peak.anonymous, "MiB")
    yield Figure("restart_growth", max(times), "s", 1.3 * min(times) + 0.3)
    yield Figure("memory", peak.resident, "MiB", base)
    yield _backlog(run)


def disk_rows(run: BenchRun) -> Figures:
    figure = None
    for size in sizes_up_to(run.entries):
        run.began(f"disk_{label_of(size)}")
        with run.room() as room:
            figure = disk_figure(run, room, size)
        yield Figure(f"disk_{label_of(size)}", figure.value, figure.unit, figure.reference)
    assert figure is not None
    yield Figure("disk", figure.value, figure.unit, figure.reference)


def _warm_up(run: BenchRun) -> None:
    """Import what opening needs: the smallest size is not to pay for it."""
    with run.room() as room, opened_database(room) as database:
        database.close()


def _killed(room: Path) -> Iterator[float]:
    """The child was killed just now; then twice more."""
    yield _start(room, _NEWEST)
    for _ in range(TIMES - 1):
        with child(room, 0, SETTLED) as process:
            process.do()
        yield _start(room, _NEWEST)


def _clean(room: Path) -> list[float]:
    return [_start(room, _NEWEST) for _ in range(TIMES)]


def _start(room: Path, newest_session: int) -> float:
    """Seconds until the newest key is read; then a clean stop, after which everything lies on the disk."""
    key = keys_of(newest_session)[-1]
    os.sync()
    start = perf_counter()
    with opened_database(room) as database:
        view = database.view_now()
        found = view.get(STORAGE, key)
        seconds = perf_counter() - start
        view.close()
        if found is None:
            raise Damage("a key that was durable when its process was killed is not there", directory_of(room))
        database.close()
    return seconds


def _backlog(run: BenchRun) -> Figure:
    run.began("restart_backlog")
    keys = min(run.entries, BACKLOG_KEYS_MAX)
    with run.room() as room:
        with child(room, keys, BEHIND) as process:
            process.do()
        return Figure("restart_backlog", _start(room, keys // SESSION_KEYS - 1), "s")
