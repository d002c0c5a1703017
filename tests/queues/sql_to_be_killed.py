"""A process that moves numbered messages through two SQL-backed queues in a real file until it is killed.

Step N puts message N into the first queue and moves what is oldest there to the second, which drops all but the last
few: each step is one `Changes`. It tells "done N" when step N was answered (tests/lives).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lives import report, serve
from tests.queues.backing_stage import contents_of
from tests.queues.sql_stage import SqlStage, without_log
from warren.base.messages import Publication
from warren.queue_index.history_format import DequeueReason

WAITING, KEPT = 3, 5  # messages in the first queue, and in the second, after each step


def step(it: SqlStage, number: int) -> None:
    batch = without_log()
    it.queue.publish(Publication([b"%d" % number]), batch)
    while len(it.queue) > WAITING:
        fetched = it.queue.fetch(1)
        it.other.publish(Publication(contents_of(fetched)), batch)
        it.queue.ack([each.tags for each in fetched], DequeueReason.MOVED, batch)
    it.other.drop(len(it.other) - KEPT, DequeueReason.OVER_LIMIT, batch)
    batch.end()


def reached(it: SqlStage) -> int:
    """The last step that is there; all of it must be, and nothing else: each message in one queue, in order."""
    numbers = [int(content) for content in it.beside.browsed() + it.stage.browsed()]
    last = max(numbers, default=0)
    assert numbers == list(range(max(1, last - WAITING - KEPT + 1), last + 1)), numbers
    assert len(it.queue) == min(last, WAITING)
    return last


def live(path: str) -> None:
    it = SqlStage(Path(path))
    number = reached(it)
    while True:
        number += 1
        step(it, number)
        report("done", number)


if __name__ == "__main__":
    serve(lambda order: live(sys.argv[1]))
