"""Rows about what reflection costs those who write: the same sessions with it and without, in turns.

    removed_soon_…   every key is removed two sessions after it was put: little of it should ever reach the store
    all_stay_…       all keys differ, and stay

    off · on · off · on · off · on        medians of each: a disk drifts from minute to minute

The rate is that of writers: from the first session's begin until the last one is durable. Beside it stand `…_drained`,
the rate until the store has everything as well, and `…_backlog`, the entries that it did not have when the last session
was durable: a writer who is fast because nothing is reflected shows there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from statistics import median
from time import perf_counter

from tools.bench.measurement import Figure
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.databases import SESSION_KEYS, SessionStep, keys_of, opened_database, value_lists, write
from warren.snapshot.reflection import Mode

ROUNDS = 3
WRITTEN_KEYS_MAX = 10_000_000  # they are kept as Python objects, made before the clock starts
REMOVED_AFTER_SESSIONS = 2
OUTSIDE = {"watch", "spark"}  # modes that work in processes of their own


class Shape(StrEnum):
    REMOVED_SOON = "removed_soon"
    ALL_STAY = "all_stay"


@dataclass(frozen=True, slots=True)
class Written:
    entries: int
    seconds: float  # until everything was durable
    drained_seconds: float  # until the store had it too
    backlog: int  # entries that were durable and not in the store

    @property
    def rate(self) -> float:
        return self.entries / self.seconds

    @property
    def drained_rate(self) -> float:
        return self.entries / self.drained_seconds


def modes_inside() -> list[Mode]:
    """The modes that reflect in this process."""
    return [mode for mode in Mode if mode is not Mode.OFF and mode.value not in OUTSIDE]


def writing_scenarios() -> dict[Callable[[BenchRun], Figures], tuple[str, ...]]:
    return {
        partial(beside_off, shape, mode): (name, f"{name}_drained", f"{name}_backlog")
        for shape in Shape
        for mode in modes_inside()
        if (name := row_of(shape, mode))
    }


def row_of(shape: Shape, mode: Mode) -> str:
    return f"{shape}_{mode.value.replace('-', '_')}"


def beside_off(shape: Shape, mode: Mode, run: BenchRun) -> Figures:
    name = row_of(shape, mode)
    run.began(name)
    steps = prepared(shape, min(run.entries, WRITTEN_KEYS_MAX))
    without, reflected = [], []
    for number in range(ROUNDS):
        without.append(_once(run, Mode.OFF, steps))
        reflected.append(_once(run, mode, steps))
        run.reached((number + 1) / ROUNDS)
    off = median(each.rate for each in without)
    yield Figure(name, median(each.rate for each in reflected), "entries/s", off)
    yield Figure(f"{name}_drained", median(each.drained_rate for each in reflected), "entries/s", off)
    yield Figure(f"{name}_backlog", median(each.backlog for each in reflected), "entries", reflected[0].entries)


def prepared(shape: Shape, keys: int) -> list[SessionStep]:
    lists = [keys_of(session) for session in range(-(-keys // SESSION_KEYS))]
    values = value_lists()
    if shape is Shape.ALL_STAY:
        return [SessionStep(puts, values[number % len(values)]) for number, puts in enumerate(lists)]
    removes = [[], *([],) * (REMOVED_AFTER_SESSIONS - 1), *lists]
    return [
        SessionStep(puts, values[number % len(values)], gone)
        for number, (puts, gone) in enumerate(zip(lists, removes, strict=False))
    ]


def _once(run: BenchRun, mode: Mode, steps: list[SessionStep]) -> Written:
    with run.room() as room, opened_database(room, mode) as database:
        start = perf_counter()
        sent = write(database, steps)
        seconds = perf_counter() - start
        applied = database.store.applied.epoch
        database.catch_up()
        drained = perf_counter() - start
    behind = sum(entries for epoch, entries in sent if epoch > applied)
    return Written(sum(entries for _, entries in sent), seconds, drained, behind)
