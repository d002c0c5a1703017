"""A process to be watched, and to be killed: `python -m warren.bench.snapshot_child ROOM KEYS settled|behind`.

    parent   starts it · watches it · kills it with SIGKILL
    child    ready ◀ go ▶ opens the database, writes KEYS keys, … ◀ done, and waits for its end

*Settled*: everything is reflected, read once (gets, a range over all, batches over all) and flushed; then ten thousand
more keys are written and left as they are: what a process has on its way that is killed between two flushes. *Behind*:
it writes as fast as it can, and says so as soon as all is durable, whatever the store has by then.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warren.base.errors import DiskFailure
from warren.bench.databases import SESSION_KEYS, STORAGE, flush, keys_of, opened_database, puts, write
from warren.snapshot.database import Database

SETTLED, BEHIND = "settled", "behind"
MORE_SESSIONS = 10
MORE_FROM = 1 << 40  # sessions whose keys nobody else writes
LOOKUPS = 1000
_READY, _GO, _DONE = b"ready\n", b"go\n", b"done\n"


class Child:
    """One that is ready, and does nothing yet."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self._hear(_READY)

    def do(self) -> None:
        """Let it do its work; return when it is done, and waits."""
        assert self._process.stdin is not None
        self._process.stdin.write(_GO)
        self._process.stdin.flush()
        self._hear(_DONE)

    def _hear(self, word: bytes) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != word:
            raise DiskFailure("the process that was to write and be killed ended by itself")


@contextmanager
def child(room: Path, keys: int, how: str) -> Iterator[Child]:
    """Killed with SIGKILL when the block ends."""
    command = [sys.executable, "-m", "warren.bench.snapshot_child", str(room), str(keys), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def main(room: Path, keys: int, how: str) -> None:
    _say(_READY)
    sys.stdin.buffer.readline()
    with opened_database(room) as database:
        write(database, puts(range(keys // SESSION_KEYS)))
        if how == SETTLED:
            flush(database)
            _read(database, keys)
            write(database, puts(range(MORE_FROM, MORE_FROM + MORE_SESSIONS)))
        _say(_DONE)
        sys.stdin.buffer.readline()


def _read(database: Database, keys: int) -> None:
    view = database.view()
    for number in range(min(LOOKUPS, keys // SESSION_KEYS)):
        assert view.get(STORAGE, keys_of(number)[number % SESSION_KEYS]) is not None
    rows = sum(1 for _ in view.range(STORAGE))
    assert rows == sum(batch.count for batch in view.batches(STORAGE)) >= keys // SESSION_KEYS * SESSION_KEYS
    view.close()


def _say(word: bytes) -> None:
    sys.stdout.buffer.write(word)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
