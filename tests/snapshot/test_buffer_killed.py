"""The version buffer in RocksDB under `kill -9`: the content is what some whole steps left, and no persisted
step is missing. Nothing is doubled, and no entry has taken the place of another of its version."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.lives import Lives
from tests.log.merge_model import Entry
from tests.snapshot.buffer_to_be_killed import done_by_hand, opened
from tests.snapshot.snapshot_store_suite import QUICK_PLACE
from tests.snapshot.version_buffer_suite import Model, all_of
from warren.base.ids import UINT64_MAX


class Killing:
    """Lives of one buffer, each ended at a random moment."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = str(directory / "buffer")
        self._rng = random.Random(seed)
        self._model = Model()
        self.steps = 0  # which are in the model
        self.persists = 0  # how often persist has returned
        self.lives = Lives("tests.snapshot.buffer_to_be_killed", self._directory)

    def one_life(self) -> None:
        persisted = did = self.steps
        seconds = self._rng.choice([0.01, 0.05, 0.2]) * self._rng.random() * 2
        for word, number in self.lives.one(seconds, f"{self.steps + 1}"):
            persisted, did = (number, did) if word == "done" else (persisted, number)
            self.persists += word == "done"
        self._check(persisted, did)

    def _check(self, persisted: int, did: int) -> None:
        buffer = opened(self._directory)
        taken = buffer.take((UINT64_MAX, UINT64_MAX))
        found = all_of(taken)
        taken.put_back()
        counted = buffer.entries
        buffer.close()
        assert counted == len(found)
        while not (self.steps >= persisted and in_order(self._model) == found):
            assert self.steps <= did, f"step {persisted} was persisted, and {did} was the last: none of them left this"
            self._replay_step(found, persisted)

    def _replay_step(self, found: list[Entry], persisted: int) -> None:
        """One more step by hand. A kill in its middle may have left what is found: the next life leaves it at that."""
        for _ in done_by_hand(self._model, self.steps + 1):
            if self.steps + 1 > persisted and in_order(self._model) == found:
                break
        self.steps += 1


def in_order(model: Model) -> list[Entry]:
    return [named[3] for named in sorted(model.waiting)]


def killed(times: int, seed: int) -> Killing:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        killing = Killing(Path(place), seed)
        try:
            lives = 0
            while lives < times or killing.steps < 20 * times or killing.persists < times:
                killing.one_life()
                lives += 1
        finally:
            killing.lives.close()
    return killing


def test_a_buffer_killed_twenty_times_holds_what_whole_steps_left_each_time() -> None:
    """VB-06, VB-10: what was persisted is there; entries of equal version, of several channels and of one, are all
    there, and once."""
    assert killed(20, seed=1).steps >= 400


@pytest.mark.torture
def test_a_buffer_killed_sixty_times_holds_what_whole_steps_left_each_time() -> None:
    assert killed(60, seed=2).steps >= 1200
