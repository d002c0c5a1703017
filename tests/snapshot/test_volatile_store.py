"""The store that forgets: what it loses, and what it says of callers who do not keep to the protocol."""

from __future__ import annotations

import pytest

from tests.snapshot.snapshot_store_suite import TIMELINE, about, apply, mark, put
from tools.simulator.volatile_store import VolatileStore
from warren.base.errors import DiskFailure, Misuse
from warren.log.settings import EntryKind
from warren.testing.fakes import SeededRandom


def three_batches_behind_a_flush() -> VolatileStore:
    store = VolatileStore(TIMELINE)
    apply(store, put((1, 1), b"1"))
    store.flush()
    for n in (2, 3, 4):
        apply(store, put((n, 1), b"%d" % n))
    return store


def test_a_crash_leaves_any_whole_batch_from_the_flushed_one_on() -> None:
    store = three_batches_behind_a_flush()
    found = [store.crash(SeededRandom(seed)) for seed in range(40)]
    assert {after.applied.epoch for after in found} == {1, 2, 3, 4}
    assert all(len(list(after.range(3))) == after.applied.epoch for after in found)
    assert store.applied.epoch == 4, "the old one is left as it is"


def test_one_seed_is_one_crash() -> None:
    store = three_batches_behind_a_flush()
    once, again = ([store.crash(SeededRandom(seed)).applied for seed in range(20)] for _ in range(2))
    assert once == again


def test_after_a_failure_it_takes_nothing_until_it_is_resumed_at_what_was_flushed() -> None:
    store = three_batches_behind_a_flush()
    view = store.view()
    store.break_down("the disk is full")
    with pytest.raises(DiskFailure, match="the disk is full"):
        apply(store, put((5, 1)))
    with pytest.raises(DiskFailure):
        store.flush()
    store.resume()
    assert (store.applied, store.failure) == (mark(1, (1, 1)), None)
    with pytest.raises(Misuse, match="closed"):
        view.get(3, b"1")


def test_an_entry_that_is_late_and_was_not_announced_is_the_callers_fault() -> None:
    store = VolatileStore(TIMELINE)
    apply(store, put((5, 1)))
    with pytest.raises(Misuse, match="late"):
        apply(store, put((4, 1)))
    apply(store, put((4, 1)), are_late=True)
    assert store.get(3, b"k") == (b"v", (5, 1))


def test_clears_in_tables_must_be_named() -> None:
    store = VolatileStore(TIMELINE)
    store.tables["t"] = []
    apply(store, about(EntryKind.CLEAR_STORAGE, (1, 1)))
    with pytest.raises(Misuse, match="were named"):
        store.ingest(["t"], mark(2), cleared={3})
