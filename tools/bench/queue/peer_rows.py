"""Rows that hold our queue against others: every contender does the same, one after the other, in the same run.

    put_beside_PEER         put_many of ours, 1000 a call       its fastest way to put
    put_one_beside_PEER     put of ours, one after the other    its put
    put_later_beside_PEER   put_later of ours, pipelined        its put
    get_beside_PEER         get_many + ack, 1000 a call         its fastest way to get and acknowledge
    get_one_beside_PEER     get + ack                           its get, acknowledged

Each phase ends after half a second, or when its messages are used up; `…_8k` is the first and the fourth with bodies of
8 KiB. What a put is worth differs (`promise` of a contender): a single put of ours that waits for the disk stands here
beside one that does not wait, so those two have no goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from tools.bench.measurement import Figure
from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES
from tools.bench.queue.contenders import PHASE_SECONDS, Budget, Contender, Speeds, speeds
from tools.bench.queue.ours import SQL_KIND, Ours, opened_queues, opened_sql_queues
from tools.bench.queue.peers import PEER_NAMES, PEERS
from tools.bench.run import BenchRun, Figures

OURS, OURS_IN_SQL = "warren", "warren_sql"
OTHERS = (*PEER_NAMES, OURS_IN_SQL)
MESSAGES_MAX = 500_000
LARGE_ONE_IN = 80  # as many bytes of large bodies as of small ones
UNIT = "messages/s"

_SMALL: dict[str, tuple[Callable[[Speeds], float], Callable[[Speeds], float]]] = {  # ours, theirs
    "put_beside": (lambda ours: ours.put_many, lambda theirs: theirs.put_best),
    "put_one_beside": (lambda ours: ours.put, lambda theirs: theirs.put),
    "put_later_beside": (lambda ours: ours.put_soon, lambda theirs: theirs.put),
    "get_beside": (lambda ours: ours.get_many, lambda theirs: theirs.get_best),
    "get_one_beside": (lambda ours: ours.get, lambda theirs: theirs.get),
}
_LARGE = ("put_beside", "get_beside")


def peer_row_names() -> tuple[str, ...]:
    return tuple(f"{kind}_{other}" for other in OTHERS for kind in _SMALL)


def large_peer_row_names() -> tuple[str, ...]:
    return tuple(f"{kind}_{other}_8k" for other in OTHERS for kind in _LARGE)


def peer_rows(run: BenchRun) -> Figures:
    budget = Budget(min(run.entries, MESSAGES_MAX), PHASE_SECONDS)
    for name, ours, theirs in _beside(run, "put_beside", budget, SMALL_BYTES):
        for kind, (of_ours, of_theirs) in _SMALL.items():
            yield Figure(f"{kind}_{name}", of_ours(ours), UNIT, of_theirs(theirs))


def large_peer_rows(run: BenchRun) -> Figures:
    budget = Budget(max(10, min(run.entries, MESSAGES_MAX) // LARGE_ONE_IN), PHASE_SECONDS)
    for name, ours, theirs in _beside(run, "put_beside_8k", budget, LARGE_BYTES):
        for kind in _LARGE:
            of_ours, of_theirs = _SMALL[kind]
            yield Figure(f"{kind}_{name}_8k", of_ours(ours), UNIT, of_theirs(theirs))


def _beside(run: BenchRun, row: str, budget: Budget, size_bytes: int) -> Iterator[tuple[str, Speeds, Speeds]]:
    run.began(row)
    ours = _ours(run, None, budget, size_bytes)
    for at, (name, make) in enumerate(zip(PEER_NAMES, PEERS, strict=True)):
        run.reached(at / len(OTHERS))
        yield name, ours, _peer(run, make, budget, size_bytes)
    yield OURS_IN_SQL, ours, _ours(run, SQL_KIND, budget, size_bytes)


def _ours(run: BenchRun, kind: str | None, budget: Budget, size_bytes: int) -> Speeds:
    with run.room() as room, (opened_queues if kind is None else opened_sql_queues)(room) as db:
        return speeds(Ours(db, OURS if kind is None else OURS_IN_SQL, kind), budget, size_bytes)


def _peer(run: BenchRun, make: Callable[[Path], Contender], budget: Budget, size_bytes: int) -> Speeds:
    with run.room() as room, closing(make(room / "peer")) as contender:
        return speeds(contender, budget, size_bytes)
