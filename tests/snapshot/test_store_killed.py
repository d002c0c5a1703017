"""A real RocksDB under `kill -9`: whatever the moment, what is found is the state behind a whole batch."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.lives import Lives
from tests.log.merge_model import columns_of
from tests.snapshot.snapshot_store_suite import QUICK_PLACE, TIMELINE, held_by
from tests.snapshot.store_to_be_killed import TINY, batch_of
from tools.simulator.volatile_store import VolatileStore
from warren.snapshot.rocksdb.store import RocksDbStore


class Killing:
    """Lives of one store, each ended at a random moment."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = str(directory / "store")
        self._rng = random.Random(seed)
        self._model = VolatileStore(TIMELINE)
        self.batches = 0
        self.lives = Lives("tests.snapshot.store_to_be_killed", self._directory)

    def one_life(self) -> None:
        reported = self.lives.one(self._rng.choice([0.01, 0.05, 0.2]) * self._rng.random() * 2)
        self._check(max([int(self._model.applied.epoch), *(number for _, number in reported)]))

    def _check(self, reported: int) -> None:
        store = RocksDbStore.open(self._directory, TIMELINE, TINY)
        try:
            reached = store.applied.epoch
            assert reached >= reported, "what flush has returned is on disk"
            for number in range(self._model.applied.epoch + 1, reached + 1):
                entries, applied, counters = batch_of(number)
                self._model.apply([columns_of(entries)], applied, counters)
            assert store.applied == self._model.applied
            assert held_by(store) == held_by(self._model), "one whole batch, never a mix"
            assert [store.counter(name) for name in (b"batch", b"odd")] == [
                self._model.counter(name) for name in (b"batch", b"odd")
            ]
        finally:
            store.close()
        self.batches = reached


def killed(times: int, seed: int) -> Killing:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        killing = Killing(Path(place), seed)
        try:
            lives = 0
            while lives < times or killing.batches < 2 * times:
                killing.one_life()
                lives += 1
        finally:
            killing.lives.close()
    return killing


def test_a_store_killed_ten_times_stands_behind_a_whole_batch_each_time() -> None:
    """SS-01, VO-03: rows, counters and mark are of one batch, and no mark that was reported is lost."""
    assert killed(10, seed=1).batches >= 20


@pytest.mark.slow
def test_a_store_killed_fifty_times_stands_behind_a_whole_batch_each_time() -> None:
    assert killed(50, seed=2).batches >= 100
