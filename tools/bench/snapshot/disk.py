"""How much disk a database takes for what it holds: log, store and buffer together, when nothing is retained.

    written     every key once, then each three times more in random order, then a fifth of them removed
    settled     reflected and flushed; then until the directory has not changed for some seconds, at most a minute
    live        keys and values that are there at the end, and nothing else

The goal is 2.5 × live + 2 containers. The figure's reference is live + 0.8 containers: 2.5 times as much is the goal.
The log is not rotated and RocksDB is not compacted for it: the sizes are those that a program would find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from tools.bench.measurement import Figure
from tools.bench.run import BenchRun
from tools.bench.snapshot.databases import (
    LIVE_BYTES,
    SESSION_KEYS,
    SETTINGS,
    STORAGE,
    SessionStep,
    directory_bytes,
    directory_of,
    flush,
    keys_of,
    opened_database,
    value_lists,
    write,
)
from tools.bench.workload import SEED
from warren.base.errors import Damage
from warren.snapshot.database import Database

OVERWRITES = 3
REMOVED_ONE_IN = 5
NOTHING_RETAINED = replace(SETTINGS, retention_seconds=0.0, retention_bytes=0)
CONTAINERS_ALLOWED, LIVE_TIMES = 2, 2.5
_MIXED_SESSIONS = 64  # sessions whose keys are mixed with one another
_STILL_SECONDS = 8.0  # the store is tidied when nothing has come for some seconds
_SETTLE_SECONDS_MAX = 60.0


def disk_figure(run: BenchRun, room: Path, keys: int) -> Figure:
    sessions = max(1, keys // SESSION_KEYS)
    with opened_database(room, settings=NOTHING_RETAINED) as database:
        write(database, _steps(run, sessions))
        flush(database)
        size = _settled_bytes(directory_of(room))
        live = _live_keys(database, sessions) * LIVE_BYTES
        containers = CONTAINERS_ALLOWED * database.log.manifest.state.container_bytes / LIVE_TIMES
    return Figure("disk", size / (1 << 20), "MiB", (live + containers) / (1 << 20))


def _steps(run: BenchRun, sessions: int) -> Iterator[SessionStep]:
    """Random order: whole sessions in turn, and within some of them key by key."""
    rng, values, sent = np.random.default_rng(SEED), value_lists(), 0
    for order in (np.arange(sessions), *(rng.permutation(sessions) for _ in range(OVERWRITES))):
        for first in range(0, sessions, _MIXED_SESSIONS):
            mixed = [key for number in order[first : first + _MIXED_SESSIONS].tolist() for key in keys_of(number)]
            keys = [mixed[at] for at in rng.permutation(len(mixed)).tolist()]
            for start in range(0, len(keys), SESSION_KEYS):
                sent += 1
                yield SessionStep(keys[start : start + SESSION_KEYS], values[sent % len(values)])
            run.reached(min(1.0, sent / (sessions * (OVERWRITES + 1))))
    for number in range(sessions):
        yield SessionStep((), (), keys_of(number)[::REMOVED_ONE_IN])


def _live_keys(database: Database, sessions: int) -> int:
    expected = sessions * (SESSION_KEYS - SESSION_KEYS // REMOVED_ONE_IN)
    found = sum(batch.count for batch in database.store.batches(STORAGE))
    if found != expected:
        raise Damage(f"{expected} keys should be left, {found} are there", database.directory)
    return found


def _settled_bytes(directory: str) -> int:
    size, since = directory_bytes(directory), monotonic()
    deadline = since + _SETTLE_SECONDS_MAX
    while monotonic() - since < _STILL_SECONDS and monotonic() < deadline:
        sleep(_STILL_SECONDS / 10)
        now = directory_bytes(directory)
        if now != size:
            size, since = now, monotonic()
    return size
