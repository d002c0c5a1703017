"""The process that is killed: two threads append on a channel each, a third one keeps house.

    python -m tests.torture.writer DIRECTORY RUN SEED

What is durable is reported on the standard output, one line each, after `commit` has returned and not before:

    ready 17                    opened; epochs up to 17 are durable
    put 3 0 12 4 18             run 3, thread 0, session 12 of 4 entries, in epoch 18
    gone 1 19                   the storage of run 1 was removed, in epoch 19
    compacted 21                everything up to epoch 21 is in a compacted file

Every run has a storage of its own. A session's entries all say how many they are, so that half a session is seen; large
sessions and tiny files make rotations, compactions and purges happen all the time.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from functools import partial

from warren.log.settings import LogSettings
from warren.log.store import LogStore

SETTINGS = LogSettings(
    channel_count=2,
    container_bytes=1,
    rotate_bytes=200_000,
    use_worker_process=False,
    compaction_poll_seconds=3600,
    retention_seconds=0,
    retention_bytes=0,
)
RUNS_KEPT = 3


def report(*words: object) -> None:
    """One write, shorter than a pipe's buffer: a line is there whole or not at all."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def key_of(thread: int, session: int, part: int) -> bytes:
    return b"%d/%d/%d" % (thread, session, part)


def value_of(thread: int, session: int, parts: int, size: int) -> bytes:
    """Says how many entries its session has, and fills up with what can be checked."""
    return b"%d|" % parts + b"%d.%d " % (thread, session) * (size // 8)


def write(store: LogStore, run: int, thread: int, seed: int) -> None:
    rng = random.Random(seed)
    number = 0
    while True:
        parts = rng.choice([1, 1, 2, 3, 5, 40])
        size = rng.choice([0, 20, 100, 3000])
        session = store.begin(thread)
        if rng.random() < 0.5:
            for part in range(parts):
                session.put(run, key_of(thread, number, part), value_of(thread, number, parts, size))
        else:
            keys = [key_of(thread, number, part) for part in range(parts)]
            session.put_many(run, keys, [value_of(thread, number, parts, size)] * parts)
        report("put", run, thread, number, parts, session.commit())
        number += 1


def keep_house(store: LogStore, seed: int) -> None:
    rng = random.Random(seed)
    while True:
        act = rng.random()
        if act < 0.3:
            store.rotate()
        elif act < 0.7:
            report("compacted", store.compact()["epoch"])
        else:
            store.purge()
        threading.Event().wait(rng.random() * 0.03)


def main(directory: str, run: int, seed: int) -> None:
    store = LogStore.open(directory, SETTINGS)
    report("ready", store.durable)
    if run > RUNS_KEPT:
        with store.begin() as session:
            session.remove_storage(run - RUNS_KEPT)
        report("gone", run - RUNS_KEPT, session.epoch)
    bodies = [partial(write, store, run, thread, seed + thread) for thread in range(2)]
    bodies.append(partial(keep_house, store, seed + 2))
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
