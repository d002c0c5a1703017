"""A damaged file: its messages are set aside and reported, the others are served, and nothing else is disturbed."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import warren
from warren.embedded.queues import Queue
from warren.queues.settings import QueueSettings

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
    received: list[bytes] = []
    while batch := queue.get_many(100):
        received += batch.bodies
        batch.ack()
    return received


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_damage_is_reported_and_the_others_are_served(tmp_path: Path, size: int) -> None:
    directory = str(tmp_path / "db")
    bodies = filled(directory, size)
    file = damage(directory, b"message 4 ")
    with warren.open(directory) as db:
        assert db.queue("other").get() is not None
        received = drained(db.queue("jobs"))
        assert bodies[4] not in received
        assert {*bodies[:3], *bodies[6:]} <= set(received)
        alarms = "\n".join(db.alarms())
        assert file in alarms
        assert "cannot be read" in alarms
        db.queue("jobs").put(b"next")
        assert drained(db.queue("jobs")) == [b"next"]


def mended(directory: str, file: str) -> None:
    """The flipped byte as it was."""
    path = Path(directory, "log", file)
    data = path.read_bytes()
    at = data.find(b"message 4 ") + 20
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_when_the_good_file_comes_back_the_messages_are_there(tmp_path: Path, size: int) -> None:
    """Whatever was acknowledged meanwhile, and however often the database was opened."""
    directory = str(tmp_path / "db")
    bodies = filled(directory, size)
    file = damage(directory, b"message 4 ")
    received: list[bytes] = []
    for _ in range(2):
        with warren.open(directory) as db:
            received += drained(db.queue("jobs"))
            assert "queue 'jobs'" in "\n".join(db.alarms())
    mended(directory, file)
    with warren.open(directory) as db:
        received += drained(db.queue("jobs"))
        assert sorted(received) == bodies
        assert not db.alarms()


class _AskingForAlarms(logging.Handler):
    """Reads the alarms at the moment a damage is logged, as a metrics request on another thread may."""

    def __init__(self, db: warren.Warren) -> None:
        super().__init__()
        self._db = db
        self.alarms: list[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.alarms.append(self._db.alarms())


def test_alarms_can_be_read_at_the_moment_a_damage_is_found(tmp_path: Path) -> None:
    directory = str(tmp_path / "db")
    filled(directory, SMALL)
    file = damage(directory, b"message 4 ")
    logger = logging.getLogger("warren.broker.storage")
    with warren.open(directory) as db:
        logger.addHandler(handler := _AskingForAlarms(db))
        try:
            drained(db.queue("jobs"))
        finally:
            logger.removeHandler(handler)
    assert handler.alarms and all(file in "\n".join(alarms) for alarms in handler.alarms)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_scrub_names_the_queue_before_it_is_read(tmp_path: Path, size: int) -> None:
    directory = str(tmp_path / "db")
    filled(directory, size)
    file = damage(directory, b"message 4 ")
    with warren.open(directory, queue_settings=QueueSettings(cleaning_seconds=0.01)) as db:
        db.queue("other")
        deadline = time.monotonic() + 30
        while not (alarms := [alarm for alarm in db.alarms() if "queue 'jobs'" in alarm]):
            assert time.monotonic() < deadline, "the scrub has not found it"
            time.sleep(0.01)
        assert file in alarms[0] and "at byte" in alarms[0]
