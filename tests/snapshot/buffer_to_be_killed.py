"""A process that adds to and takes from a version buffer in RocksDB until it is killed.

A life begins with the step that it is ordered to, and prints "did N" after step N, "done N" when persist has returned
behind it (tests/lives). What step N does follows from N; four steps, of three channels, share a major version.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

from tests.lives import report, serve
from tests.log.merge_model import Entry, columns_of
from tests.snapshot.version_buffer_suite import Model, Named, put
from warren.base.ids import UINT64_MAX, ChannelId
from warren.base.threads import SystemThreads
from warren.snapshot.store import Version
from warren.snapshot.version_buffer.rocksdb_buffer import RocksdbBuffer, open_buffer

MEMTABLE_BYTES = 64 << 10
RECORDS = 10  # of one step, at most
TAKES, TAKES_WHILE_ADDING = 9, 4  # the last digit of such a step


def opened(directory: str) -> RocksdbBuffer:
    return open_buffer(directory, SystemThreads(), MEMTABLE_BYTES, is_restored=True)


def channel_of(step: int) -> ChannelId:
    return ChannelId(step % 3)


def batch_of(step: int) -> list[Entry]:
    """Entries of a version that others have as well; those that come while something is taken are within its range."""
    rng = random.Random(step)
    major = up_to(step)[0] if step % 10 == TAKES_WHILE_ADDING else step // 4
    return [
        put((major, rng.randrange(2)), b"%d" % rng.randrange(9), b"%d.%d " % (step, n) + rng.randbytes(300))
        for n in range(rng.randrange(1, RECORDS))
    ]


def up_to(step: int) -> Version:
    return max(0, step // 4 - 3), UINT64_MAX


def do(buffer: RocksdbBuffer, step: int) -> None:
    if step % 10 == TAKES:
        taken = buffer.take(up_to(step))
        for _ in taken.batches():
            pass
        taken.done()
    elif step % 10 == TAKES_WHILE_ADDING:
        taken = buffer.take(up_to(step))
        buffer.add(channel_of(step), step * RECORDS, columns_of(batch_of(step)))
        taken.done()
    else:
        buffer.add(channel_of(step), step * RECORDS, columns_of(batch_of(step)))


def done_by_hand(model: Model, step: int) -> Iterator[None]:
    """The same in a model; stops wherever a kill may."""
    if step % 10 == TAKES:
        model.take(up_to(step))
        model.end(is_done=True)
    else:
        before = list(model.waiting)
        added: list[Named] = [
            (e.version, channel_of(step), step * RECORDS + n, e) for n, e in enumerate(batch_of(step))
        ]
        model.waiting += added
        if step % 10 == TAKES_WHILE_ADDING:
            yield  # added, and not done
            model.waiting = [named for named in before if named[0] > up_to(step)] + added
    yield


def live(directory: str, step: int) -> None:
    buffer, rng = opened(directory), random.Random(os.getpid())
    while True:
        do(buffer, step)
        report("did", step)
        if rng.random() < 0.1:
            buffer.persist()
            report("done", step)
        step += 1


if __name__ == "__main__":
    serve(lambda order: live(sys.argv[1], int(order)))
