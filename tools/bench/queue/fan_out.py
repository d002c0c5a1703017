"""Rows about messages that go to five queues at once, the body stored once.

    fan_out_5        bodies/s into five queues, 1000 a call, durable       beside SQLite: a body, five rows that name it
    fan_out_5_disk   bytes of disk a body takes, with all that is written about it      beside the body's own 100 bytes
    fan_out_5_get    messages/s out of the five, 1000 a call, acknowledged  beside SQLite: the last row takes the body

Disk is what is written in the directory (log, store, catalog) beyond what was when the queues were empty; zeros that
the log allocates ahead are left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter

from tools.bench.measurement import Figure
from tools.bench.queue.bodies import SMALL_BYTES, bodies, check_bodies
from tools.bench.queue.contenders import TOGETHER
from tools.bench.queue.ours import opened_queues, take, written_bytes_of
from tools.bench.queue.peer_rows import UNIT
from tools.bench.queue.peers import connected
from tools.bench.run import BenchRun, Figures

FAN_OUT = 5
NAMES = [f"fan-{number}" for number in range(FAN_OUT)]
MESSAGES_MAX = 200_000
SQLITE_MESSAGES_MAX = 50_000
FAN_OUT_ROW_NAMES = ("fan_out_5", "fan_out_5_disk", "fan_out_5_get")


def fan_out_rows(run: BenchRun) -> Figures:
    run.began("fan_out_5")
    ready = bodies(0, min(run.entries, MESSAGES_MAX))
    with run.room() as room:
        put, got = _sqlite(room / "sqlite", ready[:SQLITE_MESSAGES_MAX])
    with run.room() as room, opened_queues(room) as db:
        queues = [db.queue(name) for name in NAMES]
        empty_bytes = written_bytes_of(db, room)
        start = perf_counter()
        for first in range(0, len(ready), TOGETHER):
            db.publish(ready[first : first + TOGETHER], NAMES)
        yield Figure("fan_out_5", len(ready) / (perf_counter() - start), "bodies/s", put)
        disk_bytes = written_bytes_of(db, room) - empty_bytes
        yield Figure("fan_out_5_disk", disk_bytes / len(ready), "B/body", SMALL_BYTES)
        seconds = 0.0
        for queue in queues:
            out: list[bytes] = []
            start = perf_counter()
            while some := take(queue, TOGETHER):
                out += some
            queue.sync()
            seconds += perf_counter() - start
            check_bodies(queue.name, out, count=len(ready))
        yield Figure("fan_out_5_get", len(ready) * FAN_OUT / seconds, UNIT, got)


def _sqlite(path: Path, ready: Sequence[bytes]) -> tuple[float, float]:
    """Bodies a second in, messages a second out."""
    with closing(connected(path)) as connection:
        connection.execute("CREATE TABLE body (id INTEGER PRIMARY KEY, body BLOB, holders INTEGER)")
        connection.execute("CREATE TABLE held (queue INTEGER, id INTEGER, PRIMARY KEY (queue, id)) WITHOUT ROWID")
        start = perf_counter()
        for first in range(0, len(ready), TOGETHER):
            some = ready[first : first + TOGETHER]
            numbers = range(first, first + len(some))
            connection.execute("BEGIN")
            connection.executemany(f"INSERT INTO body VALUES (?, ?, {FAN_OUT})", zip(numbers, some, strict=True))
            for queue in range(FAN_OUT):
                connection.executemany(f"INSERT INTO held VALUES ({queue}, ?)", zip(numbers))
            connection.execute("COMMIT")
        put = perf_counter() - start
        out: list[list[bytes]] = [[] for _ in range(FAN_OUT)]
        start = perf_counter()
        for queue in range(FAN_OUT):
            while some := _taken(connection, queue):
                out[queue] += some
        got = perf_counter() - start
        for each in out:
            check_bodies("sqlite", each, count=len(ready))
        return len(ready) / put, len(ready) * FAN_OUT / got


def _taken(connection: sqlite3.Connection, queue: int) -> list[bytes]:
    connection.execute("BEGIN IMMEDIATE")
    query = "SELECT id, body FROM held JOIN body USING (id) WHERE queue = ? ORDER BY id LIMIT ?"
    rows = connection.execute(query, (queue, TOGETHER)).fetchall()
    if rows:
        first, last = rows[0][0], rows[-1][0]
        connection.execute("DELETE FROM held WHERE queue = ? AND id <= ?", (queue, last))
        connection.execute("UPDATE body SET holders = holders - 1 WHERE id BETWEEN ? AND ?", (first, last))
        connection.execute("DELETE FROM body WHERE id BETWEEN ? AND ? AND holders = 0", (first, last))
    connection.execute("COMMIT")
    return [body for _, body in rows]
