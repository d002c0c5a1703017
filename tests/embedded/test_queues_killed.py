"""`kill -9` at random moments: what was answered is there, once, and in one queue."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import warren
from tests.lives import Lives
from warren.embedded.database import Warren


def survive(directory: str, lives: int, seconds: float) -> None:
    killed, put, gone, first = Lives("tests.app.queues_to_be_killed", directory), set[int](), set[int](), 0
    answered = 0
    for seed in range(lives):
        killed.begin(f"{seed} {first}")
        reports = [killed.read_line()]  # from now on it is at work
        time.sleep(seconds * (1 + seed % 3))
        reports += killed.kill()
        put |= {number for word, number in reports if word == "put"}
        answered += len(reports)
        gone |= {number for word, number in reports if word == "gone"}
        delivered = {number for word, number in reports if word == "got"}
        first = max(put, default=first) + 1_000  # what was put and not answered has other numbers
        with warren.open(directory) as db:
            there = message_numbers(db)
            assert len(there) == len(set(there)), "a message is in one queue, once"
            assert put - gone - delivered <= set(there), "what was answered is there, unless it was delivered"
            assert put - gone <= set(there) | delivered
            assert not gone & set(there), "what was acknowledged, durably, does not come back"
            put &= set(there)
    killed.close()
    assert answered > 100 * lives, "they have done something before they were killed"


def message_numbers(db: Warren) -> list[int]:
    """Numbers of all messages that are there, in both queues; and they are flagged, since the stop was unclean."""
    found = []
    for name in db.queues():
        queue = db.find_queue(name)
        batch = queue.get_many(1_000_000)
        assert all(batch.redelivered)
        found += [int(body.split()[0]) for body in batch]
        batch.nack()
    return found


@pytest.mark.slow
def test_killed_programs_lose_nothing_that_was_answered(tmp_path: Path) -> None:
    survive(str(tmp_path / "db"), lives=6, seconds=0.2)
