"""The process that keeps many queues under one watermark, and says how near it came: `queue_child watermark …`.

    queues   all of them get a piece in turn, round after round, until TIMES the watermark has been put
    looks    behind every piece: what the queues say that their messages take, together
    least    from the moment when the sum is less than it was: something was paged. Before, there was nothing to page

Then, after its memory has been measured, every queue must have as many messages as were put into it, and some are
drained and compared.
"""

from __future__ import annotations

from pathlib import Path

from tools.bench.killed_child import Readings, done, get_ready
from tools.bench.queue.bodies import bodies, check_bodies
from tools.bench.queue.ours import drained, opened_queues, ram_bytes_of, with_watermark
from warren.base.errors import Damage
from warren.embedded.database import Warren
from warren.embedded.queues import Queue

BODY_BYTES = 1000
PIECE = 50  # bodies in one put
COMPARED_ONE_IN = 100  # queues


def hold_watermark(room: Path, queue_count: str, limit_bytes: str, times: str) -> None:
    limit = int(limit_bytes)
    with opened_queues(room, **with_watermark(limit)) as db:
        queues = [db.queue(f"q{number}") for number in range(int(queue_count))]
        for queue in queues:
            queue.put_many(bodies(0, 1, BODY_BYTES))
        get_ready()
        rounds = max(1, -(-limit * int(times) // (len(queues) * PIECE * BODY_BYTES)))
        done(_put(db, queues, rounds))
        done({"compared": _compare(queues, 1 + rounds * PIECE)})


def _put(db: Warren, queues: list[Queue], rounds: int) -> Readings:
    low, high, has_paged = float("inf"), 0, False
    for turn in range(rounds):
        for queue in queues:  # each gets bodies of its own: shared ones would take memory once
            queue.put_many(bodies(1 + turn * PIECE, PIECE, BODY_BYTES))
            used = ram_bytes_of(db)
            has_paged = has_paged or used < high
            high = max(high, used)
            low = min(low, used) if has_paged else low
    return {"high": high, "low": low if has_paged else 0, "put_bytes": rounds * PIECE * BODY_BYTES * len(queues)}


def _compare(queues: list[Queue], count: int) -> int:
    """Every queue's length, and some queues' bodies; of how many."""
    for queue in queues:
        if len(queue) != count:
            raise Damage(f"{count} messages were put into {queue.name}, it says {len(queue)}")
    for queue in queues[::COMPARED_ONE_IN]:
        check_bodies(queue.name, drained(queue, count), BODY_BYTES, count=count)
    return len(queues[::COMPARED_ONE_IN])
