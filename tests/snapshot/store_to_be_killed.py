"""A process that applies numbered batches to a RocksDB store until it is killed.

It prints "done N" when flush or ingest has returned after batch N (tests/lives). What batch N holds follows from N.
"""

from __future__ import annotations

import os
import random
import sys

from tests.lives import report, serve
from tests.log.merge_model import Entry, columns_of, merged_by_hand
from tests.snapshot.snapshot_store_suite import TIMELINE, about, mark, put, remove
from warren.log.settings import EntryKind
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import Applied
from warren.snapshot.tables.tasks import write_table

TINY = SnapshotStoreSettings(write_buffer_bytes=64 << 10, block_cache_bytes=1 << 20)


def batch_of(number: int) -> tuple[list[Entry], Applied, dict[bytes, bytes | None]]:
    rng = random.Random(number)
    entries = list[Entry]()
    for minor in range(20):
        key, storage = b"%03d" % rng.randrange(150), rng.randrange(3)
        if rng.random() < 0.7:
            value = b"%d." % number + rng.randbytes(rng.randrange(400))
            entries.append(put((number, minor), key, value, storage))
        else:
            entries.append(remove((number, minor), key, storage))
    if rng.random() < 0.1:
        entries.append(about(EntryKind.CLEAR_STORAGE, (number, 20), rng.randrange(3)))
    return entries, mark(number, (number, 99)), {b"batch": b"%d" % number, b"odd": b"yes" if number % 2 else None}


def live(directory: str) -> None:
    store = RocksDbStore.open(directory, TIMELINE, TINY)
    rng = random.Random(os.getpid())
    number = int(store.applied.epoch)
    while True:
        number += 1
        entries, applied, counters = batch_of(number)
        if rng.random() < 0.03:
            merged = merged_by_hand(entries, is_bottom=False)
            figures = write_table(f"{directory}.table", [columns_of(merged)])
            store.ingest([figures.path], applied, counters, figures.cleared)
            report("done", number)
            continue
        store.apply([columns_of(entries)], applied, counters)
        if rng.random() < 0.1:
            report("done", store.flush().epoch)


if __name__ == "__main__":
    serve(lambda order: live(sys.argv[1]))
