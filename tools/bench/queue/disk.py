"""Rows about the disk that queues take through a churn, when nothing is retained (TS-01 … TS-03).

    live      a quarter of --messages, of 100 bytes or as many bytes of 8 KiB bodies, put first
    one old   the very first message is got and never acknowledged: it holds on to the file it lies in
    churn     a piece is put, as many are got and acknowledged, until eleven times the live bytes have been put
    seen      the whole directory (log, store, catalog), sampled every 20 ms and after every piece: the largest

The goal is 2.5 × live + 2 containers at every moment. The figure's reference is live + 0.8 containers: 2.5 times as
much is the goal. Live are bodies alone.
"""

from __future__ import annotations

from pathlib import Path

from tools.bench.measurement import Figure
from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES, BodyTally, bodies, pieces, tally
from tools.bench.queue.ours import (
    QUEUE,
    container_bytes_of,
    directory_of,
    first_of,
    nothing_retained,
    opened_queues,
    take,
)
from tools.bench.run import BenchRun, Figures
from tools.bench.snapshot.databases import directory_bytes
from tools.bench.snapshot.disk import CONTAINERS_ALLOWED, LIVE_TIMES
from warren.base.threads import SystemThreads, repeatedly
from warren.embedded.database import Warren

LIVE_ONE_IN = 4  # of --messages
TURNS = 11  # times the live bytes are put in all: ten of churn
PIECES_A_TURN = 8
DISK_ROW_NAMES = ("disk", "disk_8k")
_POLL_SECONDS = 0.02
_MEGABYTE = 1_000_000


def disk_rows(run: BenchRun) -> Figures:
    live_bytes = max(1, run.entries // LIVE_ONE_IN) * SMALL_BYTES
    for name, size_bytes in zip(DISK_ROW_NAMES, (SMALL_BYTES, LARGE_BYTES), strict=True):
        run.began(name)
        with run.room() as room:
            yield churned(run, room, name, max(PIECES_A_TURN, live_bytes // size_bytes), size_bytes)


def churned(run: BenchRun, room: Path, name: str, live: int, size_bytes: int) -> Figure:
    seen = _Seen(directory_of(room))
    with opened_queues(room, **nothing_retained()) as db:
        with repeatedly(SystemThreads(), "disk-watch", _POLL_SECONDS, seen.look):
            _churn(run, db, seen, live, size_bytes)
        allowed = live * size_bytes + CONTAINERS_ALLOWED * container_bytes_of(db) / LIVE_TIMES
    return Figure(name, seen.most_bytes / _MEGABYTE, "MB", allowed / _MEGABYTE)


class _Seen:
    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.most_bytes = 0

    def look(self) -> None:
        self.most_bytes = max(self.most_bytes, directory_bytes(self._directory))


def _churn(run: BenchRun, db: Warren, seen: _Seen, live: int, size_bytes: int) -> None:
    queue, got = db.queue(QUEUE), BodyTally()
    piece = max(1, live // PIECES_A_TURN)
    queue.put_many(bodies(0, 1, size_bytes))
    old = first_of(queue)
    put = 1
    for some in pieces(live * TURNS, piece, size_bytes, first=1):
        queue.put_many(some)
        put += len(some)
        while put - got.count > live and (taken := take(queue, min(piece, put - got.count - live))):
            got.add(taken)
        seen.look()
        run.reached(min(1.0, put / (live * TURNS + 1)))
    got.check(QUEUE, tally(put - live, size_bytes, first=1))
    assert old == bodies(0, 1, size_bytes)[0], "it is held to this end"
