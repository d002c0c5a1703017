"""A program whose queues are on a disk so small that it is full soon: a real one, mounted for it alone.

    unshare --mount --map-root-user python -m tests.app.queues_on_a_full_disk PLACE

One thread puts small and large messages one after the other, until it is blocked. Another gets and acknowledges what is
there meanwhile. Then there is room again. The findings are printed as one JSON object; an exception ends it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import warren
from tests.app.disk_to_be_filled import LOG, PATIENCE_SECONDS, REFLECTION, mounted, until
from warren.embedded.database import Warren
from warren.embedded.queues import Queue

MORE = 40  # messages put behind the moment at which the disk was full
TAKEN = 5  # got while it was


class Putter:
    """`acknowledged` messages were put durably."""

    def __init__(self, queue: Queue) -> None:
        self.acknowledged = 0
        self.last: int | None = None
        self.error: Exception | None = None
        self._queue = queue
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the putter did not continue when there was room"

    def _run(self) -> None:
        try:
            while self.last is None or self.acknowledged < self.last:
                self._queue.put(body_of(self.acknowledged))
                self.acknowledged += 1
        except Exception as error:
            self.error = error


def body_of(number: int) -> bytes:
    """Every other one is for the message store."""
    size = 50_000 if number % 2 else 2_000
    return b"%06d" % number + random.Random(number).randbytes(size)


def stands_still(db: Warren, putter: Putter, alarms: list[str]) -> bool:
    at, alarms[:] = putter.acknowledged, db.alarms()
    time.sleep(0.5)
    return any("writers wait" in alarm for alarm in alarms) and putter.acknowledged == at


def main() -> None:
    place = Path(sys.argv[1])
    disk_reserve = mounted(place, 160, 130)
    directory = str(place / "db")
    db = warren.open(directory, log_settings=LOG, reflection=REFLECTION)
    jobs = db.queue("jobs")
    putter = Putter(jobs)
    alarms: list[str] = []
    until(lambda: stands_still(db, putter, alarms), "the disk never filled up")
    findings: dict[str, Any] = {"alarms": alarms, "at": putter.acknowledged}
    batch = jobs.get_many(TAKEN)
    findings["got while full"] = [int(body[:6]) for body in batch.bodies]
    batch.ack()
    putter.last = putter.acknowledged + MORE
    disk_reserve.unlink()
    putter.join()
    findings |= {"error": putter.error and str(putter.error), "acknowledged": putter.acknowledged}
    until(lambda: not db.alarms(), "an alarm stays", db)
    db.close()
    with warren.open(directory, log_settings=LOG, reflection=REFLECTION) as again:
        bodies = list(again.queue("jobs").browse())
        findings["left"] = [int(body[:6]) for body in bodies]
        findings["whole"] = bodies == [body_of(number) for number in findings["left"]]
    print(json.dumps(findings))


if __name__ == "__main__":
    main()
