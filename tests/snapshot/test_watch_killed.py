"""`kill -9` of a database in mode `watch`, and of its puller: nothing is lost, and no process is left."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.lives import Lives
from tests.pipeline.histories import State, changed
from tests.snapshot.database_stage import rows
from tests.snapshot.snapshot_store_suite import QUICK_PLACE
from tests.snapshot.watch_stage import QUICK, has_caught_up, is_running, opened, puller_client, until
from tests.snapshot.watch_to_be_killed import batch_of, last_batch
from warren.snapshot.reflection import Mode

_MARK = "WARREN_WATCH_DRILL"  # in the environment of everything that a drill has started


class Killing:
    """Lives of one database, in each of which the puller is killed as often as wanted, and then main."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory / "db"
        self._rng = random.Random(seed)
        self._model: State = {}
        self._modelled = self._durable = 0
        self.pullers_killed = self.mains_killed = 0
        self.lives = Lives("tests.snapshot.watch_to_be_killed", str(self._directory), **{_MARK: str(directory)})
        self._mark = f"{_MARK}={directory}".encode()

    @property
    def batches(self) -> int:
        return self._modelled

    def one_life(self, puller_kills: int) -> None:
        self.lives.begin()
        left = puller_kills
        while left:
            word, number = self.lives.read_line()
            if word == "done":
                self._durable = number
            else:
                self._wait_a_little()
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
                left -= 1
                self.pullers_killed += 1
        self._wait_for_batches(self._rng.choice([0, 20, 40]))
        self._wait_a_little()
        self._durable = max([self._durable, *(number for word, number in self.lives.kill() if word == "done")])
        self.mains_killed += 1
        until(lambda: not self.left_behind(), "a puller ends with its owner")
        self._check()

    def left_behind(self) -> list[int]:
        """Processes of this drill, without the one that begins lives."""
        found = list[int]()
        for place in Path("/proc").iterdir():
            with suppress(OSError):
                if place.name.isdecimal() and self._mark in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
        return [pid for pid in found if pid != self.lives.pid and is_running(pid)]

    def _wait_for_batches(self, batches: int) -> None:
        """Let it come so far, however slow the machine is."""
        wanted = self._durable + batches
        while self._durable < wanted:
            word, number = self.lives.read_line()
            if word == "done":
                self._durable = number

    def _wait_a_little(self) -> None:
        time.sleep(self._rng.choice([0.0, 0.05, 0.5]) * self._rng.random() * 2)

    def _check(self) -> None:
        mode = self._rng.choice([Mode.WATCH, Mode.NOTIFY])
        with opened(self._directory, replace(QUICK, reflection=mode)) as db:
            assert not db.database.problems, "the store is never built again because of a kill"
            reached = last_batch(db)
            assert reached >= self._durable, "what was durable is there"
            for number in range(self._modelled + 1, reached + 1):
                self._model = changed(self._model, batch_of(number))
            self._modelled = reached
            assert rows(db.database) == self._model
            assert db.database.store.applied.epoch <= db.database.log.durable
            if mode is Mode.WATCH:
                puller_client(db).catch_up()
                assert has_caught_up(db)
                assert rows(db.database) == self._model, "and so it is in the store alone"


def drilled(mains: int, pullers_per_main: int, seed: int) -> Killing:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        killing = Killing(Path(place), seed)
        try:
            for _ in range(mains):
                killing.one_life(pullers_per_main)
        finally:
            killing.lives.close()
        assert not killing.left_behind()
    return killing


@pytest.mark.slow
def test_main_killed_ten_times_leaves_no_puller_and_nothing_is_lost() -> None:
    """RF-06, RF-10: the puller ends with its owner, the next opening waits for its lock, and finds what was durable."""
    drill = drilled(mains=10, pullers_per_main=0, seed=1)
    assert drill.mains_killed == 10 and drill.batches >= 100


@pytest.mark.slow
def test_a_puller_killed_ten_times_continues_after_what_it_had_flushed() -> None:
    """RF-06, RF-10: main starts the next one; then main is killed as well."""
    drill = drilled(mains=2, pullers_per_main=5, seed=2)
    assert drill.pullers_killed == 10 and drill.batches >= 100
