"""A damaged file: its messages are set aside and told, the others are served, and nothing else is disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

import warren
from warren.app.queues import Queue

SMALL, LARGE = 300, 6000  # in the queue index, in the message store


def filled(directory: str, size: int) -> list[bytes]:
    """Three puts of three messages, in files that are sealed by now."""
    bodies = [b"message %d " % number + b"x" * size for number in range(9)]
    with warren.open(directory) as db:
        jobs, other = db.queue("jobs"), db.queue("other")
        for start in (0, 3, 6):
            jobs.put_many(bodies[start : start + 3])
        other.put(b"undisturbed")
    with warren.open(directory):
        return bodies


def damage(directory: str, mark: bytes) -> str:
    """Flip a byte behind a mark, wherever it is; the file's name."""
    for path in Path(directory, "log").iterdir():
        if path.is_file() and (at := (data := path.read_bytes()).find(mark)) >= 0:
            path.write_bytes(data[: at + 20] + bytes([data[at + 20] ^ 1]) + data[at + 21 :])
            return path.name
    raise AssertionError("the mark is in some file")


def drained(queue: Queue) -> list[bytes]:
    got: list[bytes] = []
    while batch := queue.get_many(100):
        got += batch.bodies
        batch.ack()
    return got


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_damaged_is_told_and_the_others_are_served(tmp_path: Path, size: int) -> None:
    directory = str(tmp_path / "db")
    bodies = filled(directory, size)
    file = damage(directory, b"message 4 ")
    with warren.open(directory) as db:
        assert db.queue("other").get() is not None
        got = drained(db.queue("jobs"))
        assert bodies[4] not in got
        assert {*bodies[:3], *bodies[6:]} <= set(got)
        alarms = "\n".join(db.alarms())
        assert file in alarms
        assert "cannot be read" in alarms
        db.queue("jobs").put(b"next")
        assert drained(db.queue("jobs")) == [b"next"]
