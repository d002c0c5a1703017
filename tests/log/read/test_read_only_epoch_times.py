"""Epochs and wall time: what `as of T` means."""

from __future__ import annotations

import pytest

from tests.left_open import remembered
from warren.base.errors import Gone
from warren.base.ids import Epoch
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.log.read.read_only import epoch_at_time
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

SECOND_NS = 1_000_000_000
QUIET = LogSettings(use_worker_process=False, compaction_poll_seconds=3600, snapshot_at_stop=False)


def put(store: LogStore, key: bytes) -> Epoch:
    session = store.begin()
    session.put(1, key, b"")
    return session.commit()


def at(store: LogStore, wall_ns: int) -> Epoch:
    return epoch_at_time(store.environment.files, store.directory, store.manifest.state, store.durable, wall_ns)


def test_as_of_a_time_is_the_last_epoch_noted_by_then_also_across_rotation_and_restart() -> None:
    clock, files = ManualClock(wall_ns=100 * SECOND_NS), MemoryFiles()
    environment = Environment(files, clock, SystemThreads(), SeededRandom(1))
    seen: list[tuple[int, Epoch]] = []
    for turn in range(3):
        store = LogStore.open("/log", QUIET, environment)
        for _ in range(3):
            clock.advance_ns(SECOND_NS)
            seen.append((clock.wall_ns(), put(store, b"k")))
        if turn == 1:
            store.rotate()
        for wall_ns, epoch in seen:
            assert at(store, wall_ns) == epoch
            assert at(store, wall_ns + SECOND_NS // 2) == epoch
        store.close()


def test_a_clock_set_back_does_not_make_later_epochs_earlier() -> None:
    clock = ManualClock(wall_ns=100 * SECOND_NS)
    store = remembered(
        LogStore.open("/log", QUIET, Environment(MemoryFiles(), clock, SystemThreads(), SeededRandom(1)))
    )
    first = put(store, b"a")
    clock.set_wall_ns(50 * SECOND_NS)
    clock.advance_ns(SECOND_NS)
    second = put(store, b"b")
    assert at(store, 100 * SECOND_NS) == first
    assert at(store, 101 * SECOND_NS) == second
    store.close()


def test_a_time_before_the_first_mark_is_gone_and_names_the_horizon() -> None:
    clock = ManualClock(wall_ns=100 * SECOND_NS)
    store = remembered(
        LogStore.open("/log", QUIET, Environment(MemoryFiles(), clock, SystemThreads(), SeededRandom(1)))
    )
    put(store, b"a")
    with pytest.raises(Gone, match="horizon is 0"):
        at(store, 99 * SECOND_NS)
    store.close()
