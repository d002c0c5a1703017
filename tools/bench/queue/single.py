"""Rows about one durable put after another, beside what the disk can do.

    round   100 of ours · 100 bare writes of as many bytes · 25 of SQLite          20 rounds

They take turns in one run, since a disk's sync time drifts from minute to minute. A bare write is one pwrite onto
written zeros and one fdatasync, as many bytes as one of our puts adds to the log. Rates are those of the median time.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from tools.bench.log.single import times
from tools.bench.measurement import Figure
from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES, bodies, check_bodies
from tools.bench.queue.ours import QUEUE, drained, log_bytes_of, opened_queues
from tools.bench.queue.peers import SqliteByHand
from tools.bench.references import BareFile
from tools.bench.run import BenchRun, Figures
from warren.embedded.database import Warren

ROUNDS_MAX = 20  # fewer than that for a backlog of fewer than 20,000 messages
PUTS_PER_ROUND = 100
SQLITE_PUTS_PER_ROUND = 25
WARM_UP = 100
UNIT = "puts/s"
SINGLE_ROW_NAMES = ("put_one", "put_one_in_sqlite")


@dataclass(slots=True)
class _Times:
    """Microseconds of each."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    sqlite: list[float] = field(default_factory=list)


def single_rows(run: BenchRun) -> Figures:
    yield from _rows(run, SMALL_BYTES, "")


def large_single_rows(run: BenchRun) -> Figures:
    yield from _rows(run, LARGE_BYTES, "_8k")


def single_row_names(is_large: bool = False) -> tuple[str, ...]:
    return tuple(f"{name}{'_8k' if is_large else ''}" for name in SINGLE_ROW_NAMES)


def _rows(run: BenchRun, size_bytes: int, suffix: str) -> Figures:
    run.began(f"put_one{suffix}")
    with run.room() as room, opened_queues(room) as db:
        taken = _take_turns(run, room, db, size_bytes)
    ours, bare, sqlite = (1e6 / median(each) for each in (taken.ours, taken.bare, taken.sqlite))
    yield Figure(f"put_one{suffix}", ours, UNIT, bare)
    yield Figure(f"put_one_in_sqlite{suffix}", sqlite, UNIT, bare)


def _take_turns(run: BenchRun, room: Path, db: Warren, size_bytes: int) -> _Times:
    rounds = max(2, min(ROUNDS_MAX, run.entries // 1000))
    ready, number = bodies(0, WARM_UP + rounds * PUTS_PER_ROUND, size_bytes), count()
    queue, taken = db.queue(QUEUE), _Times()

    def put() -> None:
        queue.put(ready[next(number)])

    before = log_bytes_of(db)
    times(put, WARM_UP)
    put_bytes = (log_bytes_of(db) - before) // WARM_UP
    with (
        closing(BareFile(room / "bare", put_bytes, len(ready))) as file,
        closing(SqliteByHand(room / "sqlite")) as sqlite,
    ):
        for turn in range(rounds):
            taken.ours += times(put, PUTS_PER_ROUND)
            taken.bare += times(file.append, PUTS_PER_ROUND)
            taken.sqlite += times(lambda: sqlite.put(ready[0]), SQLITE_PUTS_PER_ROUND)
            run.reached((turn + 1) / rounds)
    check_bodies(QUEUE, drained(queue, len(ready)), size_bytes, count=len(ready))
    return taken
