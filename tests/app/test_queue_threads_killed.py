"""Several threads in one program, and `kill -9`: real RocksDB, real SQLite, real disk.

Whatever the moment: nothing that was durable and not being settled is lost; nothing that was durably settled comes
back; nothing is there twice, and what was moved is in one queue; order is kept, contents are whole; everything that is
found is flagged as redelivered. Some lives follow a kill, some a clean stop.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.app.queue_threads_to_be_killed import APART, number_of, opened
from tests.lives import Lives, Reports
from tests.snapshot.snapshot_store_suite import QUICK_PLACE
from warren.embedded.database import Warren


class Killing:
    """Lives of one database, each ended at a random moment."""

    def __init__(self, directory: str, seed: int) -> None:
        self._directory = directory
        self._rng = random.Random(seed)
        self._next = 1  # first number of the next life
        self.lives = Lives("tests.app.queue_threads_to_be_killed", directory)
        self.reported: dict[str, set[int]] = {}
        self.kills = self.answers = 0
        self._forget({"work": [], "copies": []})

    def one_life(self) -> None:
        first = self._next
        self.lives.begin(f"{self._rng.randrange(1 << 20)} {first}")
        reported: Reports = [self.lives.read_line()]  # from now on it is at work
        time.sleep(self._rng.choice([0.05, 0.2, 0.4]) * self._rng.random())
        reported += self.lives.kill()
        self.kills, self.answers = self.kills + 1, self.answers + len(reported)
        self._next = (
            max(first, *(number % APART for _, number in reported)) + 1000
        )  # beyond what was put and not answered
        for word, number in reported:
            self.reported.setdefault(word, set()).add(number)
            if word == "put":
                begun = first + (APART if number >= APART else 0)
                self.work |= set(range(begun, number + 1))
                self.copies |= set(range(begun, number + 1)) if begun >= APART else set()

    def check(self) -> None:
        """After one kill or several."""
        with opened(self._directory) as db:
            found = {name: self._found(db, name) for name in ("work", "copies", "dead")}
            db.find_queue("dead").purge()
            alarms = [alarm for alarm in db.alarms() if "unknown to the manifest" not in alarm]  # made as the kill came
            assert not alarms, alarms
        by_word = {word: self.reported.get(word, set()) for word in WORDS}
        assert not by_word["unflagged"]
        work, copies, dead = (set(found[name]) for name in ("work", "copies", "dead"))
        assert self.work - by_word["going"] - by_word["rejecting"] <= work, "nothing durable is lost"
        assert self.copies - by_word["copying"] <= copies
        assert not by_word["gone"] & (work | dead), "nothing that was durably settled comes back"
        assert not by_word["copied"] & copies
        assert by_word["rejected"] <= dead
        assert not work & dead, "what was moved is in one queue"
        assert self.work & by_word["rejecting"] <= work | dead | by_word["going"]
        assert dead <= by_word["rejecting"]
        self._forget(found)

    def _found(self, db: Warren, name: str) -> list[int]:
        batch = db.find_queue(name).get_many(1_000_000)
        numbers = [number_of(body) for body in batch.bodies]
        assert all(batch.redelivered), "what the killed process delivered is unknown"
        assert len(set(numbers)) == len(numbers), "once"
        if name != "dead":  # where they stand as they were rejected
            for own in ([n for n in numbers if n < APART], [n for n in numbers if n >= APART]):
                assert own == sorted(own), "in order"
        batch.nack()
        return numbers

    def _forget(self, found: dict[str, list[int]]) -> None:
        """What is there now is what is known."""
        self.work, self.copies = set(found["work"]), set(found["copies"])
        self.reported = {}


WORDS = ("put", "going", "gone", "rejecting", "rejected", "copying", "copied", "unflagged")


def killed(times: int, seed: int) -> Killing:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        killing = Killing(str(Path(place) / "db"), seed)
        words_seen: set[str] = set()
        try:
            while killing.kills < times or len(words_seen) < len(WORDS) - 1:
                killing.one_life()
                words_seen |= set(killing.reported)
                if killing.kills % 3:  # now and then one kill follows the other
                    killing.check()
            killing.check()
        finally:
            killing.lives.close()
    return killing


@pytest.mark.slow
def test_threads_killed_twelve_times_lose_nothing_and_nothing_comes_back() -> None:
    """And each kind of report came at least once."""
    assert killed(12, seed=1).answers > 200


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_threads_killed_two_hundred_times_lose_nothing_and_nothing_comes_back() -> None:
    assert killed(200, seed=2).answers > 2000
