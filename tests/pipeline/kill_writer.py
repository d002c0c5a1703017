"""The owner of the log in the kill test: two threads append on a channel each, a third one keeps house.

    python -m tests.pipeline.kill_writer FOLDER RUN

    FOLDER/log              the store
    FOLDER/acknowledged     a line for each session, written after `commit` returned:   RUN THREAD NUMBER PARTS EPOCH
    FOLDER/checkpoint       the stream's: how far it has read decides when a purge may come
    FOLDER/stop             when this is there, the writer closes the store and ends

A session's keys are its own, `RUN/THREAD/NUMBER/PART`, and every value says how many parts there are; so whatever was
durable once is in the state for ever, though the raw log of it was purged. One more entry, on a storage of its own,
overwrites its thread's last: something for a compaction to drop.

Nothing is retained: a purge takes all that is compacted and not pinned. That would outrun a stream whose driver has
just been killed, which is not promised. So house is kept in one thread, by turns: compact, wait until the
stream has read what that sealed, purge. The stream never falls behind, and what it has read is gone soon.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from warren.log.settings import LogSettings
from warren.log.store import LogStore

SETTINGS = LogSettings(
    channel_count=2,
    container_bytes=1,
    use_worker_process=False,
    compaction_garbage_ratio=0,
    compaction_poll_seconds=3600,
    retention_seconds=0,
    retention_bytes=0,
)
SESSION_STORAGE, NEWEST_STORAGE = 1, 2
PARTS = (1, 2, 3, 7)
_BETWEEN_SESSIONS_SECONDS = 0.02
_BETWEEN_LOOKS_SECONDS = 0.05


class Writer:
    def __init__(self, folder: Path, run: int) -> None:
        self._folder = folder
        self._run = run
        self._store = LogStore.open(str(folder / "log"), SETTINGS)
        self._acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._ended = threading.Event()

    def work(self) -> None:
        bodies = [lambda: self._append(0), lambda: self._append(1), self._keep_house]
        threads = [threading.Thread(target=body) for body in bodies]
        for thread in threads:
            thread.start()
        while all(thread.is_alive() for thread in threads) and not (self._folder / "stop").exists():
            self._ended.wait(_BETWEEN_LOOKS_SECONDS)
        is_good = all(thread.is_alive() for thread in threads)
        self._ended.set()
        for thread in threads:
            thread.join()
        self._store.close()
        os.close(self._acknowledged)
        assert is_good, "a thread ended early"

    def _append(self, thread: int) -> None:
        number = 0
        while not self._ended.wait(_BETWEEN_SESSIONS_SECONDS):
            parts = PARTS[number % len(PARTS)]
            name = b"%d/%d/%d" % (self._run, thread, number)
            session = self._store.begin(thread)
            for part in range(parts):
                session.put(SESSION_STORAGE, b"%s/%d" % (name, part), b"%d" % parts)
            session.put(NEWEST_STORAGE, b"%d" % thread, name)
            epoch = session.commit()
            line = b"%d %d %d %d %d\n" % (self._run, thread, number, parts, epoch)
            assert os.write(self._acknowledged, line) == len(line)
            number += 1

    def _keep_house(self) -> None:
        store = self._store
        while not self._ended.wait(_BETWEEN_LOOKS_SECONDS):
            store.rotate()
            store.compact()
            sealed = max(record.sealed_epoch for record in store.manifest.state.files.values())
            while read_up_to(self._folder / "checkpoint") < sealed:
                if self._ended.wait(_BETWEEN_LOOKS_SECONDS):
                    return
            store.purge()


def read_up_to(checkpoint: Path) -> int:
    """The epoch that a committed batch of the stream has reached; 0 if there is none."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdigit()]
    if not batches:
        return 0
    *_, offset = (checkpoint / "offsets" / str(max(batches))).read_text(encoding="utf-8").splitlines()
    return int(json.loads(offset)["epoch"])


if __name__ == "__main__":
    Writer(Path(sys.argv[1]), int(sys.argv[2])).work()
