"""Rows about a queue of ten priority levels.

    priority_put_many   1000 bodies a call, the levels in turn, durable     beside SQLite with a column and an index
    priority_get_many   1000 a call, acknowledged                           beside SQLite, in the order of the index

What comes out is compared with what was put: the highest level first, and within a level in the order of the puts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter

from tools.bench.measurement import Figure
from tools.bench.queue.bodies import BodyTally, bodies
from tools.bench.queue.contenders import TOGETHER
from tools.bench.queue.ours import QUEUE, opened_queues, take
from tools.bench.queue.peer_rows import UNIT
from tools.bench.queue.peers import connected
from tools.bench.run import BenchRun, Figures

LEVELS = 10
MESSAGES_MAX = 500_000
SQLITE_MESSAGES_MAX = 100_000
PRIORITY_ROW_NAMES = ("priority_put_many", "priority_get_many")
PutSome = Callable[[Sequence[bytes], int], object]
GetSome = Callable[[], list[bytes]]


def priority_rows(run: BenchRun) -> Figures:
    run.began("priority_put_many")
    messages = min(run.entries, MESSAGES_MAX)
    with run.room() as room:
        sqlite_put, sqlite_get = _sqlite(room / "sqlite", min(messages, SQLITE_MESSAGES_MAX))
    with run.room() as room, opened_queues(room) as db:
        queue = db.queue(QUEUE, max_priority=LEVELS - 1)
        put, got = _rates(
            QUEUE,
            messages,
            lambda some, level: queue.put_many(some, priority=level),
            lambda: take(queue, TOGETHER),
            queue.sync,
        )
    yield Figure("priority_put_many", put, UNIT, sqlite_put)
    yield Figure("priority_get_many", got, UNIT, sqlite_get)


def _sqlite(path: Path, messages: int) -> tuple[float, float]:
    with closing(connected(path)) as connection:
        connection.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, priority INTEGER, body BLOB)")
        connection.execute("CREATE INDEX first ON queue (priority DESC, id)")

        def put(some: Sequence[bytes], level: int) -> None:
            connection.execute("BEGIN")
            connection.executemany(f"INSERT INTO queue (priority, body) VALUES ({level}, ?)", zip(some))
            connection.execute("COMMIT")

        def get() -> list[bytes]:
            connection.execute("BEGIN IMMEDIATE")
            query = "SELECT id, body FROM queue ORDER BY priority DESC, id LIMIT ?"
            rows = connection.execute(query, (TOGETHER,)).fetchall()
            connection.executemany("DELETE FROM queue WHERE id = ?", [(number,) for number, _ in rows])
            connection.execute("COMMIT")
            return [body for _, body in rows]

        return _rates("sqlite", messages, put, get, lambda: None)


def _rates(who: str, messages: int, put: PutSome, get: GetSome, settle: Callable[[], None]) -> tuple[float, float]:
    """Messages a second in, and out."""
    ready = [bodies(first, min(TOGETHER, messages - first)) for first in range(0, messages, TOGETHER)]
    start = perf_counter()
    for number, some in enumerate(ready):
        put(some, number % LEVELS)
    put_seconds = perf_counter() - start
    out: list[list[bytes]] = []
    start = perf_counter()
    while some := get():
        out.append(some)
    settle()
    get_seconds = perf_counter() - start
    got, expected = BodyTally(), BodyTally()
    for some in out:
        got.add(some)
    for level in reversed(range(LEVELS)):
        for some in ready[level::LEVELS]:
            expected.add(some)
    got.check(who, expected)
    return messages / put_seconds, messages / get_seconds
