"""A process that puts, gets, acknowledges and rejects until it is killed, and prints what is durable.

put N     message N is durable          got N     message N was delivered          gone N    its acknowledgement is
"""

from __future__ import annotations

import random
import sys

import warren
import warren.embedded.queues  # before there are lives: each has it then
from tests.lives import report, serve
from warren.queues.settings import QueueSettings


def live(order: str) -> None:
    directory, (seed, first) = sys.argv[1], map(int, order.split())
    rng = random.Random(seed)
    settings = QueueSettings(memory_watermark_bytes=200_000, settle_ms=5)
    db = warren.open(directory, queue_settings=settings)
    dead = db.queue("dead")
    work = db.queue("work", max_length=500, dead_letter="dead")
    number = first
    while True:
        count = rng.randrange(1, 20)
        size = rng.choice([20, 300, 6000])
        work.put_many([b"%d " % (number + at) + b"x" * size for at in range(count)])
        for at in range(count):
            report("put", number + at)
        number += count
        for queue in (work, dead):
            batch = queue.get_many(rng.randrange(1, 25))
            for body in batch:
                report("got", int(body.split()[0]))
            fate = rng.random()
            if fate < 0.6:
                batch.ack()
                queue.sync()
                for body in batch:
                    report("gone", int(body.split()[0]))
            elif fate < 0.8:
                batch.nack(requeue=queue is dead)
            elif fate < 0.9:
                batch.nack()


if __name__ == "__main__":
    serve(live)
