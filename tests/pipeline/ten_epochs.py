"""A small store on the real disk for tests that ask Spark: ten epochs of six entries on two channels, in several files.

Epoch n + 1 is session n: five puts on two storages and a remove. Nothing runs in background, nothing is purged unless a
test takes other settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.log.upkeep_stage import QUIET
from warren.log.store import LogStore

EPOCHS = 10
ENTRIES_PER_EPOCH = 6
SETTINGS = replace(QUIET, channel_count=2, retention_seconds=1e6, retention_bytes=1 << 40, compaction_poll_seconds=0.05)


@contextmanager
def ten_epochs(directory: str, **settings: Any) -> Iterator[LogStore]:
    store = LogStore.open(directory, replace(SETTINGS, **settings))
    try:
        for number in range(EPOCHS):
            write(store, number)
            if number == 4:
                store.rotate()
        store.witness()
        yield store
    finally:
        store.abandon()


def write(store: LogStore, number: int) -> int:
    session = store.begin(number % 2)
    for key in range(5):
        session.put(1 + key % 2, b"key-%d" % (key * number % 7), b"value %d.%d" % (number, key))
    session.remove(1, b"key-%d" % number)
    return session.commit()
