"""A process that fills or drains a queue, under watch, and is killed: `python -m tools.bench.queue.child WHAT ROOM …`.

    fill ROOM COUNT       puts so many bodies durably, 10,000 a call, made as they are put; reports the seconds
    drain ROOM            gets and acknowledges all there is, 10,000 a call; reports count, checksum, and seconds
    watermark ROOM QUEUES LIMIT_BYTES TIMES     see queue_watermark

How they talk: killed_child. What is drained is counted and summed while it comes, for it need not fit into memory; the
time that takes is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from tools.bench.killed_child import done, get_ready
from tools.bench.queue.bodies import BodyTally, pieces
from tools.bench.queue.ours import QUEUE, opened_queues, take
from tools.bench.queue.watermark_child import hold_watermark

MODULE = "tools.bench.queue.child"
PIECE = 10_000


def fill(room: Path, count: str) -> None:
    get_ready()
    start = perf_counter()
    with opened_queues(room) as db:
        queue = db.queue(QUEUE)
        for some in pieces(int(count), PIECE):
            queue.put_many(some)
        done({"seconds": perf_counter() - start})


def drain(room: Path) -> None:
    get_ready()
    tally, seconds = BodyTally(), 0.0
    with opened_queues(room) as db:
        queue = db.queue(QUEUE)
        start = perf_counter()
        while some := take(queue, PIECE):
            seconds += perf_counter() - start
            tally.add(some)
            start = perf_counter()
        queue.sync()
        seconds += perf_counter() - start
        done({"count": tally.count, "checksum": tally.checksum, "seconds": seconds, "left": len(queue)})


JOBS: dict[str, Callable[..., None]] = {"fill": fill, "drain": drain, "watermark": hold_watermark}

if __name__ == "__main__":
    JOBS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
