"""Rows about how many messages a second go through one queue.

    put_many           1000 bodies a call, each call durable before the next         beside SQLite, 1000 per transaction
    put_many_large     the same, 10,000 a call
    get_many           1000 a call, acknowledged; the clock runs until the last ack is durable     beside SQLite
    put_later          one body a call, each a future; the clock runs until the last is durable
    put_threads        four threads, each 1000 bodies a call                         beside put_many
    put_threads_one    sixteen threads, one durable put after the other              beside one such thread

`…_8k`: the same with bodies of 8 KiB, an eightieth of the messages. After each row the queue is drained, and what comes
out is compared with what was put: in its order, or of threads, whose order is their own, sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter

from tools.bench.measurement import Figure
from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES, bodies, check_bodies
from tools.bench.queue.contenders import TOGETHER, Budget, Speeds, speeds
from tools.bench.queue.ours import QUEUE, drained, opened_queues, take
from tools.bench.queue.peer_rows import LARGE_ONE_IN, UNIT
from tools.bench.queue.peers import SqliteByHand
from tools.bench.run import BenchRun, Figures
from warren.base.errors import Damage
from warren.base.threads import SystemThreads
from warren.embedded.database import Warren

MESSAGES_MAX = 1_000_000
LARGE_TOGETHER = 10_000
LATER_ONE_IN = 10  # of the messages, where each is a call …
SINGLE_ONE_IN = 50  # … and where each call waits
THREADS, SINGLE_THREADS = 4, 16
REFERENCE_SECONDS = 1.0
_KINDS = ("put_many", "put_many_large", "get_many", "put_later", "put_threads", "put_threads_one")


def throughput_row_names(is_large: bool = False) -> tuple[str, ...]:
    return tuple(f"{kind}_8k" for kind in _KINDS) if is_large else _KINDS


def throughput_rows(run: BenchRun) -> Figures:
    yield from _rows(run, min(run.entries, MESSAGES_MAX), SMALL_BYTES, "")


def large_throughput_rows(run: BenchRun) -> Figures:
    yield from _rows(run, max(SINGLE_THREADS, min(run.entries, MESSAGES_MAX) // LARGE_ONE_IN), LARGE_BYTES, "_8k")


def _rows(run: BenchRun, messages: int, size_bytes: int, suffix: str) -> Figures:
    run.began(f"put_many{suffix}")
    sqlite = _sqlite(run, messages, size_bytes)
    ready = bodies(0, messages, size_bytes)
    with run.room() as room, opened_queues(room) as db:
        row = _QueueRows(db, size_bytes)
        put_many = row.put_many(ready, TOGETHER)
        yield Figure(f"put_many{suffix}", put_many, UNIT, sqlite.put_many)
        row.empty(messages)
        yield Figure(f"put_many_large{suffix}", row.put_many(ready, LARGE_TOGETHER), UNIT, put_many)
        yield Figure(f"get_many{suffix}", row.get_many(messages), UNIT, sqlite.get_many)
        run.began(f"put_later{suffix}")
        yield Figure(
            f"put_later{suffix}", row.put_later(ready[: max(1, messages // LATER_ONE_IN)]), UNIT, sqlite.put_many
        )
        run.began(f"put_threads{suffix}")
        yield Figure(f"put_threads{suffix}", row.threads(ready, THREADS, TOGETHER), UNIT, put_many)
        singles = ready[: max(SINGLE_THREADS, messages // SINGLE_ONE_IN)]
        alone = row.threads(singles[: max(1, len(singles) // SINGLE_THREADS)], 1, 1)
        yield Figure(f"put_threads_one{suffix}", row.threads(singles, SINGLE_THREADS, 1), UNIT, alone)


def _sqlite(run: BenchRun, messages: int, size_bytes: int) -> Speeds:
    with run.room() as room, closing(SqliteByHand(Path(room, "sqlite"))) as contender:
        return speeds(contender, Budget(messages, REFERENCE_SECONDS), size_bytes)


class _QueueRows:
    """One queue of ours, empty between two rows."""

    def __init__(self, db: Warren, size_bytes: int) -> None:
        self._queue = db.queue(QUEUE)
        self._size_bytes = size_bytes

    def put_many(self, ready: Sequence[bytes], together: int) -> float:
        start = perf_counter()
        for first in range(0, len(ready), together):
            self._queue.put_many(ready[first : first + together])
        return len(ready) / (perf_counter() - start)

    def get_many(self, count: int) -> float:
        """Kept until the clock has stopped, compared then."""
        got: list[bytes] = []
        start = perf_counter()
        while some := take(self._queue, TOGETHER):
            got += some
        self._queue.sync()
        seconds = perf_counter() - start
        self._check(got, count)
        return count / seconds

    def empty(self, count: int) -> None:
        self._check(drained(self._queue, count), count)

    def put_later(self, ready: Sequence[bytes]) -> float:
        start = perf_counter()
        futures = [self._queue.put_later(body) for body in ready]
        for future in futures:
            future.result()
        rate = len(ready) / (perf_counter() - start)
        self.empty(len(ready))
        return rate

    def threads(self, ready: Sequence[bytes], threads: int, together: int) -> float:
        share = -(-len(ready) // threads)
        jobs = [self._putter(ready[first : first + share], together) for first in range(0, len(ready), share)]
        start = perf_counter()
        SystemThreads(threads).together(jobs)
        rate = len(ready) / (perf_counter() - start)
        self._check(
            sorted(drained(self._queue, len(ready))), len(ready)
        )  # their numbers stand first: this is the order
        return rate

    def _putter(self, ready: Sequence[bytes], together: int) -> Callable[[], None]:
        def put_singly() -> None:
            for body in ready:
                self._queue.put(body)

        def put_together() -> None:
            self.put_many(ready, together)

        return put_singly if together == 1 else put_together

    def _check(self, got: list[bytes], count: int) -> None:
        check_bodies(QUEUE, got, self._size_bytes, count=count)
        if left := len(self._queue):
            raise Damage(f"all {count} messages came out of the queue, and it says that {left} are left")
