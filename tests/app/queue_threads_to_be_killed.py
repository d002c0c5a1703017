"""A process whose threads put, get, acknowledge and reject until it is killed, and print what is durable.

    put N          message N, and everything that its thread has put before in this life, is durable
    going N        message N of `work` is about to be acknowledged     gone N        … durably so
    rejecting N    message N of `work` is about to move to `dead`      rejected N    … durably so
    copying N      message N of `copies` is about to be acknowledged   copied N      … durably so
    unflagged N    a message of an earlier life came without its flag: that must not be

Thread 0 puts to `work`, thread 1 to `work` and `copies` at once, threads 2 and 3 get. Numbers of thread 1 are above
`APART`. Files and memory are so small that the log rotates, messages page, and garbage is collected all the time.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from functools import partial

import warren
import warren.embedded.queues  # before there are lives: each has it then
from tests.lives import report, serve
from warren.embedded.database import Warren
from warren.embedded.messages import DeliveryTag
from warren.embedded.queues import Queue
from warren.log.settings import LogSettings
from warren.message_store.settings import MessageStoreSettings
from warren.queues.settings import QueueSettings
from warren.snapshot.reflection import ReflectionSettings

APART = 10**7
SIZES = (20, 20, 300, 6000)


def body_of(number: int, size: int) -> bytes:
    return b"%d|" % number + (b"%d." % number * size)[:size]


def number_of(body: bytes) -> int:
    """And whether all of it is as it was put."""
    number = int(body[: body.index(b"|")])
    assert body == body_of(number, len(body) - body.index(b"|") - 1), f"message {number} is not what was put"
    return number


def opened(directory: str) -> Warren:
    return warren.open(
        directory,
        log_settings=LogSettings(
            use_worker_process=False, retention_seconds=0, retention_bytes=0, rotate_bytes=300_000
        ),
        reflection=ReflectionSettings(lag_seconds=0.005, flush_seconds=0.05),
        queue_settings=QueueSettings(memory_watermark_bytes=60_000, cleaning_seconds=0.05, settle_ms=3),
        message_store_settings=MessageStoreSettings(gc_seconds=0.05, transient_file_bytes=50_000),
    )


def put(db: Warren, first: int, seed: int) -> None:
    rng, number, work = random.Random(seed), first, db.find_queue("work")
    while True:
        count, size = rng.randrange(1, 12), rng.choice(SIZES)
        bodies = [body_of(number + at, size) for at in range(count)]
        number += count
        if first < APART:
            work.put_many(bodies)
            work.put(b"transient", persistent=False)
        else:
            db.publish(bodies, ["work", "copies"])
        report("put", number - 1)


def take(queue: Queue, first: int, seed: int) -> None:
    rng, is_copy = random.Random(seed), queue.name == "copies"
    before, after = ("copying", "copied") if is_copy else ("going", "gone")
    while True:
        batch = queue.get_many(rng.randrange(1, 30), timeout=1.0)
        known = [
            (number_of(body), tag, flag)
            for body, tag, flag in zip(batch.bodies, batch.tags, batch.redelivered, strict=True)
            if body != b"transient"
        ]
        for number, _, flag in known:
            if number % APART < first and not flag:
                report("unflagged", number)
        fate = rng.random()
        chosen = known[:: rng.choice([1, 1, 2, 3])]
        if fate < 0.2:
            batch.nack()
        elif fate < 0.35 and not is_copy:
            settle(queue, chosen, "rejecting", "rejected", lambda tag: queue.nack(tag, requeue=False))
        elif fate < 0.9:
            settle(queue, chosen[::-1], before, after, queue.ack)  # out of order


def settle(
    queue: Queue,
    chosen: list[tuple[int, DeliveryTag, bool]],
    before: str,
    after: str,
    act: Callable[[DeliveryTag], int],
) -> None:
    for number, _, _ in chosen:
        report(before, number)
    for _, tag, _ in chosen:
        act(tag)
    queue.sync()
    for number, _, _ in chosen:
        report(after, number)


def live(order: str) -> None:
    directory, (seed, first) = sys.argv[1], map(int, order.split())
    db = opened(directory)
    db.queue("dead")
    work, copies = db.queue("work", dead_letter="dead"), db.queue("copies")
    jobs = [partial(put, db, first, seed), partial(put, db, first + APART, seed + 1)]
    jobs += [partial(take, work, first, seed + 2), partial(take, copies, first, seed + 3)]
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    serve(live)
